"""The initial state of an operator: rows that go to it with the job's first batch, each to the partition of its key.

Invariants: I3 (they belong to the batch that is executed on the empty beginning of the chain, and to its every attempt;
once a batch is committed they are never read again).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, GroupedData
from pyspark.sql import functions as F  # noqa: N812  the name that every PySpark program uses

from varvite.spark_integration.elements.arrow_rows import quoted
from varvite.spark_integration.operators.processors.grouped_function import INITIAL_COLUMN
from varvite.spark_integration.plan.operator import check_columns, key_type_of
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialState:
    """Rows, and which of their columns are the key."""

    rows: DataFrame = field(repr=False)
    columns: tuple[str, ...]
    """In the order of the operator's key columns."""
    key_columns: tuple[str, ...]
    """Names of the operator's key columns."""

    def united_with(self, rows: DataFrame) -> DataFrame:
        """The operator's input, with these rows beside it."""
        keys = [F.col(quoted(own)).alias(name) for own, name in zip(self.columns, self.key_columns, strict=True)]
        beside = self.rows.select(*keys, F.struct(F.col("*")).alias(INITIAL_COLUMN))
        return rows.unionByName(beside, allowMissingColumns=True)


def initial_state_of(given: Any, schema: StructType, key_columns: Sequence[str]) -> InitialState | None:
    """What a user gives as `initialState`.

    Args:
        given: `df.groupBy(...)`, or None.
        schema: Columns of the stream.
        key_columns: Those that it is keyed by.

    Raises:
        InvalidRequestError: It is something else, a stream, or grouped by other types.
    """
    if given is None:
        return None
    if not isinstance(given, GroupedData):
        raise InvalidRequestError(
            f"the initial state is a grouped DataFrame, df.groupBy(...), not a {type(given).__name__}"
        )
    rows: Any = given._df  # noqa: SLF001  there is no other way to the DataFrame
    if rows.isStreaming:
        raise InvalidRequestError("the initial state is a stream; give a DataFrame of spark.read or createDataFrame")
    check_columns(rows.schema, "the initial state")
    columns = tuple(given.count().columns[:-1])
    if len(columns) != len(key_columns):
        raise InvalidRequestError(
            f"the initial state is grouped by {list(columns)}, the stream is keyed by {list(key_columns)}"
        )
    found, wanted = key_type_of(rows.schema, columns), key_type_of(schema, key_columns)
    if found.type_string() != wanted.type_string():
        raise InvalidRequestError(
            f"the initial state is grouped by {list(columns)} of type {found}, the stream's key is of type {wanted}; "
            "cast the columns"
        )
    return InitialState(rows=rows, columns=columns, key_columns=tuple(key_columns))
