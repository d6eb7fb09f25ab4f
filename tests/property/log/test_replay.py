"""Log, stores and snapshots against a model of plain dicts: random batches, splits, clips and rescalings."""

from __future__ import annotations

import shutil
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.jobs.state_model import (
    KEY_GROUPS,
    KEY_TYPE,
    OPERATOR,
    TOTAL,
    BatchChanges,
    Model,
    batches,
    cells,
    key_group,
    link,
    model_of,
    segment_header,
    segment_of,
)
from tests.jobs.strategies import any_types, hashable_types, typed_columns, values_of
from varvite.changelog.chain.tiles import KeyGroupFloor
from varvite.changelog.restore.clip import SnapshotSource, open_clipped
from varvite.changelog.segments import replay as replay_module
from varvite.changelog.segments.changes import StateChanges
from varvite.changelog.segments.replay import FlooredSegment, replay
from varvite.changelog.segments.segment import decode_segment, encode_segment
from varvite.changelog.working_stores.hashmap.store import HashMapStore
from varvite.changelog.working_stores.rocksdb import columns as rocksdb_columns
from varvite.changelog.working_stores.rocksdb.settings.options import RocksDBOptions
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.storage.format.records import ORIGIN, StateSchema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varvite.changelog.segments.segment import Segment

Range = tuple[int, int]
# Small, so that flushes, caches that overflow and several files happen.
SMALL = RocksDBOptions(write_buffer_size_bytes=1 << 16, target_file_size_bytes=1 << 16, recent_values_size_bytes=2000)
EVERYTHING = (KeyGroupFloor(0, KEY_GROUPS, 0),)

ranges = st.tuples(st.integers(0, KEY_GROUPS), st.integers(0, KEY_GROUPS)).filter(lambda r: r[0] < r[1])


def partitions(parallelism: int) -> list[Range]:
    """The key-group ranges of a parallelism."""
    edges = [i * KEY_GROUPS // parallelism for i in range(parallelism + 1)]
    return list(pairwise(edges))


def open_rocksdb(directory: Path, low: int = 0, high: int = KEY_GROUPS) -> RocksDBStore:
    return RocksDBStore.open(directory, OPERATOR, KEY_TYPE, low, high, SMALL)


def segments_of(batch: BatchChanges, seq: int, low: int, high: int, parts: int = 1) -> list[Segment]:
    """Log of a batch for the partition `[low, high)`, in parts."""
    own = batch.split(parts) if parts > 1 else [batch]
    return [segment_of(part, seq, low, high, i) for i, part in enumerate(own)]


@given(st.lists(batches, max_size=8), st.data())
@settings(max_examples=40)
def test_a_store_is_the_model_whatever_is_prepared_or_read_between(
    steps: list[BatchChanges], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        store = open_rocksdb(Path(scratch) / "db")
        model = Model()
        for seq, step in enumerate(steps, 1):
            prepared = data.draw(st.sampled_from([None, step, BatchChanges()]))
            rows = step.rows()
            if prepared is not None:
                store.prepare(rows if prepared is step else [], seq)
            if data.draw(st.booleans()):
                names = sorted({*model.totals, *step.totals})
                table = store.value_table(TOTAL)
                table.prefetch([key_group(name) for name in names], names)
                assert [table.get(key_group(n), n) for n in names] == [model.totals.get(n) for n in names]
            store.apply(rows, link(seq))
            model.apply(step)
            if data.draw(st.booleans()):
                store.close()
                store = open_rocksdb(Path(scratch) / "db")
        assert cells(store) == model.cells()
        store.close()


@given(st.lists(batches, max_size=8), st.data())
@settings(max_examples=60)
def test_replay_of_the_log_is_the_same_as_applying(steps: list[BatchChanges], data: st.DataObject) -> None:
    """With any parallelism per batch, any number of parts, any clip, any floors, by column or row, in any folds."""
    low, high = data.draw(ranges)
    edge = data.draw(st.integers(0, KEY_GROUPS))
    floors = [data.draw(st.integers(0, len(steps))) for _ in range(2)]
    cover = [KeyGroupFloor(0, edge, floors[0]), KeyGroupFloor(edge, KEY_GROUPS, floors[1])]
    log = [
        FlooredSegment(segment, cover)
        for seq, step in enumerate(steps, 1)
        for low_, high_ in partitions(data.draw(st.integers(1, 3)))
        for segment in segments_of(step, seq, low_, high_, data.draw(st.integers(1, 3)))
    ]
    expected = [
        model_of(*steps[floor:]).cells(*span) for floor, span in zip(floors, ((0, edge), (edge, 8)), strict=True)
    ]
    wanted = {
        name: {k: v for half in expected for k, v in half[name].items() if low <= key_group(k) < high}
        for name in expected[0]
    }
    rows_min, fold_bytes = data.draw(st.sampled_from([1, 256])), data.draw(st.sampled_from([1, 100, 4 << 20]))
    with (
        tempfile.TemporaryDirectory() as scratch,
        mock.patch.object(rocksdb_columns, "ROWS_MIN", rows_min),
        mock.patch.object(replay_module, "FOLD_BYTES", fold_bytes),
    ):
        own = open_rocksdb(Path(scratch) / "db", low, high)
        memory = HashMapStore(operator=OPERATOR, key_type=KEY_TYPE, low=low, high=high)
        for store in (own, memory):
            replay(store, log, link(len(steps)), low=low, high=high)
            assert cells(store) == wanted
            assert store.version == link(len(steps))
        own.close()


@given(st.lists(batches, min_size=1, max_size=9), st.data())
@settings(max_examples=15)
def test_rescaling_over_snapshots_and_log_is_the_model(steps: list[BatchChanges], data: st.DataObject) -> None:
    """2 → 3 → 1 partitions; in between batches, a snapshot of each partition at a commit of its own, and the log."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        stores = {span: open_rocksdb(root / f"0-{span[0]}", *span) for span in partitions(2)}
        cuts = sorted(data.draw(st.lists(st.integers(0, len(steps)), min_size=2, max_size=2)))
        done = 0
        for round_, (parallelism, end) in enumerate(zip((3, 1, 1), (*cuts, len(steps)), strict=True), 1):
            sources: list[SnapshotSource] = []
            log: list[FlooredSegment] = []
            for (low, high), store in stores.items():
                at = data.draw(st.integers(done, end))
                directory = root / f"snapshot-{round_}-{low}"
                if at == done:
                    store.write_snapshot(directory)
                for seq in range(done + 1, end + 1):
                    [segment] = segments_of(steps[seq - 1], seq, low, high)
                    store.apply(segment.changes(), link(seq))
                    if seq == at:
                        store.write_snapshot(directory)
                    log.append(FlooredSegment(segment, (KeyGroupFloor(low, high, at),)))
                sources.append(SnapshotSource(directory, low, high, ORIGIN if at == 0 else link(at)))
                store.close()
            done = end
            stores = _rescaled(root / f"at-{round_}", sources, log, parallelism, done)
            model = model_of(*steps[:done])
            for span, store in stores.items():
                assert cells(store) == model.cells(*span)
                assert store.is_complete
        for store in stores.values():
            store.close()


def _rescaled(
    root: Path, sources: Sequence[SnapshotSource], log: Sequence[FlooredSegment], parallelism: int, seq: int
) -> dict[Range, RocksDBStore]:
    """Stores of a new parallelism from the snapshots and the log of the old one."""
    stores: dict[Range, RocksDBStore] = {}
    for low, high in partitions(parallelism):
        root.mkdir(exist_ok=True)
        own: list[SnapshotSource] = []
        for source in sources:
            if source.low < high and low < source.high and source.directory is not None:
                copied = root / f"fetched-{low}-{source.low}"
                shutil.copytree(source.directory, copied)
                own.append(source._replace(directory=copied))
        store = open_clipped(
            root / f"db-{low}", own, operator=OPERATOR, key_type=KEY_TYPE, low=low, high=high, options=SMALL
        )
        if seq:
            replay(store, log, link(seq), low=low, high=high)
        stores[low, high] = store
    return stores


@given(st.lists(batches, max_size=5))
@settings(max_examples=30)
def test_a_snapshot_goes_from_either_store_to_the_other(steps: list[BatchChanges]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        own = open_rocksdb(root / "db")
        memory = HashMapStore(operator=OPERATOR, key_type=KEY_TYPE, low=0, high=KEY_GROUPS)
        half = len(steps) // 2
        for seq, step in enumerate(steps[:half], 1):
            own.apply(step.rows(), link(seq))
            memory.apply(step.rows(), link(seq))
        own.write_snapshot(root / "from-rocksdb")
        memory.write_snapshot(root / "from-memory")
        loaded = HashMapStore(operator=OPERATOR, key_type=KEY_TYPE, low=0, high=KEY_GROUPS)
        source = RocksDBStore.open_existing(root / "from-rocksdb", SMALL, read_only=True)
        loaded.load_later(source, lambda: None)
        opened = RocksDBStore.open(root / "from-memory", OPERATOR, KEY_TYPE, 0, KEY_GROUPS, SMALL)
        for seq, step in enumerate(steps[half:], half + 1):
            loaded.apply(step.rows(), link(seq))
            opened.apply(step.rows(), link(seq))
        assert cells(loaded) == cells(opened) == model_of(*steps).cells()
        for store in (own, source, opened):
            store.close()


@given(typed_columns(any_types()), typed_columns(hashable_types()), st.sampled_from(["value", "map", "list"]))
@settings(max_examples=150)
def test_segments_carry_every_type(value: tuple[Any, list[Any]], key: tuple[Any, list[Any]], kind: str) -> None:
    value_type, values = value
    key_type, keys = key
    stored = [None if v is None else value_type.freeze(v) for v in values if v is not None or kind == "map"]
    frozen = [key_type.freeze(k) for k in keys if k is not None]
    rows = min(len(stored), len(frozen))
    schema = StateSchema(
        name="s",
        kind=kind,
        value_type=value_type.type_string(),
        map_key_type=key_type.type_string() if kind == "map" else None,
    )
    change = StateChanges(
        schema, [i % KEY_GROUPS for i in range(rows)], frozen[:rows], None, frozen[:rows] if kind == "map" else None,
        stored[:rows],
    )  # fmt: skip
    header = segment_header(1, key_type=key_type.type_string())
    data = encode_segment(header, [change])
    assert decode_segment(data, "s").changes() == [change]
    assert encode_segment(header, decode_segment(data, "s").changes()) == data


@given(
    typed_columns(any_types()),
    hashable_types().flatmap(lambda t: st.tuples(st.just(t), st.lists(values_of(t), max_size=6))),
)
@settings(max_examples=60)
def test_rocksdb_keeps_every_type(value: tuple[Any, list[Any]], key: tuple[Any, list[Any]]) -> None:
    value_type, values = value
    key_type, keys = key
    stored = [value_type.freeze(v) for v in values if v is not None]
    by_key = dict(zip([key_type.freeze(k) for k in keys], stored, strict=False))
    value_schema = StateSchema(name="v", kind="value", value_type=value_type.type_string())
    map_schema = StateSchema(
        name="m", kind="map", value_type=value_type.type_string(), map_key_type=key_type.type_string()
    )
    groups, frozen, cells_ = [0] * len(by_key), list(by_key), list(by_key.values())
    changes = [
        StateChanges(value_schema, groups, frozen, None, None, cells_),
        StateChanges(map_schema, groups, frozen, None, frozen, cells_),
    ]
    with tempfile.TemporaryDirectory() as scratch:
        for _ in range(2):
            store = RocksDBStore.open(Path(scratch) / "db", OPERATOR, key_type.type_string(), 0, 1, SMALL)
            if store.version == ORIGIN:
                store.apply(changes, link(1))
            assert {k: v for _, k, v in store.value_table(value_schema).items()} == by_key
            assert [store.value_table(value_schema).get(0, k) for k in by_key] == list(by_key.values())
            assert {(k, m): v for _, k, m, v in store.map_table(map_schema).items()} == {
                (k, k): by_key[k] for k in by_key
            }
            store.close()
