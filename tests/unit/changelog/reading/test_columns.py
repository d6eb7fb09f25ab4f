"""Rows of states with TTL: stamps are shown, what has expired is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tests.jobs.state_model import KEY_TYPE, STRING, TOTAL, link
from varvite.changelog.reading.columns import StateColumns
from varvite.changelog.reading.diff import Side, diff_stores, shown
from varvite.changelog.schema.ttl import CleanupSettings, TtlSettings, with_ttl
from varvite.changelog.segments.batch import BatchTime
from varvite.changelog.segments.changes import StateChanges
from varvite.changelog.types.stamped import STAMP_MIN
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.storage.format.records import StateSchema, ValueVersion

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOUR_MS = 3_600_000
SETTINGS = TtlSettings(ttl_ms=HOUR_MS, time="processing", cleanup=CleanupSettings())
VALUE = with_ttl(TOTAL, None, SETTINGS, BatchTime(0))
ELEMENTS = with_ttl(StateSchema(name="events", kind="list", value_type=STRING), None, SETTINGS, BatchTime(0))


def put(schema: StateSchema, values: dict[str, Any]) -> StateChanges:
    """One row per key, in key group 1."""
    return StateChanges(schema, [1] * len(values), list(values), None, None, list(values.values()))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksDBStore]:
    store = RocksDBStore.open(tmp_path / "state", "op", KEY_TYPE, 0, 2)
    values = {"old": (0, 1), "new": (HOUR_MS, 2), "ever": (STAMP_MIN, 3)}
    elements = StateChanges(ELEMENTS, [1, 1], ["a", "a"], None, None, [(0, "old"), (HOUR_MS, "new")])
    store.apply([put(VALUE, values), elements], link(1))
    yield store
    store.close()


def shown_rows(store: RocksDBStore, schema: StateSchema, now_ms: int | None) -> list[dict[str, Any]]:
    columns = StateColumns(KEY_TYPE, schema)
    rows = columns.rows(store, None if now_ms is None else BatchTime(now_ms))
    return [row for batch in columns.batches(rows) for row in batch.to_pylist()]


def test_stamps_are_shown_and_what_has_expired_is_not(store: RocksDBStore) -> None:
    rows = shown_rows(store, VALUE, None)
    assert {row["key"]: (row["value"], row["ttl_stamp_ms"]) for row in rows} == {
        "old": (1, 0), "new": (2, HOUR_MS), "ever": (3, None)
    }  # fmt: skip
    assert [row["key"] for row in shown_rows(store, VALUE, HOUR_MS - 1)] == ["new", "old"]
    assert [row["key"] for row in shown_rows(store, VALUE, HOUR_MS)] == ["new"]
    assert shown_rows(store, ELEMENTS, HOUR_MS) == [
        {"key_group": 1, "key": "a", "position": 1, "value": "new", "ttl_stamp_ms": HOUR_MS}
    ]


def test_values_from_before_the_ttl_have_no_stamp(tmp_path: Path) -> None:
    store = RocksDBStore.open(tmp_path / "state", "op", KEY_TYPE, 0, 2)
    store.apply([put(TOTAL, {"a": 1})], link(1))
    earlier = (ValueVersion(value_type=TOTAL.value_type),)
    later = msgspec.structs.replace(with_ttl(TOTAL, TOTAL, SETTINGS, BatchTime(0)), version=1, earlier=earlier)
    columns = StateColumns(KEY_TYPE, later)
    [row] = [row for batch in columns.batches(columns.rows(store)) for row in batch.to_pylist()]
    assert (row["value"], row["ttl_stamp_ms"]) == (1, None)
    store.close()


def test_expired_rows_are_no_difference_and_stamps_are(store: RocksDBStore, tmp_path: Path) -> None:
    other = RocksDBStore.open(tmp_path / "other", "op", KEY_TYPE, 0, 2)
    other.apply([put(VALUE, {"new": (HOUR_MS + 5, 2)})], link(2))
    columns, now = StateColumns(KEY_TYPE, VALUE), BatchTime(HOUR_MS)
    [one] = diff_stores(Side(store, now), Side(other, now), columns, "op")
    assert (one.change, shown(columns, one)) == (
        "changed",
        {
            "key": "new",
            "map_key": None,
            "before": {"value": 2, "ttl_stamp_ms": HOUR_MS},
            "after": {"value": 2, "ttl_stamp_ms": HOUR_MS + 5},
        },
    )
    assert len(list(diff_stores(Side(store, None), Side(other, None), columns, "op"))) == 3
    other.close()
