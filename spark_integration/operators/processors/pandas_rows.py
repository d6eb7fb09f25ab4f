"""Rows of Arrow batches as the pandas DataFrames that Spark's functions get, and DataFrames as output rows.

Columns are converted by Spark's own converter, so they have the dtypes that they have on Spark. As there, timestamps
are naive in both directions, in the session's time zone. It is that of the input's columns; without any timestamp in
the input it is the local one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import _create_converter_to_pandas, from_arrow_type

from varvite.changelog.types.factory import as_type
from varvite.spark_integration.elements.arrow_values import zone_in
from varvite.spark_integration.elements.row_values import plain_value, value_writer
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import tzinfo

    from pyspark.sql.types import StructType

FRAME_ROWS: Final = 10_000
"""Rows of a DataFrame at most; Spark's default."""


def to_frame(batch: pa.RecordBatch) -> Any:
    """The batch as a DataFrame."""
    import pandas as pd

    columns: list[Any] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        given: Any = column
        kind = from_arrow_type(given.type)
        convert = _create_converter_to_pandas(kind, True, timezone=zone_in(given.type), struct_in_pandas="dict")
        series: Any = convert(given.to_pandas(date_as_object=True, coerce_temporal_nanoseconds=True))
        if series.dtype.kind == "M":
            series = series.dt.as_unit("ns")
        columns.append(series.rename(name))
    return pd.concat(columns, axis=1)


class PandasRows:
    """Rows between the batch that they came in and the DataFrame of their key, and those of DataFrames that come out.

    Args:
        output: Columns of the output.
    """

    def __init__(self, output: StructType) -> None:
        self._names = output.names
        self._output = output
        self._zone: str | None = None
        self._writers = _writers(output, None)

    def note_zone(self, schema: pa.Schema) -> None:
        """Input with that schema comes: its time zone is that of the output."""
        zone = next(filter(None, (zone_in(field.type) for field in schema)), None)
        if zone is not None and zone != self._zone:
            self._zone = zone
            epoch: Any = pa.scalar(0, pa.timestamp("us", tz=zone)).as_py()
            self._writers = _writers(self._output, epoch.tzinfo)

    def rows(self, batch: pa.RecordBatch) -> list[Any]:
        """The rows of a batch."""
        self.note_zone(batch.schema)
        return list(to_frame(batch).itertuples(index=False))

    def output_rows(self, frame: Any) -> Iterator[tuple[Any, ...]]:
        """The rows of a DataFrame that a function yielded; see `rows_of_frame`."""
        return rows_of_frame(frame, self._names, self._writers)

    def frames(self, rows: list[Any]) -> Iterator[Any]:
        """DataFrames of these rows, of `FRAME_ROWS` at most."""
        import pandas as pd

        for start in range(0, len(rows), FRAME_ROWS):
            yield pd.DataFrame(rows[start : start + FRAME_ROWS])


def rows_of_frame(
    frame: Any, columns: list[str], writers: Sequence[Callable[[Any], Any] | None]
) -> Iterator[tuple[Any, ...]]:
    """The rows of a DataFrame that a function yielded, in the order of the output columns.

    Columns are found by name if all their names are strings, else by position, as on Spark. What is missing (NaN, NaT,
    NA) is null. `writers` are for the output columns.

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
        series = [frame[name] for name in columns]
    else:
        if len(named) != len(columns):
            raise InvalidRequestError(f"the function yielded {len(named)} columns, expected {columns}")
        series = [frame.iloc[:, i] for i in range(len(columns))]
    return zip(*[_values(one, write) for one, write in zip(series, writers, strict=True)], strict=True)


def _values(series: Any, write: Callable[[Any], Any] | None) -> list[Any]:
    missing = series.isna().tolist()
    plain = [None if gone else plain_value(value) for value, gone in zip(series.tolist(), missing, strict=True)]
    return plain if write is None else [None if value is None else write(value) for value in plain]


def _writers(output: StructType, zone: tzinfo | None) -> list[Callable[[Any], Any] | None]:
    """For each column how its plain values say their time zone; None where there is nothing to say."""
    writers: list[Callable[[Any], Any] | None] = []
    for field in output.fields:
        try:
            writers.append(value_writer(as_type(field.dataType), zone))
        except InvalidRequestError:  # a type that state does not have, which is none of timestamps
            writers.append(None)
    return writers
