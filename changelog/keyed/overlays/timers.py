"""The overlay of timers, and which of them are due.

A timer is named by (key, namespace, time) within its state, of which there is one per time domain. Registering one
twice is registering it once. Registering and deleting only note the net effect: the table is not read.

Invariants: I4 (the table changes in `fold` alone), I5 (a row per timer that was set or removed, removed by its name;
timers come due in the order of their bytes, which no backend and no order of registration changes), I10 (due timers of
the table are read one by one).
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any, NamedTuple

from varvite.changelog.keyed.overlays.base import Overlay
from varvite.changelog.segments.changes import Op, OverSealed, StateChanges
from varvite.changelog.working_stores.contract import TimerTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from varvite.changelog.working_stores.timer_form import Timer
    from varvite.storage.format.records import StateSchema


class DueTimer(NamedTuple):
    """A timer that fires now."""

    key_group: int
    timer: Timer


class TimerOverlay(Overlay[TimerTable]):
    """Pending, by key group: timer → True if it was set, False if it was removed."""

    __slots__ = ("due",)

    def __init__(self, schema: StateSchema, table: TimerTable) -> None:
        super().__init__(schema, table)
        self.due: DueTimers | None = None
        """Set once timers fire, until the batch ends: timers that are set meanwhile are added to it."""

    def put(self, key_group: int, timer: Timer) -> None:
        """Set a timer."""
        timers = self.pending[key_group]
        if timers.get(timer):
            return
        timers[timer] = True
        if self.due is not None:
            self.due.add(key_group, timer)

    def remove(self, key_group: int, timer: Timer) -> None:
        """Remove a timer; a missing one is no error."""
        self.pending[key_group][timer] = False

    def pop_due(self, until_ms: int) -> DueTimer | None:
        """Remove and return the first timer with `time_ms <= until_ms`; None if there is none (now)."""
        if self.due is None or self.due.until_ms != until_ms:
            self.due = DueTimers(self, until_ms)
        return self.due.pop()

    def changes(self) -> StateChanges | None:
        return self._rows(self.by_key_group())

    def whole(self) -> StateChanges | None:
        return self._rows(self.all_pending())

    def count_rows(self) -> int:
        return sum(map(len, self.pending.values()))

    def all_pending(self) -> list[tuple[int, dict[Timer, bool]]]:
        """The changes of the whole batch, ascending by key group."""
        sealed = self.sealed
        if sealed is None:
            return self.by_key_group()
        key_groups = sorted(sealed.pending.keys() | self.pending.keys())
        return [(group, {**sealed.pending.get(group, {}), **self.pending.get(group, {})}) for group in key_groups]

    def _seal(self) -> None:
        sealed = self._sealed()
        for key_group, timers in self.pending.items():
            sealed.pending[key_group].update(timers)
        self.pending.clear()
        for key_group, timers in sealed.pending.items():
            self.pending[key_group] = OverSealed(timers)

    def _rows(self, groups: Iterable[tuple[int, dict[Timer, bool]]]) -> StateChanges | None:
        key_groups: list[int] = []
        timers: list[Timer] = []
        are_set: list[bool] = []
        for key_group, pending in groups:
            key_groups.extend([key_group] * len(pending))
            timers.extend(pending)
            are_set.extend(pending.values())
        if not timers:
            return None
        times, keys, namespaces = map(list, zip(*timers, strict=True))
        ops = None if all(are_set) else bytes([Op.PUT if is_set else Op.DELETE for is_set in are_set])
        has_namespaces = self.schema.namespace_type is not None
        return StateChanges(self.schema, key_groups, keys, ops, None, times, namespaces if has_namespaces else None)

    def clear(self) -> None:
        super().clear()
        self.due = None

    def keys(self) -> Iterator[tuple[int, Any]]:
        unpack = self.table.form.unpack
        keys: dict[tuple[int, Any], None] = {}
        for key_group, packed in self.table.items():
            timer = unpack(packed)
            if self.pending[key_group].get(timer) is None:
                keys[key_group, timer.key] = None
        for key_group, timers in self.all_pending():
            keys.update({(key_group, timer.key): None for timer, is_set in timers.items() if is_set})
        yield from keys


class DueTimers:
    """The due timers of a batch in order, those that are set while others fire included.

    A timer that is set to a time before the one that fires now comes next.
    """

    def __init__(self, overlay: TimerOverlay, until_ms: int) -> None:
        self.until_ms = until_ms
        """Timers of this time and before are due."""
        self._overlay = overlay
        form = overlay.table.form
        self._pack, self._unpack = form.pack, form.unpack
        self._added = [
            (self._pack(*timer), key_group)
            for key_group, timers in overlay.all_pending()
            for timer, is_set in timers.items()
            if is_set and timer[0] <= until_ms
        ]
        heapq.heapify(self._added)
        self._confirmed = overlay.table.due(until_ms)
        self._next = next(self._confirmed, None)

    def add(self, key_group: int, timer: Timer) -> None:
        """Add a timer that was set."""
        if timer[0] <= self.until_ms:
            heapq.heappush(self._added, (self._pack(*timer), key_group))

    def pop(self) -> DueTimer | None:
        """The first due timer, removed; None if there is none (now)."""
        pending, added = self._overlay.pending, self._added
        while True:
            following = self._next
            if added and (following is None or added[0] <= following):
                packed, key_group = heapq.heappop(added)
                timer = self._unpack(packed)
                is_due = pending[key_group].get(timer) is True  # not removed since
            elif following is not None:
                packed, key_group = following
                self._next = next(self._confirmed, None)
                timer = self._unpack(packed)
                is_due = pending[key_group].get(timer) is None  # else it was removed, or is among the added ones
            else:
                return None
            if is_due:
                pending[key_group][timer] = False
                return DueTimer(key_group, timer)
