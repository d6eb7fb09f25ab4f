"""Replay part by part of the key groups is a plain replay."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.jobs.state_model import (
    KEY_GROUPS,
    KEY_TYPE,
    OPERATOR,
    BatchChanges,
    batches,
    cells,
    key_group,
    link,
    segment_of,
)
from varvite.changelog.chain.tiles import KeyGroupFloor
from varvite.changelog.restore import part_replay
from varvite.changelog.restore.part_replay import replay_by_part
from varvite.changelog.segments import replay as replay_module
from varvite.changelog.segments.changes import StateChanges
from varvite.changelog.segments.replay import FlooredSegment, replay
from varvite.changelog.working_stores.rocksdb import columns as rocksdb_columns
from varvite.changelog.working_stores.rocksdb.settings.options import RocksDBOptions
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore

OPTIONS = RocksDBOptions(write_buffer_size_bytes=1 << 16)


def open_store(directory: Path, low: int, high: int) -> RocksDBStore:
    return RocksDBStore.open(directory, OPERATOR, KEY_TYPE, low, high, OPTIONS)


def rows_within(batch: BatchChanges, low: int, high: int) -> list[StateChanges]:
    return batch.rows(lambda key: key_group(key) in range(low, high))


@pytest.mark.long
@given(st.lists(batches, max_size=8), st.data())
@settings(max_examples=60)
def test_a_replay_by_part_is_a_replay(steps: list[BatchChanges], data: st.DataObject) -> None:
    """With any parts, base, floors and parallelism per batch, in any folds, whatever is held back, in any passes."""
    draw = data.draw
    edges = sorted({*draw(st.sets(st.integers(0, KEY_GROUPS), min_size=2))})
    low, high, parts = edges[0], edges[-1], [range(*pair) for pair in pairwise(edges)]
    done = draw(st.integers(0, len(steps)))
    cut = draw(st.integers(0, KEY_GROUPS))
    floors = (KeyGroupFloor(0, cut, done), KeyGroupFloor(cut, KEY_GROUPS, draw(st.integers(done, len(steps)))))
    log = [
        FlooredSegment(segment_of(piece, seq, a, b, part), floors)
        for seq, step in enumerate(steps, 1)
        for a, b in pairwise(sorted({0, KEY_GROUPS, *draw(st.sets(st.integers(1, KEY_GROUPS - 1), max_size=2))}))
        for part, piece in enumerate(step.split(draw(st.integers(1, 3))))
    ]
    sizes = st.sampled_from([1, 300, 1 << 20])
    with (
        tempfile.TemporaryDirectory() as scratch,
        mock.patch.object(rocksdb_columns, "ROWS_MIN", draw(st.sampled_from([1, 256]))),
        mock.patch.object(replay_module, "FOLD_BYTES", draw(sizes)),
        mock.patch.object(part_replay, "HELD_BYTES", draw(sizes)),
        mock.patch.object(part_replay, "LOG_BYTES_AT_ONCE", 10),
    ):
        stores = [open_store(Path(scratch) / name, low, high) for name in ("whole", "parts")]
        for store in stores:
            for seq, step in enumerate(steps[:done], 1):
                store.apply(rows_within(step, low, high), link(seq))
            store.flush()
        whole, by_part = stores
        expected = replay(whole, log, link(len(steps)), low=low, high=high)
        summary = replay_by_part(by_part, lambda *_: log, link(len(steps)), parts, draw(st.integers(0, 60)))
        assert summary.rows == expected.rows
        assert (cells(by_part), by_part.version) == (cells(whole), link(len(steps)))
        assert by_part.is_complete
        assert set(by_part.schemas) == set(whole.schemas)
        by_part.close()
        reopened = open_store(Path(scratch) / "parts", low, high)
        assert (cells(reopened), reopened.version) == (cells(whole), link(len(steps)))
        for store in (reopened, whole):
            store.close()
