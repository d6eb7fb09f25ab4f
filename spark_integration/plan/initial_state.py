"""`InitialState`: rows that go to an operator with the job's first batch, each to the partition of its key.

Invariants: I3 (the rows belong to the batch on the empty beginning of the chain, and to each attempt of it; once a
batch is committed they are never read again).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  the name that every PySpark program uses

from varvite.spark_integration.elements.arrow_rows import quoted
from varvite.spark_integration.operators.processors.grouped_function import INITIAL_COLUMN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialState:
    """Rows, and the columns of them that make the key."""

    rows: DataFrame = field(repr=False)
    columns: tuple[str, ...]
    """In the order of the operator's key columns."""
    key_columns: tuple[str, ...]
    """Names of the operator's key columns."""

    def united_with(self, rows: DataFrame) -> DataFrame:
        """The operator's input, with these rows beside it."""
        keys = [F.col(quoted(column)).alias(name) for column, name in zip(self.columns, self.key_columns, strict=True)]
        beside = self.rows.select(*keys, F.struct(F.col("*")).alias(INITIAL_COLUMN))
        return rows.unionByName(beside, allowMissingColumns=True)
