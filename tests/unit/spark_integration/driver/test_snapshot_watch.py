"""The driver's look at published snapshots."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.jobs.materializer_world import World
from varvite.spark_integration.driver.snapshot_watch import SnapshotWatch

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE_S = 30.0


def test_it_looks_at_once_so_that_a_query_of_one_batch_adopts_too(tmp_path: Path) -> None:
    """One that processes what there is and ends, started again and again, would never see the second look."""
    world = World(tmp_path)
    world.commit(3)
    world.sidecar().fold()
    assert world.job.run is not None
    state = world.job.run.state
    watch = SnapshotWatch(world.store, world.job.run.record.job_id, poll_s=3_600.0)
    watch.start(state.view, state.floors)
    deadline_s = time.monotonic() + PATIENCE_S
    while not (adoption := watch.adoption(state.view, state.floors)).tiles:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    watch.close()
    assert [(tile.low, tile.high) for tile in adoption.tiles] == [(0, 4), (4, 8)]
    world.close()
