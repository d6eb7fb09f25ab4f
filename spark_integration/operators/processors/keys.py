"""Keys in the forms in which Spark gives them to functions: on rows, with DataFrames, and to timers."""

from __future__ import annotations

from datetime import datetime, tzinfo
from functools import partial
from typing import TYPE_CHECKING, Any

from varvite.changelog.types.composites import RowType
from varvite.changelog.types.times import InstantType, SqlTimestampType
from varvite.spark_integration.elements.arrow_rows import row_class
from varvite.spark_integration.elements.row_values import value_reader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Row

    from varvite.changelog.keyed.backend import KeyedStateBackend
    from varvite.changelog.types.contract import TypeInformation


class KeyTuples:
    """Turns stored keys into the tuples that Spark's functions get.

    On rows a timestamp is aware, in the session's zone, and a struct a dict. With DataFrames a timestamp is a naive
    `pandas.Timestamp` in that zone. Timers have naive datetimes in the local time zone, and Rows.

    Args:
        backend: The operator's state.
        columns: Names of the columns that make the key.
        in_pandas: The function gets DataFrames.
    """

    def __init__(self, backend: KeyedStateBackend, columns: Sequence[str], *, in_pandas: bool = False) -> None:
        self._type = backend.key_type
        types: Any = [self._type] if len(columns) == 1 else self._type.types  # type: ignore[attr-defined]  a tuple's
        self._types: list[Any] = types
        self._is_single = len(columns) == 1
        self._in_pandas = in_pandas
        self._make = partial(tuple.__new__, row_class(columns))
        self._of_timers = [value_reader(kind) for kind in types]
        self.set_zone(None)

    def set_zone(self, zone: tzinfo | None) -> None:
        """Take the session's time zone; None: the local one."""
        moments = partial(_in_pandas if self._in_pandas else datetime.astimezone, tz=zone)
        self._readers = [_reader(kind, moments, in_pandas=self._in_pandas) for kind in self._types]

    def of(self, key: Any) -> tuple[Any, ...]:
        """The tuple of the grouping columns' values."""
        return self._read(key, self._readers)

    def row_of(self, key: Any) -> Row:
        """The tuple as a Row, the form of a timer's key on Spark."""
        return self._make(self._read(key, self._of_timers))

    def _read(self, key: Any, readers: Sequence[Callable[[Any], Any] | None]) -> tuple[Any, ...]:
        values = [None if key is None else self._type.thaw(key)] if self._is_single else self._type.thaw(key)
        return tuple([v if r is None or v is None else r(v) for v, r in zip(values, readers, strict=True)])


def _reader(kind: TypeInformation, moments: Callable[[Any], Any], *, in_pandas: bool) -> Callable[[Any], Any] | None:
    """The conversion of the values of a type of keys; None if they stay as they are."""
    if isinstance(kind, InstantType):
        return moments
    if isinstance(kind, SqlTimestampType):
        return _nanoseconds if in_pandas else None
    if not isinstance(kind, RowType):
        return None
    readers = [_reader(field, moments, in_pandas=in_pandas) for field in kind.types]
    return lambda row: {
        name: value if read is None or value is None else read(value)
        for name, value, read in zip(kind.names, row, readers, strict=True)
    }


def _in_pandas(moment: datetime, tz: tzinfo | None) -> Any:
    return _nanoseconds(moment.astimezone(tz).replace(tzinfo=None))


def _nanoseconds(naive: datetime) -> Any:
    import pandas as pd

    return pd.Timestamp(naive).as_unit("ns")
