"""Incremental cleanup of state with TTL in memory (`cleanup_incrementally`).

Every access to a state pays for the check of a few values, wherever they are. The checks are made together, after the
batch was answered. They go over the table again and again, key group by key group.

Invariants: I5 (only what has expired for every later batch is removed, so the state reads as before; nothing is
logged), I10 (the work is bounded by the accesses; the keys of one key group are copied at a time).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from varvite.changelog.schema.ttl import record_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varvite.changelog.segments.batch import BatchTime
    from varvite.changelog.working_stores.contract import StateActivity
    from varvite.changelog.working_stores.hashmap.tables import HashMapTable
    from varvite.storage.format.records import StateSchema


class HashMapCleanup:
    """Progress of the checks of one table."""

    def __init__(self, table: HashMapTable[Any]) -> None:
        self.table = table
        self._keys: Iterator[tuple[int, Any]] = iter(())

    def run(self, schema: StateSchema, now: BatchTime, activity: StateActivity) -> int:
        """Check as many values as the accesses pay for, at most all; the number of removed values."""
        record = record_of(schema)
        settings = None if record is None else record.cleanup.incremental
        if record is None or settings is None:
            return 0
        uses = activity.accesses + (activity.records if settings.every_record else 0)
        expired_up_to = record.expired_up_to(now)
        budget, removed, rounds = uses * settings.size_entries, 0, 0
        while budget > 0 and rounds <= 1:  # the rest of a round and one more see everything
            for key_group, key in self._keys:
                checked, expired = self.table.remove_values(key_group, key, lambda value: value[0] <= expired_up_to)
                budget -= checked
                removed += expired
                if budget <= 0:
                    break
            else:
                self._keys = self._round()
                rounds += 1
        return removed

    def _round(self) -> Iterator[tuple[int, Any]]:
        for key_group, cells in self.table.all_groups():
            for key in list(cells):
                yield key_group, key
