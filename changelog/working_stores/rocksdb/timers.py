"""The timer table of a RocksDB store: due timers are a range of rows in each key group.

For each key group the table keeps a bound below which it has no timers. So a batch in which nothing is due reads
nothing, and a scan begins after the rows of timers that fired long ago, whose tombstones it would else read again.

Invariants: I5 (the bounds only save work), I10 (a bound per key group; rows are read one by one).
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from varvite.changelog.working_stores.rocksdb.keys import PREFIX_BYTES, successor
from varvite.changelog.working_stores.timer_form import TimerForm, due_end

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from varvite.changelog.working_stores.rocksdb.database import Database
    from varvite.changelog.working_stores.rocksdb.state_form import StateForm


class RocksDBTimerTable:
    """A `TimerTable` of rows."""

    def __init__(self, form: StateForm, database: Database) -> None:
        self.form = TimerForm(form.key, form.namespace)
        self._prefixes = form.prefixes
        self._database = database
        self._first: dict[int, bytes | None] = dict.fromkeys(form.prefixes, b"")
        """Key group → no timer's bytes are below these; None: there is no timer."""

    def due(self, until_ms: int) -> Iterator[tuple[bytes, int]]:
        end = due_end(until_ms)
        waiting = [g for g, first in self._first.items() if first is not None and (end is None or first < end)]
        return heapq.merge(*(self._due(key_group, end) for key_group in waiting))

    def contains(self, key_group: int, packed: bytes) -> bool:
        return self._database.get(self._prefixes[key_group] + packed) is not None

    def items(self) -> Iterator[tuple[int, bytes]]:
        for key_group, start in self._prefixes.items():
            for row, _ in self._database.scan(start, successor(start)):
                yield key_group, row[PREFIX_BYTES:]

    def added(self, firsts: Mapping[int, bytes]) -> None:
        """Lower the bounds to the timers that a batch has set: key group → the first of them."""
        for key_group, packed in firsts.items():
            bound = self._first[key_group]
            if bound is None or packed < bound:
                self._first[key_group] = packed

    def _due(self, key_group: int, end: bytes | None) -> Iterator[tuple[bytes, int]]:
        start = self._prefixes[key_group]
        is_first = True
        for row, _ in self._database.scan(start + (self._first[key_group] or b""), successor(start)):
            packed = row[PREFIX_BYTES:]
            if is_first:
                self._first[key_group] = packed
                is_first = False
            if end is not None and packed >= end:
                return
            yield packed, key_group
        if is_first:
            self._first[key_group] = None
