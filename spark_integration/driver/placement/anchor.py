"""The anchor: a table with one row per partition whose tasks ask for certain executors.

`mapInArrow` tasks have no wishes. Joined with the anchor they have those of the anchor's partition with the same
number, because it says that it is partitioned like the rows, so that Spark does not shuffle it. Nothing is cached or
computed for it: its rows and wishes are a list on the driver.

A join neither loses nor adds rows here: each has exactly one partner. Rows keep the order in which their partition read
them, in both forms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812  the name that every PySpark program uses

from varvite.spark_integration.driver.placement.decision import JoinForm
from varvite.spark_integration.driver.placement.spark_internals import located_table, opaque, physical_plan
from varvite.spark_integration.messages.protocol import PARTITION_COLUMN
from varvite.storage.errors import InvariantError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from varvite.spark_integration.driver.placement.decision import Executor

_ARRIVAL_COLUMN: Final = "__varvite_arrival"
"""int64, in the merge form only: the row's place in what its partition has read."""
_HINTS: Final = {JoinForm.HASH: "shuffle_hash", JoinForm.MERGE: "merge"}
_JOINS: Final = {JoinForm.HASH: "ShuffledHashJoin", JoinForm.MERGE: "SortMergeJoin"}


class Anchor:
    """The anchor of operators with one parallelism, in one placement."""

    def __init__(self, session: SparkSession, by_partition: Sequence[Executor], form: JoinForm) -> None:
        """Make the table; costs no job.

        Args:
            session: Session of the rows; adaptive execution must be off.
            by_partition: The executor that each partition asks for.
            form: How rows are joined with it.

        Raises:
            InvariantError: Spark does not take it for partitioned.
            Py4JError: Spark's internals are others than known.
        """
        self._session = session
        self._form = form
        self._parallelism = len(by_partition)
        self.by_partition = tuple(by_partition)
        self._table = located_table(session, self.by_partition).hint(_HINTS[form])
        self._check()

    def partitioned(self, rows: DataFrame, partition: str) -> DataFrame:
        """The rows, each in the shuffle partition of its number, whose task asks for the partition's executor.

        Args:
            rows: Without a column `PARTITION_COLUMN`.
            partition: Their partition, as an expression that is never null.
        """
        # Else Spark does not recognise a copy of the plan with the anchor, and would not find the cached answer where
        # somebody joins it with itself.
        return opaque(self._session, self._joined(rows, partition))

    def _joined(self, rows: DataFrame, partition: str) -> DataFrame:
        # Where Spark believes in nulls it would filter them out.
        rows = rows.selectExpr("*", f"coalesce({partition}, 0) AS {PARTITION_COLUMN}")
        rows = rows.repartitionById(self._parallelism, F.col(PARTITION_COLUMN))
        if self._form is JoinForm.HASH:
            return rows.join(self._table, PARTITION_COLUMN).drop(PARTITION_COLUMN)
        rows = rows.selectExpr("*", f"monotonically_increasing_id() AS {_ARRIVAL_COLUMN}")
        joined = self._table.join(rows, PARTITION_COLUMN)
        # The join's own sort does not keep the order once it spills, and Spark removes sorts in front of joins.
        return joined.sortWithinPartitions(_ARRIVAL_COLUMN).drop(PARTITION_COLUMN, _ARRIVAL_COLUMN)

    def _check(self) -> None:
        """Raise unless rows reach their partitions by one shuffle, their own."""
        plan = str(physical_plan(self._joined(self._session.range(1), "CAST(id AS INT)")).toString())
        if plan.count("Exchange ") != 1 or _JOINS[self._form] not in plan:
            raise InvariantError(f"Spark joins rows with the anchor in another way than expected:\n{plan}")
