"""The driver's look at published snapshots."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.jobs.materializer_world import World
from varvite.spark_integration.driver.snapshot_watch import POLL_S, RARE_POLL_S, LookPause, SnapshotWatch

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


def looks(new_at_s: list[float], until_s: float) -> list[float]:
    """Times of looks, if snapshots appear at these times."""
    times: list[float] = []
    pause, now_s, seen = LookPause(), 0.0, 0
    while now_s < until_s:
        waited_s = pause.seconds(POLL_S, RARE_POLL_S)
        now_s += waited_s
        number = sum(time_s <= now_s for time_s in new_at_s)
        pause, seen = pause.after(waited_s, is_new=number > seen), number
        times.append(now_s)
    return times


def test_a_job_whose_snapshots_are_rare_is_looked_at_once_a_minute() -> None:
    times = looks([300.0 * n for n in range(1, 20)], 6_000)
    assert len([time_s for time_s in times if time_s > 600]) <= 5_400 / RARE_POLL_S + 1
    assert times[:4] == [2, 4, 8, 16]


def test_a_job_whose_snapshots_are_frequent_adopts_each_before_the_next() -> None:
    new_at_s = [10.0 * n for n in range(1, 60)]
    times = looks(new_at_s, 600)
    late = [min(time_s for time_s in times if time_s >= at_s) - at_s for at_s in new_at_s[:-1]]
    assert max(late[1:]) < 2.5
    assert len(times) <= 5 * len(new_at_s) + 5


def test_a_snapshot_is_seen_after_a_fifth_of_the_time_between_two() -> None:
    new_at_s = [100.0 * n for n in range(1, 30)]
    times = looks(new_at_s, 3_000)
    late = [min(time_s for time_s in times if time_s >= at_s) - at_s for at_s in new_at_s[2:-1]]
    assert max(late) < 25


def test_a_job_without_a_materializer_is_looked_at_less_and_less() -> None:
    assert len(looks([], 3_600)) < 3_600 / RARE_POLL_S + 6
