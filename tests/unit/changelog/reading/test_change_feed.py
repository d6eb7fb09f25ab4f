"""The change feed of a job without Spark: replaying it by hand over what the base holds gives the state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.jobs.materializer_world import World
from tests.jobs.state_model import GONE, OPERATOR, BatchChanges, key_group
from varvite.changelog.reading.change_feed import ChangeFeed, SeqRange
from varvite.changelog.reading.reader import StateReader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def feed(reader: StateReader, state: str, key_groups: range | None = None, **seqs: int) -> list[dict[str, Any]]:
    batches = ChangeFeed(reader, OPERATOR, state).batches(key_groups, SeqRange(**seqs))
    return [row for batch in batches for row in batch.to_pylist()]


FIRST = BatchChanges(
    totals={"a": 1},
    by_name={"a": (False, {"x": 1})},
    events={"a": (False, ["one"])},
    alarms={("a", 1, "x"): True},
)
SECOND = BatchChanges(
    totals={"a": GONE},
    by_name={"a": (True, {"x": None, "y": GONE})},
    events={"a": (True, ["two"])},
    alarms={("a", 1, "x"): False},
)


def test_every_kind_of_change_is_told_in_order(world: World) -> None:
    commits = [world.job.commit(changes) for changes in (FIRST, SECOND)]
    reader = StateReader(world.store)
    found = {state: feed(reader, state) for state in ("total", "by_name", "events", "alarms")}
    for state, rows in found.items():
        for row in rows:
            assert (row.pop("operator"), row.pop("state"), row.pop("key")) == (OPERATOR, state, "a")
            assert row.pop("key_group") == key_group("a")
            assert row.pop("seq") == commits[row.pop("batch")].seq
    assert found["total"] == [{"op": "put", "value": 1}, {"op": "delete", "value": None}]
    assert found["by_name"] == [
        {"op": "put", "map_key": "x", "value": 1},
        {"op": "clear", "map_key": None, "value": None},
        {"op": "put", "map_key": "x", "value": None},
        {"op": "delete", "map_key": "y", "value": None},
    ]
    assert found["events"] == [
        {"op": "append", "value": "one"}, {"op": "clear", "value": None}, {"op": "append", "value": "two"},
    ]  # fmt: skip
    assert found["alarms"] == [
        {"op": "put", "namespace": "x", "time_ms": 1}, {"op": "delete", "namespace": "x", "time_ms": 1},
    ]  # fmt: skip


def test_the_feed_leads_from_the_base_to_the_state(world: World) -> None:
    """The feed is the same with any packs and any tiles."""
    world.commit(4)
    world.sidecar().fold()
    world.commit(9)
    reader = StateReader(world.store)
    base = max(tile.at.seq for tile in reader.view.tiles)
    assert 0 < base < reader.checkpoint.seq
    start = next(model for link, model in world.job.models.items() if link.seq == base)
    totals = dict(start.cells()["total"])
    rows = feed(reader, "total")
    for row in rows:
        if row["op"] == "put":
            totals[row["key"]] = row["value"]
        else:
            totals.pop(row["key"], None)
    assert totals == world.job.model.cells()["total"]
    assert {row["seq"] for row in rows} <= set(range(base + 1, reader.checkpoint.seq + 1))
    numbers = {link.seq: i for i, link in enumerate(world.job.models)}
    assert {row["batch"] - numbers[row["seq"]] for row in rows if row["batch"] is not None} == {0}


def test_key_groups_and_seqs_are_chosen(world: World) -> None:
    world.commit(6)
    reader = StateReader(world.store)
    rows = feed(reader, "total")
    assert feed(reader, "total", range(2, 4)) == [row for row in rows if row["key_group"] in range(2, 4)]
    assert feed(reader, "total", low=3, high=5) == [row for row in rows if 3 <= row["seq"] < 5]
    assert feed(reader, "total", low=99) == []


def test_a_batch_that_was_executed_again_is_there_once(world: World) -> None:
    world.job.commit(FIRST)
    world.job.commit(BatchChanges(totals={"a": 5}))
    world.job.start(redo=True)
    world.job.commit(BatchChanges(totals={"a": 6}))
    assert [(row["batch"], row["value"]) for row in feed(StateReader(world.store), "total")] == [(0, 1), (1, 6)]
