"""Bytes that version 1 wrote stay readable, for ever.

Encoding again is compared by content, not by bytes: another version of Arrow or zstd may compress differently.
"""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import msgspec
import pytest

from tests.golden.writers.changelog import (
    AT,
    HEADER,
    HIGH,
    KEY_TYPE,
    LOW,
    OPERATOR,
    SEGMENT,
    SNAPSHOT,
    TIMER_SEGMENT,
    TIMER_SNAPSHOT,
    all_changes,
    key,
    main,
    stored_values,
    timer_changes,
)
from varvite.changelog.segments.segment import decode_segment, encode_segment
from varvite.changelog.types.factory import parse_type_string
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.storage.format.frame import unframe
from varvite.storage.format.records import StateSchema

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TYPES = {
    "basic_array", "big_dec", "big_int", "binary", "boolean", "byte", "char", "decimal", "double", "float", "instant",
    "int", "list", "long", "map", "object_array", "primitive_array", "row", "short", "sql_date", "sql_time",
    "sql_timestamp", "string", "tuple",
}  # fmt: skip


def test_the_golden_segment_decodes_to_the_changes() -> None:
    segment = decode_segment(SEGMENT.read_bytes(), "segment-v1")
    assert msgspec.structs.replace(segment.header, states=()) == HEADER
    assert segment.changes() == all_changes()


def test_the_golden_segment_is_version_1_and_its_header_is_as_documented() -> None:
    opened = unframe(b"SEGM", 1, SEGMENT.read_bytes(), "segment-v1")
    assert opened.version == 1
    header = msgspec.json.decode(opened.header)
    assert list(header) == [
        "job_id", "operator", "partition", "low", "high", "seq", "tag", "part", "key_type", "states",
    ]  # fmt: skip
    assert {field for state in header["states"] for field in state} == {"schema", "rows", "offset", "length"}


def test_encoding_again_gives_the_same_content() -> None:
    golden = decode_segment(SEGMENT.read_bytes(), "segment-v1")
    again = decode_segment(encode_segment(HEADER, golden.changes()), "again")
    assert again.changes() == golden.changes()
    assert [(s.schema, s.rows) for s in again.header.states] == [(s.schema, s.rows) for s in golden.header.states]


def test_every_kind_of_state_and_type_is_in_it() -> None:
    schemas = [state.schema for state in decode_segment(SEGMENT.read_bytes(), "segment-v1").header.states]
    assert {schema.kind for schema in schemas} == {"value", "list", "map", "reducing", "aggregating"}
    types = [schema.value_type for schema in schemas]
    assert {re.split(r"[<(]", kind.removeprefix("1:"))[0] for kind in types} == TYPES
    assert all(parse_type_string(kind).type_string() == kind for kind in types)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksDBStore]:
    shutil.copytree(SNAPSHOT, tmp_path / "db")
    opened = RocksDBStore.open(tmp_path / "db", OPERATOR, KEY_TYPE.type_string(), LOW, HIGH)
    yield opened
    opened.close()


def schema_of(store: RocksDBStore, name: str) -> StateSchema:
    return next(schema for schema in store.schemas if schema.name == name)


def test_the_golden_snapshot_opens_at_its_version(store: RocksDBStore) -> None:
    assert store.version == AT
    assert store.schemas == tuple(change.schema for change in all_changes())


def test_the_golden_snapshot_holds_every_type(store: RocksDBStore) -> None:
    for name, (_, stored) in stored_values().items():
        table = store.value_table(schema_of(store, f"value {name}"))
        assert [table.get(LOW + i, key(i)) for i in range(len(stored))] == stored
        assert sorted(table.items(), key=lambda row: row[0]) == [(LOW + i, key(i), v) for i, v in enumerate(stored)]


def test_the_golden_snapshot_holds_every_kind(store: RocksDBStore) -> None:
    assert list(store.value_table(schema_of(store, "total")).items()) == [(16, key(0), 7), (31, key(2), -7)]
    assert store.value_table(schema_of(store, "mean")).get(16, key(0)) == (1, 0.5)
    visits = store.map_table(schema_of(store, "visits"))
    assert visits.entries(16, key(0)) == {"JFK": 1, "LGA": None}
    assert visits.entries(20, key(3)) == {"": 2}
    events = store.list_table(schema_of(store, "events"))
    assert events.elements(16, key(0)) == ["first", "second"]
    assert events.elements(30, key(4)) == ["", ""]
    [[_, found, elements]] = store.list_table(schema_of(store, "plain list")).items()
    assert (found, len(elements)) == (key(0), 2)
    [[_, found, map_key, _]] = store.map_table(schema_of(store, "plain map")).items()
    assert (found, map_key) == (key(0), key(9))


def test_the_golden_snapshot_goes_on_as_a_store(store: RocksDBStore) -> None:
    store.apply(all_changes(), msgspec.structs.replace(AT, seq=42))
    events = store.list_table(schema_of(store, "events"))
    assert events.elements(30, key(4)) == ["", "", ""]


def test_the_golden_segment_of_timers_decodes_to_the_changes() -> None:
    segment = decode_segment(TIMER_SEGMENT.read_bytes(), "segment-v1-timers")
    assert segment.changes() == timer_changes()
    again = decode_segment(encode_segment(HEADER, timer_changes()), "again")
    assert again.changes() == timer_changes()


def test_the_golden_snapshot_of_timers_holds_them_in_order(tmp_path: Path) -> None:
    shutil.copytree(TIMER_SNAPSHOT, tmp_path / "db")
    opened = RocksDBStore.open(tmp_path / "db", OPERATOR, KEY_TYPE.type_string(), LOW, HIGH)
    plain, named = (opened.timer_table(change.schema) for change in timer_changes())
    assert [(*plain.form.unpack(packed), group) for packed, group in plain.due(2**63 - 1)] == [
        (-(2**63), key(0), None, 16), (-1, None, None, 17), (0, key(1), None, 20), (2**63 - 1, key(2), None, 31),
    ]  # fmt: skip
    assert [(*named.form.unpack(packed), group) for packed, group in named.due(9)] == [
        (0, key(2), (0, None), 31), (9, key(0), (0, 10), 16), (9, None, None, 16),
    ]  # fmt: skip
    assert next(opened.scan(b"", b"\x00\x12")) == (
        bytes.fromhex("00100000" + "0000000000000000" + "92a24e3000"), b"\x00"
    ), "key group, state id, time with its sign flipped, key; the value is a header alone"  # fmt: skip
    opened.close()


def test_golden_files_are_not_written_again() -> None:
    with pytest.raises(SystemExit):
        main()
