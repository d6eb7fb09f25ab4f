"""`WatermarkStrategy`, with PyFlink's names: timestamps of elements, and the time to wait for late ones.

The watermark is one value for the whole job, computed after each micro-batch from the largest time stamp of all
partitions; so a partition without input holds nothing back. With several inputs it is the least of their watermarks;
`with_idleness` excludes an input that has had no elements for some time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from varvite.changelog.api.time_spans import milliseconds_of
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from varvite.changelog.api.time_spans import TimeLike


class TimestampAssigner(ABC):
    """Extracts the event time of an element."""

    @abstractmethod
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """The timestamp of an element.

        Args:
            value: The element.
            record_timestamp: Its present timestamp; the smallest 64-bit integer if it has none.

        Returns:
            Milliseconds since the epoch.
        """


class KeptTimestamps(TimestampAssigner):
    """Leaves the timestamps that elements have."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        del value
        return record_timestamp


@dataclass(frozen=True)
class WatermarkStrategy:
    """The source of timestamps and the delay of the watermark; every `with_` makes a new strategy."""

    out_of_orderness_ms: int | None
    """None: no watermark."""
    assigner: TimestampAssigner | None = None
    idle_timeout_ms: int | None = None
    """None: the input is never idle."""

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        """Elements come in the order of their timestamps: the watermark is 1 ms below the largest."""
        return WatermarkStrategy(0)

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: TimeLike) -> WatermarkStrategy:
        """An element may be older than an earlier one by this span; the watermark is that and 1 ms below the largest.

        Raises:
            InvalidRequestError: Not a span of time, or a negative one.
        """
        span_ms = milliseconds_of(max_out_of_orderness)
        if span_ms is None or span_ms < 0:
            raise InvalidRequestError(
                f"{max_out_of_orderness!r} is no span of time to wait for; give Duration.of_seconds(5)"
            )
        return WatermarkStrategy(span_ms)

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        """Timestamps without a watermark."""
        return WatermarkStrategy(None)

    def with_timestamp_assigner(self, timestamp_assigner: TimestampAssigner) -> WatermarkStrategy:
        """Set the timestamp assigner. Raises `InvalidRequestError` for anything else."""
        if not isinstance(timestamp_assigner, TimestampAssigner):
            raise InvalidRequestError(
                f"{timestamp_assigner!r} is no TimestampAssigner; derive one, and give an instance"
            )
        return replace(self, assigner=timestamp_assigner)

    def with_idleness(self, idle_timeout: TimeLike) -> WatermarkStrategy:
        """Ignore the input in the watermark once it has had no elements for this time, or none at all in this run.

        Time is that of the batches. Elements that come afterwards may be behind the watermark, which never goes back.

        Raises:
            InvalidRequestError: Not a span of time above zero.
        """
        span_ms = milliseconds_of(idle_timeout)
        if span_ms is None or span_ms <= 0:
            raise InvalidRequestError(f"{idle_timeout!r} is no span of time; give Duration.of_seconds(5)")
        return replace(self, idle_timeout_ms=span_ms)

    def with_watermark_alignment(
        self, watermark_group: str, max_allowed_watermark_drift: TimeLike, update_interval: TimeLike | None = None
    ) -> WatermarkStrategy:
        """Not possible. Raises `InvalidRequestError` always."""
        del watermark_group, max_allowed_watermark_drift, update_interval
        raise InvalidRequestError(
            "with_watermark_alignment holds a fast source back until the others have its times, which Spark's sources "
            "cannot do: remove it, and bound a source's batches by its own options, such as maxOffsetsPerTrigger"
        )

    @property
    def is_empty(self) -> bool:
        """Does it leave time stamps as they are, without a watermark?"""
        return self.assigner is None and self.out_of_orderness_ms is None

    @property
    def delay_ms(self) -> int | None:
        """Distance of the watermark below the largest timestamp; as in Flink, elements at the watermark are late."""
        return None if self.out_of_orderness_ms is None else self.out_of_orderness_ms + 1
