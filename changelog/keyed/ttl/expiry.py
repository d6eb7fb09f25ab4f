"""`Expiry`: the time up to which values have expired in the current batch, and the stamp of its writes; one per state.

Invariants: I5 (stamps come from the batch's time, its watermark and its rows, never from a clock).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from varvite.changelog.api.ttl_config import StateVisibility, UpdateType
from varvite.changelog.types.stamped import STAMP_MIN, Stamped, StampedType

if TYPE_CHECKING:
    from varvite.changelog.api.ttl_config import StateTtlConfig
    from varvite.changelog.schema.ttl import TtlRecord
    from varvite.changelog.segments.batch import BatchTime, CurrentRow
    from varvite.changelog.types.wire import WireType


class Expiry:
    """The time of one state. Handles read the attributes; `begin_batch` sets them."""

    __slots__ = ("_lowest_ms", "_row", "_untimed_ms", "accesses", "expired_up_to_ms", "record")

    def __init__(self, record: TtlRecord, row: CurrentRow | None, now: BatchTime) -> None:
        """`row` has the event times; None if rows have none."""
        self.record = record
        self._row = row if record.time == "event" else None
        self.accesses = 0
        """Uses of the handles since this was last set to 0."""
        self.begin_batch(now)

    def begin_batch(self, now: BatchTime) -> None:
        """Begin a batch."""
        clock = self.record.now_ms(now)
        self.expired_up_to_ms = self.record.expired_up_to(now)
        """Values with a stamp up to this one have expired."""
        self._lowest_ms = STAMP_MIN if clock is None else clock
        self._untimed_ms = now.time_ms if clock is None else clock

    def stamp_ms(self) -> int:
        """The stamp of a value written now.

        Processing time: the batch's. Event time: the row's, but not before the watermark, or a late row would write
        a value that has expired already. A row without event time has the watermark's, and before there is a watermark
        the processing time.
        """
        row = self._row
        if row is None:
            return self._untimed_ms
        event_time = row.element_timestamp
        return self._untimed_ms if event_time is None else max(event_time, self._lowest_ms)


class StampingType(StampedType):
    """Stamps the user's values as they are written."""

    def __init__(self, inner: WireType, expiry: Expiry) -> None:
        super().__init__(inner)
        self._stamp_ms = expiry.stamp_ms
        self._freeze_value = inner.freeze

    def freeze(self, value: Any) -> Stamped:
        return self._stamp_ms(), self._freeze_value(value)


class ReadRules:
    """The effect of a read on a value's life and visibility."""

    __slots__ = ("refreshes", "shows_expired")

    def __init__(self, config: StateTtlConfig | None) -> None:
        """None: TTL is off; values that expired while it was on stay hidden."""
        self.refreshes = False
        """A read renews the value's life."""
        self.shows_expired = False
        """A read returns an expired value, once: it also removes it."""
        if config is not None and config.is_enabled():
            self.refreshes = config.get_update_type() is UpdateType.OnReadAndWrite
            self.shows_expired = config.get_state_visibility() is StateVisibility.ReturnExpiredIfNotCleanedUp
