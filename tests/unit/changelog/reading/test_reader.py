"""`open_state` over jobs without Spark: what it reads is what the job's model holds, under a pin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.jobs.committing_job import NumberedTokens
from tests.jobs.materializer_world import World
from tests.jobs.started_job import TOKENS, Started, canonical, native
from tests.jobs.state_model import KEY_GROUPS, OPERATOR, BatchChanges, key_group
from varvite import open_state
from varvite.changelog.reading.reader import StateReader
from varvite.changelog.retention.collector import Collector
from varvite.materializer.restore.origin import StateOrigin
from varvite.storage.errors import DidNotHappenError, InvalidRequestError, MissingObjectError
from varvite.storage.format import layout
from varvite.storage.object_stores.local.store import LocalStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Seven batches, folded after the fourth, so that there are tiles and a log."""
    world = World(tmp_path / "local", LocalStore(str(tmp_path / "storage")), parallelism=3)
    (tmp_path / "local").mkdir(exist_ok=True)
    world.commit(4)
    world.sidecar().fold()
    world.commit(3)
    yield world
    world.close()


def read(reader: StateReader, key_groups: range | None = None) -> dict[str, dict[str, Any]]:
    """The tables in the form of `Model.cells`."""
    found: dict[str, dict[str, Any]] = {"total": {}, "by_name": {}, "events": {}, "alarms": {}}
    tables: dict[str, Any] = {name: reader.to_arrow(OPERATOR, name, key_groups) for name in found}
    for row in tables["total"].to_pylist():
        found["total"][row["key"]] = row["value"]
    for row in tables["by_name"].to_pylist():
        found["by_name"].setdefault(row["key"], {})[row["map_key"]] = row["value"]
    for row in tables["events"].to_pylist():
        elements = found["events"].setdefault(row["key"], [])
        assert row["position"] == len(elements)
        elements.append(row["value"])
    for row in tables["alarms"].to_pylist():
        found["alarms"].setdefault(row["key"], set()).add((row["time_ms"], row["namespace"]))
    for table in tables.values():
        for row in table.to_pylist():
            assert row["key_group"] == key_group(row["key"])
    return found


def pins(world: World) -> list[str]:
    return world.names(layout.PINS)


def test_the_tables_hold_the_state_of_the_newest_checkpoint(world: World, tmp_path: Path) -> None:
    assert StateReader(world.store).view.tiles[0].snapshot
    reader = open_state(str(tmp_path / "storage"), "job")
    assert reader.checkpoint == world.newest()
    assert reader.operators == (OPERATOR,)
    assert [state.name for state in reader.states()] == ["total", "by_name", "events", "alarms"]
    assert read(reader) == world.job.model.cells()
    assert reader.to_arrow(OPERATOR, "total").schema == pa.schema(
        [("key_group", pa.int32()), ("key", pa.string()), ("value", pa.int64())]
    )
    assert pins(world) == []


def test_an_older_checkpoint_is_read_by_seq_or_batch_and_key_groups_are_chosen(world: World, tmp_path: Path) -> None:
    parent = world.newest().parent
    wanted = world.job.models[parent].cells()
    commit = world.reader.read_commit(parent).commit
    for name in (commit.seq, str(commit.seq), f"batch:{commit.batch}"):
        assert read(open_state(str(tmp_path / "storage"), "job", name)) == wanted
    assert read(StateReader(world.store, commit.seq), range(2, 5)) == world.job.models[parent].cells(2, 5)


def test_a_batch_that_was_executed_again_is_never_read(world: World) -> None:
    given_up = world.newest()
    world.job.start(redo=True)
    world.job.commit(BatchChanges(totals={"a": 77}))
    assert read(StateReader(world.store, f"batch:{given_up.batch}"))["total"]["a"] == 77
    with pytest.raises(InvalidRequestError, match=f"no checkpoint {given_up.seq}"):
        StateReader(world.store, given_up.seq)


def test_a_reader_as_context_keeps_its_checkpoint_while_the_job_goes_on(world: World) -> None:
    wanted = world.job.models[world.newest().link].cells()
    with StateReader(world.store) as reader:
        for _ in range(3):
            world.commit(3)
            world.sidecar(place=f"work-{world.newest().seq}").fold()
        assert len(pins(world)) == 1
        assert read(reader) == wanted
        # A reader in another process, which has no pin of its own, is kept by this one.
        assert read(StateReader(world.store, reader.checkpoint.seq)) == wanted
    assert pins(world) == []


def test_a_checkpoint_that_is_not_retained_any_more_is_an_error(world: World) -> None:
    reader = StateReader(world.store)
    world.commit(3)
    world.sidecar(place="later").fold()
    world.commit(3)
    with pytest.raises(DidNotHappenError, match="not retained any more"):
        reader.to_arrow(OPERATOR, "total")
    assert pins(world) == []


def _go_on(world: World) -> None:
    """Nothing of what there is now is retained, and what no pin keeps is collected."""
    for place in ("once", "twice"):
        world.commit(3, upload=True)
        world.sidecar(place=place).fold()
    world.commit(3)
    Collector(world.reader, world.clock, NumberedTokens("collector")).collect()


def test_a_checkpoint_that_is_collected_while_it_is_read_without_a_pin_is_no_damage(world: World) -> None:
    """The error said that an object was missing, and to restore it."""
    world.commit(3, upload=True)
    one, other = (StateReader(world.store, pin=False) for _ in range(2))
    started = one.ranges()
    next(started)
    _go_on(world)
    for reading in (lambda: list(started), lambda: read(other), other.operator_states, other.split):
        with pytest.raises(DidNotHappenError, match="is not retained any more"):
            reading()


def test_nor_is_one_that_only_another_reader_kept(world: World) -> None:
    with StateReader(world.store) as keeping:
        _go_on(world)
        started = StateReader(world.store, keeping.checkpoint.seq).ranges()
        next(started)
    Collector(world.reader, world.clock, NumberedTokens("later")).collect()
    with pytest.raises(DidNotHappenError, match="is not retained any more"):
        list(started)


def test_an_object_that_is_missing_of_a_retained_checkpoint_is_damage(world: World) -> None:
    world.commit(1, upload=True)
    world.store.delete(world.names(layout.SEGMENTS)[-1:])
    for pin in (True, False):
        with pytest.raises(MissingObjectError):
            StateReader(world.store, pin=pin).to_arrow(OPERATOR, "total")


def test_without_a_pin_nothing_is_written(world: World, tmp_path: Path) -> None:
    reader = open_state(str(tmp_path / "storage"), "job", pin=False)
    for _ in reader.batches(OPERATOR, "total"):
        assert pins(world) == []
    with StateReader(world.store) as pinned:
        next(pinned.batches(OPERATOR, "total"))
        assert len(pins(world)) == 1


def test_key_groups_are_split_at_tiles_and_where_there_are_none_at_partitions(tmp_path: Path, world: World) -> None:
    assert StateReader(world.store).split() == (range(3), range(3, 6), range(6, 8))
    assert StateReader(world.store).split(None, range(4, 7)) == (range(4, 6), range(6, 7))
    fresh = World(tmp_path / "fresh", parallelism=2)
    fresh.commit(2)
    reader = StateReader(fresh.store)
    assert [(tile.low, tile.high) for tile in reader.view.tiles] == [(0, 8)]
    assert reader.split() == (range(4), range(4, 8))
    assert read(reader) == fresh.job.model.cells()
    fresh.close()


def test_what_is_not_there_is_said(world: World, tmp_path: Path) -> None:
    reader = StateReader(world.store)
    for wrong, message in (
        (lambda: reader.to_arrow(OPERATOR, "nothing"), "no state 'nothing' in operator 'flights'; it has 'total'"),
        (lambda: reader.to_arrow("nobody", "total"), "no operator 'nobody'"),
        (reader.to_arrow, "not just one state: name it"),
        (lambda: reader.to_arrow(OPERATOR, "total", range(3, KEY_GROUPS + 1)), "are no key groups"),
        (lambda: open_state(str(tmp_path / "storage"), "nobody"), "no job 'nobody'"),
        (lambda: StateReader(world.store, "yesterday"), "is no checkpoint"),
        (lambda: StateReader(world.store, 99), "there is no checkpoint 99"),
    ):
        with pytest.raises(InvalidRequestError, match=message):
            wrong()


def test_a_job_without_a_checkpoint_is_an_error(tmp_path: Path) -> None:
    world = World(tmp_path)
    with pytest.raises(InvalidRequestError, match="no checkpoint yet"):
        StateReader(world.store)
    world.close()


@pytest.mark.parametrize("clone", [False, True])
def test_another_job_s_state_can_be_read_where_it_was_begun(world: World, clone: bool) -> None:
    """Also through the objects that a clone shares."""
    other = Started(world, StateOrigin("there", world.store, world.newest(), None), clone=clone)
    assert read(StateReader(other.store)) == read(StateReader(world.store))


def test_a_savepoint_can_be_read_when_its_checkpoint_is_gone(world: World) -> None:
    before = read(StateReader(world.store))
    native(world)
    for _ in range(3):
        world.commit(3)
        world.sidecar().fold()
    world.commit(3)
    Collector(world.reader, world.clock, TOKENS).collect()
    assert read(StateReader(world.store, "savepoint:before")) == before != read(StateReader(world.store))
    assert pins(world) == []
    canonical(world, name="files")
    with pytest.raises(InvalidRequestError, match="Parquet"):
        StateReader(world.store, "savepoint:files")
    with pytest.raises(InvalidRequestError, match="no savepoint 'missing'"):
        StateReader(world.store, "savepoint:missing")
