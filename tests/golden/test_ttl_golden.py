"""Bytes of states with TTL stay readable, for ever."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.golden.writers.changelog import AT, HIGH, KEY_TYPE, LOW, OPERATOR, key
from tests.golden.writers.ttl import EVENTS, NOW, OFF, SEGMENT, SNAPSHOT, TOTAL, VISITS, all_changes, main
from varvite.changelog.schema.ttl import record_of
from varvite.changelog.segments.segment import decode_segment, encode_segment
from varvite.changelog.types.stamped import STAMP_MIN
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore


def test_the_golden_segment_decodes_to_the_changes() -> None:
    segment = decode_segment(SEGMENT.read_bytes(), "segment-v1-ttl")
    assert segment.changes() == all_changes()
    again = decode_segment(encode_segment(segment.header, segment.changes()), "again")
    assert again.changes() == segment.changes()


def test_the_golden_records_say_what_they_said() -> None:
    schemas = [state.schema for state in decode_segment(SEGMENT.read_bytes(), "segment-v1-ttl").header.states]
    total, visits, _, off = (record_of(schema) for schema in schemas)
    assert total is not None
    assert (total.ttl_ms, total.time, total.enabled_at_ms) == (3_600_000, "processing", NOW.time_ms)
    assert total.cleanup.full_snapshot
    assert total.cleanup.sweep is not None
    assert (total.cleanup.sweep.slice_entries, total.cleanup.sweep.period_ms) == (10, 60_000)
    assert total.cleanup.incremental is not None
    assert (total.cleanup.incremental.size_entries, total.cleanup.incremental.every_record) == (5, True)
    assert visits is not None
    assert (visits.ttl_ms, visits.time, visits.enabled_at_ms) == (1, "event", None)
    assert off is not None
    assert (off.ttl_ms, off.expired_up_to_ms) == (None, NOW.time_ms + 5 - 3_600_000)


def test_the_golden_snapshot_opens(tmp_path: Path) -> None:
    shutil.copytree(SNAPSHOT, tmp_path / "db")
    store = RocksDBStore.open(tmp_path / "db", OPERATOR, KEY_TYPE.type_string(), LOW, HIGH)
    try:
        assert store.version == AT
        assert store.schemas == (TOTAL, VISITS, EVENTS, OFF)
        assert list(store.value_table(TOTAL).items()) == [
            (16, key(0), (STAMP_MIN, 7)), (31, key(2), (NOW.time_ms, -7)),
        ]  # fmt: skip
        assert store.map_table(VISITS).entries(16, key(0)) == {
            "JFK": (1_600_000_000_001, b"\x93\x01\xc0\x02"), "": (-5, None),
        }  # fmt: skip
        assert store.list_table(EVENTS).elements(20, key(3)) == [(1, ("a", 0.5)), (2, (None, None))]
    finally:
        store.close()


def test_golden_files_are_not_written_again() -> None:
    with pytest.raises(SystemExit):
        main()
