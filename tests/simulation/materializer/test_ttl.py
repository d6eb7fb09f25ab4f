"""The materializer and time: what has expired is told by the commits, not by the clock of whoever looks at it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.materializer_world import World
from tests.jobs.state_model import KEY_GROUPS, KEY_TYPE, OPERATOR, BatchChanges, Model, key_group
from tests.stores.manual_clock import ManualClock
from varvite.changelog.api.time_spans import Time
from varvite.changelog.api.ttl_config import StateTtlConfig
from varvite.changelog.chain.reader import ChainReader
from varvite.changelog.restore.restore import RestoreTarget, restore
from varvite.changelog.schema.ttl import enabled_settings, with_ttl
from varvite.changelog.segments.batch import BatchTime
from varvite.changelog.segments.changes import StateChanges
from varvite.storage.format.records import StateSchema

TTL_MS = 5 * 60_000
PLAIN = StateSchema(name="seen", kind="value", value_type="1:long")
SCHEMA = with_ttl(
    PLAIN, None, enabled_settings(StateTtlConfig.new_builder(Time.milliseconds(TTL_MS)).build()), BatchTime(0)
)
TEN_MINUTES_S = 600.0


@dataclass
class StampedBatch(BatchChanges):
    """Writes these keys with the time of the batch."""

    stamp_ms: int = 0
    written: tuple[str, ...] = ()

    def rows(self, seen: Any = lambda _: True) -> list[StateChanges]:
        keys = sorted((key for key in self.written if seen(key)), key=key_group)
        if not keys:
            return []
        values: list[Any] = [(self.stamp_ms, 1) for _ in keys]
        return [StateChanges(SCHEMA, [key_group(key) for key in keys], keys, None, None, values)]


def write(world: World, *keys: str) -> None:
    assert world.job.run is not None
    base = world.job.run.state.base
    stamp_ms = max(world.job.clock.now_ms(), base.time_ms if base else 0)
    world.job.commit(StampedBatch(stamp_ms=stamp_ms, written=keys))


def stored(world: World, directory: Path) -> dict[str, Any]:
    """Key → stamped value that a restore of the newest commit finds."""
    view = ChainReader(world.store, world.reader.job_id).load_line(world.newest().link, KEY_GROUPS).view
    directory.mkdir()
    target = RestoreTarget(operator=OPERATOR, key_type=KEY_TYPE, low=0, high=KEY_GROUPS)
    state = restore(view, target, world.store, directory / "state")
    try:
        return {key: value for _, key, value in state.value_table(SCHEMA).items()}
    finally:
        state.close()


def later(world: World) -> tuple[str, ...]:
    """A key of every partition: a range without a log is not folded."""
    keys = [f"later {i}" for i in range(100)]
    return tuple(next(k for k in keys if low <= key_group(k) < high) for low, high in world.job.ranges)


@pytest.fixture
def world(tmp_path: Path) -> Any:
    made = World(tmp_path / "world")
    made.job.model = Model()
    yield made
    made.close()


def clock_of_another_machine(world: World, seconds: float) -> ManualClock:
    return ManualClock(world.job.clock.now_ms() + round(seconds * 1000))


@pytest.mark.parametrize("off_s", [TEN_MINUTES_S, -TEN_MINUTES_S])
def test_a_materializer_whose_clock_is_ten_minutes_off_expires_nothing_early(
    world: World, tmp_path: Path, off_s: float
) -> None:
    own: Any = world.job.clock
    first_ms = own.now_ms()
    write(world, "old", "a", "b")
    own.advance(TTL_MS / 1000 - 1)
    write(world, "a", "new")
    write(world)
    world.clock = clock_of_another_machine(world, off_s)
    sidecar = world.sidecar()
    sidecar.fold()
    write(world)
    assert world.job.adopted, "the snapshot is the base now"
    assert stored(world, tmp_path / "before") == {
        "old": (first_ms, 1), "b": (first_ms, 1), "a": (own.now_ms(), 1), "new": (own.now_ms(), 1),
    }  # fmt: skip
    renewed_ms = own.now_ms()
    own.advance(1)
    write(world, *later(world))
    write(world)
    sidecar.fold()
    write(world)
    found = stored(world, tmp_path / "after")
    assert {key: stamped for key, stamped in found.items() if key not in later(world)} == {
        "a": (renewed_ms, 1), "new": (renewed_ms, 1),
    }  # fmt: skip


def test_a_driver_whose_clock_is_behind_does_not_turn_time_back(world: World, tmp_path: Path) -> None:
    own: Any = world.job.clock
    write(world, "a")
    first_ms = own.now_ms()
    own.advance(-TEN_MINUTES_S)
    world.job.start()
    write(world, "b")
    write(world)
    world.sidecar().fold()
    write(world)
    assert stored(world, tmp_path / "stored") == {"a": (first_ms, 1), "b": (first_ms, 1)}
