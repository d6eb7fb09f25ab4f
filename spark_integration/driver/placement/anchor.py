"""The anchor: a table with one row per partition whose tasks ask for certain executors (design 9).

`mapInArrow` tasks have no wishes. Joined with the anchor they have those of the anchor's partition with the same
number, because it says that it is partitioned like the rows, so that Spark does not shuffle it. Nothing is cached or
computed for it: its rows and wishes are a list on the driver.

A join neither loses nor adds rows here: each has exactly one partner. Rows keep the order in which their partition read
them, in both forms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that every PySpark program uses

from varvite.spark_integration.driver.placement.decision import JoinForm
from varvite.spark_integration.messages.protocol import PARTITION_COLUMN
from varvite.storage.errors import InvariantError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from varvite.spark_integration.driver.placement.decision import Executor

_ARRIVAL_COLUMN: Final = "__varvite_arrival"
"""int64, in the merge form only: the row's place in what its partition has read."""
_HINTS: Final = {JoinForm.HASH: "shuffle_hash", JoinForm.MERGE: "merge"}
_JOINS: Final = {JoinForm.HASH: "ShuffledHashJoin", JoinForm.MERGE: "SortMergeJoin"}


class Anchor:
    """The anchor of operators with one parallelism, in one placement."""

    def __init__(self, session: SparkSession, by_partition: Sequence[Executor], form: JoinForm) -> None:
        """Make it; costs no job.

        Args:
            session: That of the rows; adaptive execution must be off.
            by_partition: The executor that each partition asks for.
            form: How rows are joined with it.

        Raises:
            InvariantError: Spark does not take it for partitioned.
            Py4JError: Spark's inside is another one than is known here.
        """
        self._session = session
        self._form = form
        self._parallelism = len(by_partition)
        self.by_partition = tuple(by_partition)
        self._table = _located_table(session, self.by_partition).hint(_HINTS[form])
        self._check()

    def partitioned(self, rows: DataFrame, partition: str) -> DataFrame:
        """The rows, each in the shuffle partition of its number, whose task asks for the partition's executor.

        Args:
            rows: Without a column `PARTITION_COLUMN`.
            partition: Their partition, as an expression that is never null.
        """
        # As an RDD, so that later plans do not contain the anchor: Spark does not recognise a copy of it, and would not
        # find the cached answer where somebody joins it with itself.
        joined: Any = self._joined(rows, partition)._jdf  # noqa: SLF001  there is no other way
        jsession: Any = self._session._jsparkSession  # noqa: SLF001
        opaque = jsession.internalCreateDataFrame(joined.queryExecution().toRdd(), joined.schema(), False)
        return DataFrame(opaque, self._session)

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
        """Whether rows reach their partitions by one shuffle, their own."""
        plan = str(_plan(self._joined(self._session.range(1), "CAST(id AS INT)")).toString())
        if plan.count("Exchange ") != 1 or _JOINS[self._form] not in plan:
            raise InvariantError(f"Spark joins rows with the anchor in another way than expected:\n{plan}")


def _located_table(session: SparkSession, by_partition: Sequence[Executor]) -> DataFrame:
    """A table of the partitions' numbers, one per partition, partitioned by them, with preferred locations.

    Spark's own code makes such tables with its inner API only: the list with locations is what `SparkContext.makeRDD`
    makes in Scala, and `LogicalRDD` is what a DataFrame is after a checkpoint, which keeps its partitioning.
    """
    # pyright knows nothing about the JVM behind py4j.
    context: Any = session.sparkContext
    jvm = context._jvm  # noqa: SLF001
    jsession: Any = session._jsparkSession  # noqa: SLF001
    count = len(by_partition)
    numbers = session.sql(f"SELECT * FROM VALUES {', '.join(f'({p})' for p in range(count))}")  # noqa: S608  numbers
    rows = jvm.scala.collection.immutable.ArraySeq.unsafeWrapArray(_plan(numbers).executeCollect())
    names = {e: jvm.PythonUtils.toSeq([f"executor_{e.host}_{e.id}"]) for e in set(by_partition)}
    wishes = jvm.PythonUtils.toScalaMap({partition: names[e] for partition, e in enumerate(by_partition)})
    any_class = getattr(getattr(jvm.scala.reflect, "ClassTag$"), "MODULE$").AnyRef()
    located = jvm.org.apache.spark.rdd.ParallelCollectionRDD(
        context._jsc.sc(),  # noqa: SLF001
        rows,
        count,
        wishes,
        any_class,
    )
    # The column must have no qualifier: else Spark forgets the partitioning where it copies the table.
    column = session.range(0, count, 1, 1).selectExpr(f"CAST(id AS INT) AS {PARTITION_COLUMN}")
    shuffled = _plan(column.repartitionById(count, F.col(PARTITION_COLUMN)))
    plain = jsession.internalCreateDataFrame(located, shuffled.schema(), False).queryExecution().logical()
    fields = context._gateway.new_array(jvm.java.lang.Object, plain.productArity())  # noqa: SLF001
    for index in range(plain.productArity()):
        fields[index] = plain.productElement(index)
    fields[0], fields[2] = shuffled.output(), shuffled.outputPartitioning()
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(jsession, plain.makeCopy(fields)), session)


def _plan(frame: Any) -> Any:
    """The physical plan of a DataFrame."""
    return frame._jdf.queryExecution().executedPlan()  # noqa: SLF001
