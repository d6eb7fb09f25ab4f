"""Replay and the reading of segments for it."""

from __future__ import annotations

import random
import re
import threading
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from tests.jobs.committing_job import CommittingJob
from tests.jobs.state_model import (
    ALARMS,
    KEY_GROUPS,
    KEY_TYPE,
    OPERATOR,
    TOTAL,
    BatchChanges,
    Model,
    cells,
    key_group,
    link,
    puts,
    segment_header,
    segment_of,
)
from tests.stores.manual_clock import ManualClock
from varvite.changelog.chain.tiles import KeyGroupFloor
from varvite.changelog.chain.view import ReplaySegment
from varvite.changelog.restore import restore as restore_module
from varvite.changelog.restore.restore import FILES_EXTRA, RestoreTarget, restore
from varvite.changelog.segments import replay as replay_module
from varvite.changelog.segments.changes import StateChanges
from varvite.changelog.segments.replay import FlooredSegment, accepted_key_groups, replay
from varvite.changelog.segments.segment import decode_segment, encode_segment
from varvite.changelog.segments.source import SegmentSource
from varvite.changelog.types.factory import Types, as_type
from varvite.changelog.working_stores.hashmap.store import HashMapStore
from varvite.changelog.working_stores.rocksdb import columns as rocksdb_columns
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.changelog.working_stores.timer_form import TimerForm
from varvite.storage.errors import CorruptDataError, IncompatibleError, InvariantError, MissingObjectError
from varvite.storage.format.records import ObjectSlice, SegmentRef, StateSchema
from varvite.storage.object_stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from varvite.changelog.segments.batch import Batch
    from varvite.storage.format.records import Link

Folding = HashMapStore | RocksDBStore
EVERYTHING = (KeyGroupFloor(0, KEY_GROUPS, 0),)
EVENT = BatchChanges(events={"a": (False, [str(i) for i in range(6)])}, totals={"a": 1})


@pytest.fixture(params=["hashmap", "rocksdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Folding]:
    made: Folding = (
        HashMapStore(operator=OPERATOR, key_type=KEY_TYPE, low=0, high=KEY_GROUPS)
        if request.param == "hashmap"
        else RocksDBStore.open(tmp_path / "db", OPERATOR, KEY_TYPE, 0, KEY_GROUPS)
    )
    yield made
    made.close()


def test_segments_lead_to_the_version(store: Folding) -> None:
    model = Model()
    steps = [EVENT, BatchChanges(totals={"a": 2, "b": 3}), EVENT]
    for step in steps:
        model.apply(step)
    summary = replay(
        store, [FlooredSegment(segment_of(s, i), EVERYTHING) for i, s in enumerate(steps, 1)], link(3), low=0, high=8
    )
    assert (cells(store), store.version) == (model.cells(), link(3))
    assert summary == (3, 7 + 2 + 7)


@pytest.mark.parametrize("ddl", ["n bigint, name string", "inner struct<n: bigint>, tags array<string>"])
def test_a_store_in_use_that_catches_up_gives_rows_as_before(store: Folding, ddl: str) -> None:
    """Replay hands RocksDB plain tuples in place of rows, which must not come to its memory of recent values."""
    kind = as_type(ddl)
    schema = StateSchema(name="row", kind="value", value_type=kind.type_string())
    first, second = [
        kind.freeze(value) for value in ([(1, "x"), (2, None)] if "name" in ddl else [((1,), ["a"]), ((2,), [])])
    ]
    group = key_group("a")
    groups, keys = [group, group], ["a", "b"]
    changes = [StateChanges(schema, groups, keys, None, None, [value, value]) for value in (first, second)]
    store.apply([changes[0]], link(1))
    table = store.value_table(schema)
    assert table.get(group, "a") == first
    data = encode_segment(segment_header(2, 0, KEY_GROUPS), [changes[1]])
    replay(store, [FlooredSegment(decode_segment(data, "seg/2"), EVERYTHING)], link(2), low=0, high=KEY_GROUPS)
    for found in (table.get(group, "a"), *store.value_table(schema).get_many(groups, keys)):
        assert (found, type(found)) == (second, type(second))


@pytest.mark.parametrize("rows_min", [1, 256])
def test_a_store_in_use_that_catches_up_finds_timers_before_those_that_it_has_seen(
    store: Folding, rows_min: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table knows below which bound it has no timers; a replay by column must not leave it there."""
    monkeypatch.setattr(rocksdb_columns, "ROWS_MIN", rows_min)
    store.apply(BatchChanges(alarms={("a", 9, None): True}).rows(), link(1))
    table = store.timer_table(ALARMS)
    assert len(list(table.due(10))) == 1
    log = [segment_of(BatchChanges(alarms={("a", 4, None): True, ("a", 5, "x"): True, ("a", 9, None): False}), 2)]
    replay(store, [FlooredSegment(one, EVERYTHING) for one in log], link(2), low=0, high=KEY_GROUPS)
    form = TimerForm(as_type(Types.STRING()), as_type(Types.STRING()))
    found = [form.unpack(packed) for packed, _ in store.timer_table(ALARMS).due(10)]
    assert found == [(4, "a", None), (5, "a", "x")]


def test_an_empty_log_leads_to_the_version(store: Folding) -> None:
    assert replay(store, [], link(9), low=0, high=8) == (0, 0)
    assert store.version == link(9)


def test_a_segment_at_the_floor_does_not_count_and_one_above_does(store: Folding) -> None:
    group = key_group("a")
    floors = (KeyGroupFloor(0, group, 9), KeyGroupFloor(group, group + 1, 4), KeyGroupFloor(group + 1, 8, 9))
    steps = [
        (seq, BatchChanges(totals={"a": seq, "b": seq}, events={"a": (False, [str(seq)])})) for seq in (3, 4, 5, 6)
    ]
    replay(store, [FlooredSegment(segment_of(s, seq), floors) for seq, s in steps], link(9), low=0, high=8)
    assert key_group("b") != group
    assert cells(store) == {"total": {"a": 6}, "by_name": {}, "events": {"a": ["5", "6"]}, "alarms": {}}


def test_key_groups_of_others_do_not_count(tmp_path: Path) -> None:
    batch = BatchChanges(totals={f"N{i}": i for i in range(40)})
    model = Model()
    model.apply(batch)
    own = RocksDBStore.open(tmp_path / "db", OPERATOR, KEY_TYPE, 2, 5)
    replay(own, [FlooredSegment(segment_of(batch, 1), EVERYTHING)], link(1), low=2, high=5)
    assert cells(own) == model.cells(2, 5)
    own.close()


@pytest.mark.parametrize("fold_rows", [1, 4, 100_000])
def test_parts_of_a_batch_keep_their_elements_even_if_others_come_between(
    store: Folding, fold_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of another partition may stand between two parts, and a write may fall there."""
    monkeypatch.setattr(replay_module, "FOLD_ROWS", fold_rows)
    whole = BatchChanges(events={key: (False, [f"{key}{i}" for i in range(6)]) for key in ("a", "b", "N1", "N2")})
    other = BatchChanges(events={key: (False, [f"{key}-other"]) for key in ("a", "b", "N1", "N2")})
    first, second = whole.split(2)
    wanted = [
        segment_of(first, 5, 0, 4), segment_of(whole, 5, 4, 8), segment_of(other, 6, 4, 8),
        segment_of(second, 5, 0, 4, part=1), segment_of(other, 6, 0, 4),
    ]  # fmt: skip
    replay(store, [FlooredSegment(s, EVERYTHING) for s in wanted], link(6), low=0, high=8)
    model = Model()
    model.apply(whole)
    model.apply(other)
    assert cells(store) == model.cells()


def test_large_values_are_written_before_there_are_many(store: Folding, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of megabytes would be in memory at once, if only rows were counted."""
    monkeypatch.setattr(replay_module, "FOLD_BYTES", 1_000)
    folds: list[int] = []
    fold = type(store).fold

    def counting(self: Folding, batches: Sequence[Batch], version: Link, *, last: bool) -> None:
        folds.append(len(batches))
        fold(self, batches, version, last=last)

    monkeypatch.setattr(type(store), "fold", counting)
    rng = random.Random(1)
    log = [BatchChanges(events={"a": (False, [rng.randbytes(300).hex()])}) for _ in range(10)]
    replay(store, [FlooredSegment(segment_of(b, n), EVERYTHING) for n, b in enumerate(log, 1)], link(10), low=0, high=8)
    assert sum(folds) == len(log)
    assert max(folds) <= 4
    assert [value for b in log for value in b.events["a"][1]] == cells(store)["events"]["a"]


def failing_log() -> Iterator[FlooredSegment]:
    yield FlooredSegment(segment_of(EVENT, 1), EVERYTHING)
    raise MissingObjectError("gone", object_name="seg/2")


def test_a_replay_that_fails_leaves_a_store_that_cannot_be_taken_for_whole(
    store: Folding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_module, "FOLD_ROWS", 1)
    with pytest.raises(MissingObjectError):
        replay(store, failing_log(), link(2), low=0, high=8)
    with pytest.raises(InvariantError):
        _ = store.version
    store.close()
    if isinstance(store, RocksDBStore):
        with pytest.raises(IncompatibleError):
            RocksDBStore.open(tmp_path / "db", OPERATOR, KEY_TYPE, 0, KEY_GROUPS)


@pytest.mark.parametrize(
    ("floors", "own", "expected"),
    [
        ([(0, 8, 0)], (0, 8), {2, 3, 4, 5}),
        ([(0, 8, 6)], (0, 8), {2, 3, 4, 5}),
        ([(0, 8, 7)], (0, 8), set()),
        ([(0, 3, 0), (3, 8, 7)], (0, 8), {2}),
        ([(0, 3, 7), (3, 8, 6)], (0, 8), {3, 4, 5}),
        ([(0, 8, 0)], (4, 8), {4, 5}),
        ([(0, 8, 0)], (6, 8), set()),
        ([], (0, 8), set()),
    ],
)
def test_what_counts_of_a_segment(floors: list[tuple[int, int, int]], own: tuple[int, int], expected: set[int]) -> None:
    header = segment_header(7, 2, 6)
    assert accepted_key_groups(header, [KeyGroupFloor(*floor) for floor in floors], range(*own)) == expected


class Log:
    """Segments in a store, with what refers to them."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.refs: list[ReplaySegment] = []

    def put(self, name: str, data: bytes, seqs: tuple[int, int], padding: int = 0, **changed: Any) -> None:
        self.store.put(name, b"\0" * padding + data)
        known = {"name": name, "offset": padding, "length": len(data), "crc32": zlib.crc32(data)}
        place = ObjectSlice(**{**known, **{k: v for k, v in changed.items() if k in known}})
        span = {"operator": OPERATOR, "low": 0, "high": KEY_GROUPS, "seq_first": seqs[0], "seq_last": seqs[1]}
        ref = SegmentRef(**{**span, **{k: v for k, v in changed.items() if k in span}}, data=place)  # type: ignore[arg-type]
        self.refs.append(ReplaySegment(ref, EVERYTHING))


def encoded(seq: int, low: int = 0, high: int = KEY_GROUPS) -> bytes:
    return encode_segment(segment_header(seq, low, high), puts({"a": seq}) if low <= key_group("a") < high else [])


def seqs_of(found: Sequence[FlooredSegment]) -> list[int]:
    return [floored.segment.header.seq for floored in found]


@pytest.mark.parametrize(("threads", "bytes_ahead"), [(1, 1), (4, 1), (4, 1 << 20), (8, 2000)])
def test_segments_come_in_order_however_they_are_read(threads: int, bytes_ahead: int) -> None:
    log = Log()
    for seq in range(1, 30):
        log.put(f"chain/{seq}", encoded(seq), (seq, seq), padding=seq)
    log.put("pack/30", b"".join(encoded(seq) for seq in range(30, 40)), (30, 39), padding=5)
    found = list(SegmentSource(log.store, threads, bytes_ahead).read(log.refs))
    assert seqs_of(found) == list(range(1, 40))
    assert all(floored.floors == EVERYTHING for floored in found)


def test_neighbours_in_one_object_are_one_read_and_reads_overlap() -> None:
    log = Log()
    parts = [encoded(seq) for seq in range(1, 6)]
    log.store.put("pack/9", b"".join(parts))
    offset = 0
    for seq, part in enumerate(parts, 1):
        place = ObjectSlice("pack/9", offset, len(part), zlib.crc32(part))
        log.refs.append(ReplaySegment(SegmentRef(OPERATOR, 0, 8, seq, seq, place), EVERYTHING))
        offset += len(part)
    log.put("chain/6", encoded(6), (6, 6))
    reads: list[str] = []
    together = threading.Barrier(2, timeout=20)

    class Watched(MemoryStore):
        def get_range(self, name: str, offset: int, length: int) -> bytes:
            reads.append(name)
            together.wait()
            return log.store.get_range(name, offset, length)

    assert seqs_of(list(SegmentSource(Watched()).read(log.refs))) == [1, 2, 3, 4, 5, 6]
    assert sorted(reads) == ["chain/6", "pack/9"]


def test_the_next_read_runs_while_a_segment_is_replayed_however_large_it_is() -> None:
    """Found in a profile: of segments above half of the limit none was read ahead, so each replay waited for each."""
    log = Log()
    for seq in (1, 2, 3):
        log.put(f"chain/{seq}", encoded(seq), (seq, seq))
    is_read = threading.Event()

    class Watched(MemoryStore):
        def get_range(self, name: str, offset: int, length: int) -> bytes:
            if name == "chain/2":
                is_read.set()
            return log.store.get_range(name, offset, length)

    segments = SegmentSource(Watched(), bytes_ahead_max=1).read(log.refs)
    assert seqs_of([next(segments)]) == [1]
    assert is_read.wait(20), "nobody has asked for the second segment yet"
    assert seqs_of(list(segments)) == [2, 3]


@pytest.mark.parametrize("is_long", [True, False])
def test_compaction_gives_way_to_the_replay_of_a_long_log_and_goes_on_after_it(
    is_long: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore_module, "LONG_LOG_BYTES", 1 if is_long else 1 << 30)
    job = CommittingJob(MemoryStore(), ManualClock())
    job.start()
    for step in (EVENT, BatchChanges(totals={"b": 2})):
        job.commit(step)
    assert job.run is not None
    view, target = job.run.state.view, RestoreTarget(OPERATOR, KEY_TYPE, 0, KEY_GROUPS)
    restored = restore(view, target, job.store, tmp_path / "db")
    assert cells(restored) == job.model.cells()
    restored.close()
    job.close()
    found = [
        re.search(r"level0_file_num_compaction_trigger=(\d+)", path.read_text())
        for path in sorted((tmp_path / "db").glob("OPTIONS-*"))
    ]
    after_it_was_opened = [int(each[1]) for each in found if each and int(each[1]) < 1_000]
    assert after_it_was_opened == ([4 + FILES_EXTRA, 4] if is_long else [4])


def test_a_missing_object_is_named() -> None:
    log = Log()
    for seq in (1, 2, 3):
        log.put(f"chain/{seq}", encoded(seq), (seq, seq))
    log.store.delete(["chain/2"])
    with pytest.raises(MissingObjectError) as caught:
        list(SegmentSource(log.store).read(log.refs))
    assert caught.value.context["object_name"] == "chain/2"


@pytest.mark.parametrize(
    "changed",
    [
        {"crc32": 1}, {"length": 10}, {"offset": 1}, {"operator": "other"}, {"low": 1}, {"high": 7},
        {"seq_first": 6}, {"seq_last": 4},
    ],
)  # fmt: skip
def test_a_slice_that_is_not_what_the_reference_says_is_named(changed: dict[str, Any]) -> None:
    log = Log()
    log.put("seg/5", encoded(5), (5, 5), **changed)
    with pytest.raises(CorruptDataError) as caught:
        list(SegmentSource(log.store).read(log.refs))
    assert caught.value.context["object_name"] == "seg/5"


def test_reading_stops_when_the_replay_stops() -> None:
    log = Log()
    for seq in range(1, 20):
        log.put(f"chain/{seq}", encoded(seq), (seq, seq))
    before = threading.active_count()
    reader = SegmentSource(log.store).read(log.refs)
    assert next(reader).segment.header.seq == 1
    reader.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_a_segment_without_a_state_of_the_model_is_no_problem(store: Folding) -> None:
    log = Log()
    log.put("chain/1", encode_segment(segment_header(1), []), (1, 1))
    assert replay(store, SegmentSource(log.store).read(log.refs), link(1), low=0, high=8) == (0, 0)
    assert store.value_table(TOTAL).get(0, "a") is None
