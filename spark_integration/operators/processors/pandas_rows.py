"""Rows of Arrow batches as the pandas DataFrames that Spark's functions get, and DataFrames as output rows.

Columns are converted by Spark's own converter, so they have the same dtypes as on Spark. As there, timestamps are naive
in both directions, in the session's time zone.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import _create_converter_to_pandas, from_arrow_type
from pyspark.sql.types import TimestampType

from varvite.spark_integration.elements.arrow_values import zone_in, zone_info
from varvite.spark_integration.elements.clock_times import instant_of_frame
from varvite.spark_integration.elements.row_values import plain_value, value_writer
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import tzinfo

    from pyspark.sql.types import StructField, StructType

FRAME_ROWS: Final = 10_000
"""Rows of a DataFrame at most; Spark's default."""


def to_frame(batch: pa.RecordBatch) -> Any:
    """The batch as a DataFrame. Make it within `reading`: pandas cannot hold every value."""
    import pandas as pd

    names = batch.schema.names
    columns = map(_series, batch.columns)
    return pd.concat([series.rename(name) for name, series in zip(names, columns, strict=True)], axis=1)


def _series(values: Any) -> Any:
    kind = from_arrow_type(values.type)
    convert = _create_converter_to_pandas(kind, True, timezone=zone_in(values.type), struct_in_pandas="dict")
    # As on Spark: integers within structs, arrays and maps stay integers beside nulls; a plain column has floats.
    options: Any = {"integer_object_nulls": pa.types.is_nested(values.type)}
    series: Any = convert(values.to_pandas(date_as_object=True, coerce_temporal_nanoseconds=True, **options))
    return series.dt.as_unit("ns") if series.dtype.kind == "M" else series


class PandasRows:
    """Turns rows of batches into DataFrames, and DataFrames that a function yields into output rows.

    Args:
        output: Columns of the output.
        zone: The session's time zone, as far as the input does not say; None: the local one.
    """

    def __init__(self, output: StructType, zone: str | None = None) -> None:
        self._names = output.names
        self._output = output
        self.zone = None if zone is None else zone_info(zone)
        """The session's time zone; None: the local one."""
        self._zone = zone
        self._set_writers()

    def note_zone(self, schema: pa.Schema) -> None:
        """Take the time zone of the input's schema for the output."""
        zone = next(filter(None, (zone_in(field.type) for field in schema)), None)
        if zone is not None and zone != self._zone:
            self._zone, self.zone = zone, zone_info(zone)
            self._set_writers()

    def _set_writers(self) -> None:
        zoned = partial(instant_of_frame, self.zone)
        writers = [(field, value_writer(field.dataType, zoned)) for field in self._output.fields]
        self._writers = [None if write is None else _ColumnWriter(f, write, self.zone) for f, write in writers]

    def rows(self, batch: pa.RecordBatch) -> list[Any]:
        """The rows of a batch."""
        self.note_zone(batch.schema)
        return list(to_frame(batch).itertuples(index=False))

    def output_rows(self, frame: Any) -> Iterator[tuple[Any, ...]]:
        """The rows of a DataFrame that a function yields, in the order of the output columns."""
        return rows_of_frame(frame, self._names, self._writers)

    def frames(self, rows: list[Any]) -> Iterator[Any]:
        """DataFrames of these rows, of `FRAME_ROWS` at most."""
        import pandas as pd

        for start in range(0, len(rows), FRAME_ROWS):
            yield pd.DataFrame(rows[start : start + FRAME_ROWS])


def rows_of_frame(frame: Any, columns: list[str], writers: Sequence[_ColumnWriter | None]) -> Iterator[tuple[Any, ...]]:
    """The rows of a DataFrame that a function yields, in the order of the output columns.

    Columns are read by name if all their names are strings, else by position, as on Spark. Missing values (NaN, NaT,
    NA) are null. `writers` are for the output columns.

    Raises:
        InvalidRequestError: It is no DataFrame, or has other columns.
    """
    import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        raise InvalidRequestError(f"the function yielded a {type(frame).__name__}; yield pandas DataFrames")
    if frame.empty:
        return iter(())
    named: Any = list(frame.columns)
    if all(isinstance(name, str) for name in named):
        missing = [name for name in columns if name not in named]
        if missing:
            raise InvalidRequestError(f"the function yielded a DataFrame without the columns {missing}; it has {named}")
        doubled = [name for name in columns if named.count(name) > 1]
        if doubled:
            raise InvalidRequestError(
                f"the function yielded a DataFrame with several columns named {doubled}; it has {named}: rename them"
            )
        series = [frame[name] for name in columns]
    else:
        if len(named) != len(columns):
            raise InvalidRequestError(f"the function yielded {len(named)} columns, expected {columns}")
        series = [frame.iloc[:, i] for i in range(len(columns))]
    return zip(*[_values(column, write) for column, write in zip(series, writers, strict=True)], strict=True)


def _values(series: Any, write: _ColumnWriter | None) -> list[Any]:
    if write is not None:
        series = write.zoned(series)
    if getattr(series.dtype, "tz", None) is not None:
        series = series.dt.tz_convert("UTC")  # as on Spark: a date or a clock that is made of it is UTC's
    missing = series.isna().tolist()
    plain = [None if is_na else plain_value(value) for value, is_na in zip(series.tolist(), missing, strict=True)]
    if series.dtype == object:
        plain = [_without_missing(value) if isinstance(value, list | tuple | dict) else value for value in plain]
    return plain if write is None else [None if value is None else write(value) for value in plain]


def _without_missing(value: Any) -> Any:
    """The value with None instead of NaN and NA within it, as Arrow reads values of pandas on Spark."""
    held: Any = value
    if isinstance(value, list | tuple):
        return [_without_missing(item) for item in held]
    if isinstance(value, dict):
        return {key: _without_missing(item) for key, item in held.items()}
    differs: Any = value != value  # noqa: PLR0124 - NaN differs from itself, and NA says neither
    return value if differs is False else None


class _ColumnWriter:
    """The conversion of a column's values, with errors that name the column."""

    def __init__(self, field: StructField, write: Callable[[Any], Any], zone: tzinfo | None) -> None:
        self._field = field
        self._write = write
        self._zone = zone if isinstance(field.dataType, TimestampType) else None

    def zoned(self, series: Any) -> Any:
        """Naive timestamps with pandas' dtype as those of the session's zone, all at once."""
        if self._zone is None or series.dtype.kind != "M" or getattr(series.dtype, "tz", None) is not None:
            return series
        try:
            return series.dt.tz_localize(self._zone, ambiguous=False)
        except ValueError:  # clocks never show one of them, which the conversion of each value names
            return series

    def __call__(self, value: Any) -> Any:
        try:
            return self._write(value)
        except (InvalidRequestError, OverflowError, ValueError) as error:
            raise InvalidRequestError(
                f"output column {self._field.name!r} is declared {self._field.dataType.simpleString()}, but the "
                f"function yielded {value!r} ({type(value).__name__}): {error}"
            ) from error
