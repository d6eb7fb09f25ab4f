"""`mapInArrow` for rows whatever their columns are called: PySpark's own asks for each by its name as an expression."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def map_in_arrow(rows: DataFrame, function: ArrowFunction, schema: StructType) -> DataFrame:
    """What the function makes of the rows; it sees the columns under their names, dots and backticks included."""
    names = rows.columns
    if not any("." in name or "`" in name for name in names):
        return rows.mapInArrow(function, schema)
    plain: Any = rows.toDF(*[f"c{number}" for number in range(len(names))])
    return plain.mapInArrow(_UnderNames(function, names), schema)


class _UnderNames:
    """The function for batches whose columns are called otherwise than it expects; picklable."""

    def __init__(self, function: ArrowFunction, names: list[str]) -> None:
        self._function = function
        self._names = names

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self._function(batch.rename_columns(self._names) for batch in batches)
