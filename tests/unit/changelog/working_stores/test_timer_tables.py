"""Cost of a timer table: reads follow what is due, not what there is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from varvite.changelog.keyed.timers import TimeDomain, timer_schema
from varvite.changelog.segments.changes import Op, StateChanges
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.changelog.working_stores.rocksdb.timers import RocksDBTimerTable
from varvite.storage.format.records import Link

SCHEMA = timer_schema("user-timers", TimeDomain.EVENT_TIME)
GROUPS = 4


class CountingScans:
    """Counts scans and the rows that they gave."""

    def __init__(self, database: Any) -> None:
        self._database = database
        self.scans = 0
        self.rows = 0

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        self.scans += 1
        for row in self._database.scan(start, end):
            self.rows += 1
            yield row

    def take(self) -> tuple[int, int]:
        """(scans, rows) since the last call."""
        taken, self.scans, self.rows = (self.scans, self.rows), 0, 0
        return taken


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksDBStore]:
    opened = RocksDBStore.open(tmp_path / "db", "op", "1:long", 0, GROUPS)
    opened.apply([changes(range(1000))], Link(1, "t1"))
    yield opened
    opened.close()


def changes(times: Any, op: Op = Op.PUT) -> StateChanges:
    """A timer per time, of the key that is the time, in key group time mod GROUPS."""
    rows = sorted((t % GROUPS, t) for t in times)
    keys = [t for _, t in rows]
    return StateChanges(SCHEMA, [g for g, _ in rows], keys, bytes([op] * len(rows)), None, list(keys))


def counted(store: RocksDBStore) -> tuple[RocksDBTimerTable, CountingScans]:
    table = store.timer_table(SCHEMA)
    scans = CountingScans(table._database)
    table._database = scans  # type: ignore[assignment]
    return table, scans


def test_due_timers_are_read_and_one_more_of_each_key_group(store: RocksDBStore) -> None:
    table, scans = counted(store)
    assert len(list(table.due(19))) == 20
    assert scans.take() == (GROUPS, 20 + GROUPS)


def test_nothing_is_read_while_nothing_can_be_due(store: RocksDBStore) -> None:
    table, scans = counted(store)
    assert list(table.due(-1)) == []
    assert scans.take() == (GROUPS, GROUPS), "the first time the table does not know where its timers begin"
    assert list(table.due(-1)) == []
    assert scans.take() == (0, 0)
    store.apply([changes([-10])], Link(2, "t2"))
    assert [group for _, group in table.due(-10)] == [-10 % GROUPS]
    assert scans.take() == (1, 2)


def test_a_scan_begins_after_the_timers_that_fired_long_ago(store: RocksDBStore) -> None:
    table, scans = counted(store)
    assert len(list(table.due(499))) == 500
    store.apply([changes(range(500), Op.DELETE)], Link(2, "t2"))
    assert list(table.due(499)) == []
    scans.take()
    assert list(table.due(499)) == []
    assert scans.take() == (0, 0)
    store.apply([changes(range(500, 1000), Op.DELETE)], Link(3, "t3"))
    assert list(table.due(10**6)) == []
    scans.take()
    assert list(table.due(10**6)) == []
    assert scans.take() == (0, 0), "an empty key group is known to be empty"
