"""Spans of time with PyFlink's names: `Time` and `Duration`. Where one of them goes, the other and `timedelta` go."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from varvite.storage.errors import InvalidRequestError


class Time:
    """A span of time in milliseconds, as in PyFlink."""

    __slots__ = ("_milliseconds",)

    def __init__(self, milliseconds: int) -> None:
        self._milliseconds = integer(milliseconds, "milliseconds")

    @staticmethod
    def milliseconds(milliseconds: int) -> Time:
        """A span in milliseconds."""
        return Time(milliseconds)

    @staticmethod
    def seconds(seconds: int) -> Time:
        """A span in seconds."""
        return Time(integer(seconds, "seconds") * 1000)

    @staticmethod
    def minutes(minutes: int) -> Time:
        """A span in minutes."""
        return Time.seconds(integer(minutes, "minutes") * 60)

    @staticmethod
    def hours(hours: int) -> Time:
        """A span in hours."""
        return Time.minutes(integer(hours, "hours") * 60)

    @staticmethod
    def days(days: int) -> Time:
        """A span in days of 24 hours."""
        return Time.hours(integer(days, "days") * 24)

    def to_milliseconds(self) -> int:
        """The span in milliseconds."""
        return self._milliseconds

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Time) and self._milliseconds == other._milliseconds

    def __hash__(self) -> int:
        return hash(self._milliseconds)

    def __repr__(self) -> str:
        return f"Time({self._milliseconds})"


@dataclass(frozen=True, order=True)
class Instant:
    """A point in time: seconds since 1970, and nanoseconds."""

    seconds: int
    nanos: int

    @staticmethod
    def of_epoch_milli(epoch_milli: int) -> Instant:
        """The point at these milliseconds since 1970."""
        return Instant(epoch_milli // 1000, epoch_milli % 1000 * 1_000_000)

    def to_epoch_milli(self) -> int:
        """Milliseconds since 1970, rounded down."""
        return self.seconds * 1000 + self.nanos // 1_000_000


@dataclass(frozen=True, order=True)
class Duration:
    """A span of time, of whole milliseconds."""

    milliseconds: int

    def __post_init__(self) -> None:
        """Raises `InvalidRequestError` if it is no whole number of milliseconds."""
        integer(self.milliseconds, "milliseconds")

    @staticmethod
    def of_nanos(nanos: int) -> Duration:
        """Nanoseconds, which are whole milliseconds. Raises `InvalidRequestError` if they are not."""
        if integer(nanos, "nanos") % 1_000_000:
            raise InvalidRequestError(f"{nanos} ns are no whole milliseconds, and a Duration here is")
        return Duration(nanos // 1_000_000)

    @staticmethod
    def of_days(days: int) -> Duration:
        """Days of 24 hours."""
        return Duration(days * 86_400_000)

    @staticmethod
    def of_hours(hours: int) -> Duration:
        """Hours."""
        return Duration(hours * 3_600_000)

    @staticmethod
    def of_minutes(minutes: int) -> Duration:
        """Minutes."""
        return Duration(minutes * 60_000)

    @staticmethod
    def of_seconds(seconds: int) -> Duration:
        """Seconds."""
        return Duration(seconds * 1000)

    @staticmethod
    def of_millis(millis: int) -> Duration:
        """Milliseconds."""
        return Duration(millis)

    def to_millis(self) -> int:
        """The milliseconds of this span."""
        return self.milliseconds


TimeLike: TypeAlias = Time | Duration | timedelta
"""A span of time in any form."""


def milliseconds_of(span: Any) -> int | None:
    """The milliseconds of a span in any form, rounded down; None for anything else."""
    if isinstance(span, Time):
        return span.to_milliseconds()
    if isinstance(span, Duration):
        return span.to_millis()
    return span // timedelta(milliseconds=1) if isinstance(span, timedelta) else None


def integer(value: Any, what: str) -> int:
    """The value. Raises `InvalidRequestError` if it is no int."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidRequestError(f"{what} is {value!r}; give an int")
    return value
