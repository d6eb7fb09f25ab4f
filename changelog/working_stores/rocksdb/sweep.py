"""Sweeps of expired values out of RocksDB: the counterpart of Flink's compaction filter.

rocksdict offers no compaction filter, so a sweep checks the rows of a state a slice at a time, round and round, and
stores its position. Each sweep checks

* one slice (`slice_entries` rows), or as many more as are needed to check every row once within `period_ms`;
* then further slices as long as the last one was worth it, because a quarter of it had expired, but at most
  `ROWS_PER_WRITE` times as many rows as were written since the last sweep.

So a sweep costs about as much as the writes before it, and where values expire as fast as they are written, about a
quarter of the rows at most have expired.

Where no file may span two parts of the key groups (`varvite.changelog.restore.part_replay`), the rows of many slices
are removed together, part by part.

Invariants: I5 (rows that have expired for every later batch are removed and no others; values from before TTL was
switched on have the stamp `STAMP_MIN`), I10 (a slice, and `HELD_ROWS_MAX` keys, are in memory at once).
"""

from __future__ import annotations

from bisect import bisect_left
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from rocksdict import WriteBatch

from varvite.changelog.types.stamped import STAMP_MIN
from varvite.changelog.working_stores.rocksdb.keys import key_group_start, metadata_key, split_value, successor
from varvite.storage.format.frame import decode_json
from varvite.storage.format.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from varvite.changelog.schema.ttl import SweepSettings
    from varvite.changelog.working_stores.rocksdb.database import Database

SWEEP_KEY: Final = metadata_key("sweep")
ROWS_PER_WRITE: Final = 4
WORTH_IT: Final = 4
"""A slice was worth it if one row of this number had expired."""
HELD_ROWS_MAX: Final = 100_000
"""Expired rows that are removed together, part by part."""


class SweepMark(Record, frozen=True, kw_only=True):
    """Position of the sweep of a state."""

    after: bytes = b""
    """The last row that was checked; empty at the beginning, and once the end was reached."""
    swept_ms: int = 0
    """Processing time of the last sweep."""


class SweepWork(NamedTuple):
    """A state to sweep."""

    prefixes: tuple[bytes, ...]
    """Beginnings of the state's rows, ascending."""
    expired_up_to_ms: int
    """Rows with a stamp up to this one have expired."""
    settings: SweepSettings
    rows_written: int
    """Since the last sweep."""
    now_ms: int
    """Processing time."""


class Swept(NamedTuple):
    """Result of a sweep."""

    mark: SweepMark
    checked: int
    removed: int


def sweep(database: Database, work: SweepWork, mark: SweepMark | None, remove: Callable[[list[bytes]], int]) -> Swept:
    """Sweep a state once, from its mark on; from the end it continues at the beginning, for one round at most.

    `remove` takes expired rows and returns the number of those that it did not get before.
    """
    begin = mark or SweepMark(swept_ms=work.now_ms)
    size = work.settings.slice_entries
    needed = max(size, _due(database, work, begin))
    limit = max(needed, ROWS_PER_WRITE * work.rows_written)
    after, checked, removed, wraps = begin.after, 0, 0, 0
    while checked < limit:
        rows = _slice(database, work, after, size)
        removed += remove(rows.expired)
        checked += rows.checked
        after = rows.after
        if not after:
            wraps += 1
            if wraps > bool(begin.after):
                break
        elif checked >= needed and len(rows.expired) * WORTH_IT < rows.checked:
            break
    return Swept(SweepMark(after=after, swept_ms=work.now_ms), checked, removed)


def sweep_states(database: Database, works: Mapping[str, SweepWork], parts: Sequence[range] = ()) -> dict[str, int]:
    """Sweep each of these states once, and store the positions; state name → rows that were removed.

    With `parts`, ascending, no file that is written spans two of them.
    """
    marks, removed = read_marks(database), dict[str, int]()
    held = _HeldRows(database, parts) if parts and works else None
    remove = partial(_remove, database) if held is None else held.remove
    for name, work in works.items():
        swept = sweep(database, work, marks.get(name), remove)
        marks[name], removed[name] = swept.mark, swept.removed
    if held is not None:
        held.write()
    if marks:
        write_marks(database, marks)
    return removed


def read_marks(database: Database) -> dict[str, SweepMark]:
    """State name → position of its sweep."""
    data = database.get(SWEEP_KEY)
    if data is None:
        return {}
    return decode_json(data, dict[str, SweepMark], "the store's sweep record", str(database.directory))


def write_marks(database: Database, marks: Mapping[str, SweepMark]) -> None:
    """Store the positions."""
    batch = WriteBatch(raw_mode=True)
    batch.put(SWEEP_KEY, msgspec.json.encode(marks))
    database.write(batch)


class _Slice(NamedTuple):
    checked: int
    expired: list[bytes]
    after: bytes
    """The last row; empty: the next slice begins at the beginning."""


def _due(database: Database, work: SweepWork, mark: SweepMark) -> int:
    """Rows to check so that all are checked once per period."""
    period_ms = work.settings.period_ms
    elapsed_ms = work.now_ms - mark.swept_ms
    return -(-database.count_estimate() * elapsed_ms // period_ms) if period_ms else 0


def _slice(database: Database, work: SweepWork, after: bytes, size: int) -> _Slice:
    """The next rows of the state after this one."""
    checked, expired = 0, list[bytes]()
    for start in work.prefixes:
        end = successor(start)
        if after >= end:
            continue
        for row, value in database.scan(max(start, after + b"\0") if after else start, end):
            stamp = split_value(value).time_stamp_ms
            if (STAMP_MIN if stamp is None else stamp) <= work.expired_up_to_ms:
                expired.append(row)
            checked += 1
            if checked == size:
                return _Slice(checked, expired, row)
    return _Slice(checked, expired, b"")


def _remove(database: Database, rows: list[bytes]) -> int:
    if rows:
        batch = WriteBatch(raw_mode=True)
        for row in rows:
            batch.delete(row)
        database.write(batch)
    return len(rows)


class _HeldRows:
    """Rows that are to be removed part by part."""

    def __init__(self, database: Database, parts: Sequence[range]) -> None:
        self._database = database
        self._ends = [key_group_start(part.stop) for part in parts]
        self._rows: set[bytes] = set()

    def remove(self, rows: list[bytes]) -> int:
        """Remove these rows later; returns the number of new ones."""
        before = len(self._rows)
        self._rows.update(rows)
        added = len(self._rows) - before
        if len(self._rows) >= HELD_ROWS_MAX:
            self.write()
        return added

    def write(self) -> None:
        """Remove the rows, with a file for each part that has any of them."""
        if not self._rows:
            return
        self._database.flush()  # earlier writes are in other files
        rows = sorted(self._rows)
        self._rows.clear()
        start = 0
        for end in self._ends:
            stop = bisect_left(rows, end, start)
            if _remove(self._database, rows[start:stop]):
                self._database.flush()
            start = stop
