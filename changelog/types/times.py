"""Dates, times and timestamps, all to the microsecond.

INSTANT is a point in time: it takes aware datetimes of any zone and gives them back in UTC (Spark's `timestamp`).
SQL_TIMESTAMP and SQL_TIME have no zone and take naive values only (Spark's `timestamp_ntz` and `time`). `fold` is
dropped. Nothing is ever converted by the local zone of a process.
"""

from __future__ import annotations

from abc import abstractmethod
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from varvite.changelog.types.wire import ImmutableType
from varvite.changelog.types.wire_columns import integer_wires

if TYPE_CHECKING:
    from collections.abc import Sequence

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_NAIVE: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - the naive types need a naive epoch
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_MICROSECOND: Final = timedelta(microseconds=1)
_FIRST: Final = np.datetime64("0001-01-01")
_END: Final = np.datetime64("10000-01-01")


def _objects(moments: Any) -> list[Any]:
    """Dates or datetimes of a numpy array. `OverflowError` outside of years 1 to 9999, of which numpy makes numbers."""
    beyond = moments[(moments < _FIRST) | (moments >= _END)]
    if len(beyond):
        raise OverflowError(f"{beyond[0]} is outside of the years 1 to 9999")
    return moments.tolist()


class TemporalType(ImmutableType):
    """Base: the plain form is Arrow's int."""

    name: str

    def notation(self) -> str:
        return self.name

    @property
    def wire_schema(self) -> Any:
        return int

    @abstractmethod
    def pack(self, stored: Any) -> int: ...

    def to_arrow(self, stored: Sequence[Any]) -> pa.Array[Any]:
        return pa.array(stored, self.arrow_type)

    def wire_column(self, column: pa.Array[Any]) -> pa.Array[Any]:
        return integer_wires(column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64()))


class TimestampType(TemporalType):
    """Base of INSTANT and SQL_TIMESTAMP."""

    def _plain_datetime(self, value: Any) -> datetime:
        """A datetime of no subclass."""
        if not isinstance(value, datetime):
            raise self.reject(value, "a datetime is needed")
        if value != value:  # noqa: PLR0124 - only NaT, which pandas makes a datetime, differs from itself
            raise self.reject(value, "it is no time; give None for what is missing")
        if getattr(value, "nanosecond", 0):
            raise self.reject(value, "nanoseconds cannot be kept; floor it to microseconds")
        return datetime(
            value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond, value.tzinfo,
            fold=value.fold,
        )  # fmt: skip


class InstantType(TimestampType):
    """Points in time: aware datetimes, given back in UTC."""

    name = "instant"

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.timestamp("us", tz="UTC")

    def freeze(self, value: Any) -> datetime:
        if type(value) is not datetime:
            value = self._plain_datetime(value)
        zone = value.tzinfo
        if zone is UTC:
            return value if not value.fold else value.replace(fold=0)
        if value.utcoffset() is None:
            raise self.reject(value, "a datetime with a time zone is needed, such as datetime.now(timezone.utc)")
        try:
            return value.astimezone(UTC).replace(fold=0)
        except OverflowError:
            raise self.reject(value, "it is outside the years 1 to 9999 in UTC") from None

    def pack(self, stored: datetime) -> int:
        return (stored - _EPOCH) // _MICROSECOND

    def load(self, plain: int) -> datetime:
        return _EPOCH + timedelta(microseconds=plain)

    def from_arrow(self, column: pa.Array[Any]) -> list[Any]:
        since_epoch = column.cast(pa.int64()).cast(pa.duration("us")).to_numpy(zero_copy_only=False).tolist()
        return [None if delta is None else _EPOCH + delta for delta in since_epoch]


class SqlTimestampType(TimestampType):
    """Wall-clock timestamps without a zone."""

    name = "sql_timestamp"

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.timestamp("us")

    def freeze(self, value: Any) -> datetime:
        if type(value) is not datetime:
            value = self._plain_datetime(value)
        if value.tzinfo is not None:
            raise self.reject(value, "a datetime without a time zone is needed; for points in time use INSTANT")
        return value if not value.fold else value.replace(fold=0)

    def pack(self, stored: datetime) -> int:
        return (stored - _EPOCH_NAIVE) // _MICROSECOND

    def load(self, plain: int) -> datetime:
        return _EPOCH_NAIVE + timedelta(microseconds=plain)

    def from_arrow(self, column: pa.Array[Any]) -> list[Any]:
        return _objects(column.to_numpy(zero_copy_only=False).astype("datetime64[us]"))


class SqlDateType(TemporalType):
    """Dates."""

    name = "sql_date"

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.date32()

    def freeze(self, value: Any) -> date:
        if type(value) is date:
            return value
        if isinstance(value, datetime) or not isinstance(value, date):
            is_missing = isinstance(value, date) and value != value  # noqa: PLR0124 - only NaT differs from itself
            needed = (
                "it is no date; give None for what is missing" if is_missing else "a date (not a datetime) is needed"
            )
            raise self.reject(value, needed)
        return date(value.year, value.month, value.day)

    def pack(self, stored: date) -> int:
        return stored.toordinal() - _EPOCH_DAY

    def load(self, plain: int) -> date:
        return date.fromordinal(plain + _EPOCH_DAY)

    def from_arrow(self, column: pa.Array[Any]) -> list[Any]:
        return _objects(column.to_numpy(zero_copy_only=False).astype("datetime64[D]"))


class SqlTimeType(TemporalType):
    """Times of day without a zone."""

    name = "sql_time"

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.time64("us")

    def freeze(self, value: Any) -> time:
        if not isinstance(value, time):
            raise self.reject(value, "a time is needed")
        if value.tzinfo is not None:
            raise self.reject(value, "a time without a time zone is needed")
        if type(value) is time and not value.fold:
            return value
        return time(value.hour, value.minute, value.second, value.microsecond)

    def pack(self, stored: time) -> int:
        return ((stored.hour * 60 + stored.minute) * 60 + stored.second) * 1_000_000 + stored.microsecond

    def load(self, plain: int) -> time:
        seconds, microsecond = divmod(plain, 1_000_000)
        minutes, second = divmod(seconds, 60)
        hour, minute = divmod(minutes, 60)
        return time(hour, minute, second, microsecond)

    def from_arrow(self, column: pa.Array[Any]) -> list[Any]:
        return column.to_pylist()
