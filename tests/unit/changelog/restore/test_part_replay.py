"""Replay part by part of the key groups, compared with plain replay."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from tests.jobs.state_model import (
    KEY_GROUPS,
    KEY_TYPE,
    OPERATOR,
    BatchChanges,
    cells,
    key_group,
    link,
    model_of,
    segment_with,
)
from varvite.changelog.chain.tiles import KeyGroupFloor
from varvite.changelog.restore import part_replay
from varvite.changelog.restore.part_replay import replay_by_part
from varvite.changelog.segments.changes import StateChanges
from varvite.changelog.segments.replay import FlooredSegment, replay
from varvite.changelog.types.factory import Types, as_type
from varvite.changelog.working_stores.rocksdb.database import Database
from varvite.changelog.working_stores.rocksdb.settings.options import RocksDBOptions
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.storage.errors import CorruptDataError, IncompatibleError, MissingObjectError
from varvite.storage.format.records import StateSchema, ValueVersion

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from varvite.changelog.segments.batch import Batch
    from varvite.storage.format.records import Link

# Nothing is compacted, so that the files show what was flushed.
OPTIONS = RocksDBOptions(write_buffer_size_bytes=1 << 16, level0_files_extra=1_000)
EVERYTHING = (KeyGroupFloor(0, KEY_GROUPS, 0),)
QUARTERS = (range(2), range(2, 4), range(4, 6), range(6, 8))
KEYS = [next(f"{name}{i}" for i in range(99) if key_group(f"{name}{i}") == g) for g in range(8) for name in "zab"]
"""Three of each key group."""


def open_store(directory: Path, low: int = 0, high: int = KEY_GROUPS) -> RocksDBStore:
    return RocksDBStore.open(directory, OPERATOR, KEY_TYPE, low, high, OPTIONS)


def sst_spans(directory: Path) -> list[set[int]]:
    """The first and the last key group of each file with rows; the store is closed."""
    database = Database(directory, OPTIONS, create=False)
    files = database.files()
    database.close()
    found = [{int.from_bytes(key[:2], "big") for key in (file.first, file.last)} for file in files]
    return [span for span in found if span != {0xFFFF}]


def test_no_file_spans_two_parts_whatever_is_held_and_however_often_the_log_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elements of a list stay in order and apart, though their positions are told part by part."""
    monkeypatch.setattr(part_replay, "HELD_BYTES", 2_000)
    monkeypatch.setattr(part_replay, "LOG_BYTES_AT_ONCE", 100)
    steps = [
        BatchChanges(
            totals=dict.fromkeys(KEYS, n),
            by_name={key: (n % 3 == 0, {str(n): n}) for key in KEYS},
            events={key: (n % 4 == 0, [f"{n}.{i}" for i in range(3)]) for key in reversed(KEYS)},
            alarms={(key, n, None): True for key in KEYS},
        )
        for n in range(1, 8)
    ]
    log = [
        FlooredSegment(segment_with(part.rows(), n, part=i), EVERYTHING)
        for n, step in enumerate(steps, 1)
        for i, part in enumerate(step.split(2))
    ]
    reads: list[tuple[float, float]] = []

    def read(begin: float, end: float) -> Iterator[FlooredSegment]:
        reads.append((begin, end))
        yield from log

    store = open_store(tmp_path / "db")
    replay_by_part(store, read, link(7), QUARTERS, 250)
    assert reads == [(0, 1 / 3), (1 / 3, 2 / 3), (2 / 3, 1)]
    assert cells(store) == model_of(*steps).cells()
    store.close()
    spans = sst_spans(tmp_path / "db")
    assert len(spans) > 3 * len(QUARTERS), "nothing was held too long"
    assert [span for span in spans if not any(span <= {*part} for part in QUARTERS)] == []


def test_versions_of_a_state_are_known_before_the_rows_of_any_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part may have rows of an older version after another part's rows, or no rows, of the newest one."""
    monkeypatch.setattr(part_replay, "HELD_BYTES", 500)
    monkeypatch.setattr(part_replay, "LOG_BYTES_AT_ONCE", 100)
    names = ("n bigint", "n bigint, m bigint", "n bigint, m bigint, o string")
    kinds = [as_type(ddl) for ddl in names]
    schemas = [StateSchema(name="row", kind="value", value_type=kind.type_string()) for kind in kinds]
    for i in (1, 2):
        earlier = tuple(ValueVersion(value_type=schema.value_type) for schema in schemas[:i])
        schemas[i] = msgspec.structs.replace(schemas[i], version=i, earlier=earlier)
    late = StateSchema(name="late", kind="value", value_type=as_type(Types.LONG()).type_string())

    def puts(version: int, keys: Sequence[str], n: int) -> StateChanges:
        values = [kinds[version].freeze((n, None, None)[: version + 1]) for _ in keys]
        return StateChanges(schemas[version], [key_group(key) for key in keys], list(keys), None, None, values)

    nothing = StateChanges(schemas[2], [], [], None, None, [])
    late_ones = StateChanges(late, [key_group(key) for key in KEYS[-3:]], KEYS[-3:], None, None, [7, 8, 9])
    # The partitions of a batch come in any order, and only some of them have rows of a new version.
    log = [
        FlooredSegment(segment_with(rows, seq, low, high), EVERYTHING)
        for seq, low, high, rows in (
            (1, 0, 8, [puts(0, KEYS, 1)]),
            (2, 6, 8, [puts(1, KEYS[-6:], 2), late_ones]),
            (3, 6, 8, [nothing]),
            (2, 0, 6, [puts(1, KEYS[:9], 2)]),
            (3, 0, 6, []),
            (4, 0, 6, [puts(0, KEYS[2:4], 4)]),
        )
    ]
    found: list[tuple[list[tuple[int, str, object]], ...]] = []
    for name, passes in (("whole", 0), ("parts", 1), ("passes", 4)):
        store = open_store(tmp_path / name)
        if passes:
            replay_by_part(store, lambda *_: log, link(4), QUARTERS, passes * 100)
        else:
            replay(store, log, link(4), low=0, high=KEY_GROUPS)
        store.close()
        store = open_store(tmp_path / name)
        assert {schema.name: schema for schema in store.schemas} == {"row": schemas[2], "late": late}
        found.append(tuple(sorted(store.value_table(schema).items()) for schema in (schemas[2], late)))
        store.close()
    assert found[0][0]
    assert found[0] == found[1] == found[2]


class Crashing:
    """A store whose directory is copied as it is on disk after every step: what a crash would leave there."""

    def __init__(self, store: RocksDBStore, copies: Path) -> None:
        self.keeps_wire_forms = store.keeps_wire_forms
        self.register = store.register
        self._store = store
        self._copies = copies

    def fold(self, batches: Sequence[Batch], version: Link, *, last: bool) -> None:
        self._store.fold(batches, version, last=last)
        self.copy()

    def flush(self) -> None:
        self._store.flush()
        self.copy()

    def copy(self) -> None:
        shutil.copytree(self._store.directory, self._copies / f"{len(list(self._copies.iterdir())):03d}")


def test_a_crash_between_parts_leaves_nothing_that_looks_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_replay, "HELD_BYTES", 2_000)
    monkeypatch.setattr(part_replay, "LOG_BYTES_AT_ONCE", 100)
    base = BatchChanges(totals=dict.fromkeys(KEYS, 0), events={key: (False, ["0"]) for key in KEYS})
    steps = [
        BatchChanges(totals=dict.fromkeys(KEYS, n), events={key: (False, [str(n)]) for key in KEYS}) for n in (2, 3, 4)
    ]
    log = [FlooredSegment(segment_with(step.rows(), n), EVERYTHING) for n, step in enumerate(steps, 2)]
    store = open_store(tmp_path / "db")
    store.apply(base.rows(), link(1))
    store.flush()
    (tmp_path / "copies").mkdir()
    replay_by_part(Crashing(store, tmp_path / "copies"), lambda *_: log, link(4), QUARTERS, 200)
    store.close()
    seen: list[int | None] = []
    for directory in sorted((tmp_path / "copies").iterdir()):
        try:
            left = open_store(directory)
        except IncompatibleError:
            seen.append(None)
            continue
        seen.append(left.version.seq)
        expected = model_of(base, *steps) if left.version == link(4) else model_of(base)
        assert cells(left) == expected.cells()
        left.close()
    assert (seen[0], seen[-1]) == (1, 4)
    assert seen.count(1) == seen.count(4) == 1
    assert seen.count(None) > 2 * len(QUARTERS)


def test_a_replay_by_part_that_fails_leaves_a_store_that_cannot_be_taken_for_whole(tmp_path: Path) -> None:
    def failing(*_: float) -> Iterator[FlooredSegment]:
        yield FlooredSegment(segment_with(BatchChanges(totals=dict.fromkeys(KEYS, 1)).rows(), 1), EVERYTHING)
        raise MissingObjectError("gone", object_name="seg/2")

    store = open_store(tmp_path / "db")
    with pytest.raises(MissingObjectError):
        replay_by_part(store, failing, link(2), QUARTERS, 1)
    store.close()
    with pytest.raises(IncompatibleError):
        open_store(tmp_path / "db")


def test_rows_of_other_key_groups_than_the_segment_says_are_an_error_and_not_left_out(tmp_path: Path) -> None:
    found = segment_with(BatchChanges(totals=dict.fromkeys(KEYS, 1)).rows(), 1)
    wrong = replace(found, header=msgspec.structs.replace(found.header, low=4))
    store = open_store(tmp_path / "db", 4)
    log = [FlooredSegment(wrong, EVERYTHING)]
    with pytest.raises(CorruptDataError, match="key groups outside"):
        replay(store, log, link(1), low=4, high=KEY_GROUPS)
    store.close()
    other = open_store(tmp_path / "other", 4)
    with pytest.raises(CorruptDataError, match="key groups outside"):
        replay_by_part(other, lambda *_: log, link(1), QUARTERS[2:], 1)
    other.close()
