"""Rows of Arrow batches as the pandas DataFrames that Spark's functions get, and DataFrames as output rows.

Columns are converted by Spark's own converter, so they have the dtypes that they have on Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.pandas.types import _create_converter_to_pandas, from_arrow_type

from varve.spark_integration.processor_states import plain_value
from varve.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

FRAME_ROWS: Final = 10_000
"""Rows of a DataFrame at most; Spark's default."""


def to_frame(batch: pa.RecordBatch) -> Any:
    """The batch as a DataFrame."""
    import pandas as pd

    columns: list[Any] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        given: Any = column
        kind = from_arrow_type(given.type)
        zone = getattr(given.type, "tz", None)
        convert = _create_converter_to_pandas(kind, True, timezone=zone, struct_in_pandas="dict")
        series: Any = convert(given.to_pandas(date_as_object=True, coerce_temporal_nanoseconds=True))
        if series.dtype.kind == "M":
            series = series.dt.as_unit("ns")
        columns.append(series.rename(name))
    return pd.concat(columns, axis=1)


class PandasRows:
    """Rows between the batch that they came in and the DataFrame of their key."""

    def rows(self, batch: pa.RecordBatch) -> list[Any]:
        """The rows of a batch."""
        return list(to_frame(batch).itertuples(index=False))

    def frames(self, rows: list[Any]) -> Iterator[Any]:
        """DataFrames of these rows, of `FRAME_ROWS` at most."""
        import pandas as pd

        for start in range(0, len(rows), FRAME_ROWS):
            yield pd.DataFrame(rows[start : start + FRAME_ROWS])


def rows_of_frame(frame: Any, columns: list[str]) -> Iterator[tuple[Any, ...]]:
    """The rows of a DataFrame that a function yielded, in the order of the output columns.

    Columns are found by name if all their names are strings, else by position, as on Spark. What is missing (NaN, NaT,
    NA) is null.

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
    return zip(*[_values(one) for one in series], strict=True)


def _values(series: Any) -> list[Any]:
    missing = series.isna().tolist()
    return [None if gone else plain_value(value) for value, gone in zip(series.tolist(), missing, strict=True)]
