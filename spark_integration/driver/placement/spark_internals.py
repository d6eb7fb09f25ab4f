"""Calls of Spark's inner API that placement needs; nothing else of varvite calls it for that.

Where Spark's internals are others than known here, py4j's errors or an `InvariantError` switch placement off for the
run, with a warning (`anchors`). `tests/spark/cluster/test_anchor.py` is the contract test.

| Spark | tried |
|---|---|
| 4.3 | yes, all of `tests/spark` |
| 4.1, 4.2 | no; no call is known to differ |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that every PySpark program uses

from varvite.spark_integration.driver.placement.decision import Executor
from varvite.spark_integration.messages.protocol import PARTITION_COLUMN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_USABLE_EXECUTORS: Final = """
java.util.List known = new java.util.ArrayList();
synchronized (scheduler) {
    scala.Option health = scheduler.healthTrackerOpt();
    scala.collection.Iterator all = scheduler.executorIdToHost().iterator();
    while (all.hasNext()) {
        scala.Tuple2 executor = (scala.Tuple2) all.next();
        if (health.nonEmpty()) {
            org.apache.spark.scheduler.HealthTracker tracker = (org.apache.spark.scheduler.HealthTracker) health.get();
            if (tracker.isExecutorExcluded((String) executor._1()) || tracker.isNodeExcluded((String) executor._2()))
                continue;
        }
        known.add(executor);
    }
}
StringBuilder usable = new StringBuilder();
for (int i = 0; i < known.size(); i++) {
    scala.Tuple2 executor = (scala.Tuple2) known.get(i);
    if (backend.isExecutorActive((String) executor._1()))
        usable.append(executor._1()).append(' ').append(executor._2()).append('\\n');
}
return usable.toString();
"""
"""Returns a line `<id> <host>` for each. It never holds the scheduler's and the backend's lock together."""


class LiveExecutors:
    """The executors that take tasks, as the driver's JVM knows them.

    PySpark has no call for it, and Spark has none that answers at once. It is read before each batch, so it is a piece
    of Java that Spark's own compiler of generated code (Janino) compiles in the driver's JVM: one call, 0.2 ms.
    """

    def __init__(self, context: SparkContext) -> None:
        python: Any = context
        jvm, new_array = python._jvm, python._gateway.new_array  # noqa: SLF001  there is no other way
        scala = python._jsc.sc()  # noqa: SLF001
        self._evaluator = jvm.org.codehaus.janino.ScriptEvaluator()
        self._arguments = new_array(jvm.java.lang.Object, 2)
        names, types = new_array(jvm.java.lang.String, 2), new_array(jvm.java.lang.Class, 2)
        for index, (name, value) in enumerate(
            (("backend", scala.schedulerBackend()), ("scheduler", scala.taskScheduler()))
        ):
            names[index], types[index], self._arguments[index] = name, value.getClass(), value
        self._evaluator.setParentClassLoader(scala.getClass().getClassLoader())
        self._evaluator.setParameters(names, types)
        self._evaluator.setReturnType(jvm.java.lang.Class.forName("java.lang.String"))
        self._evaluator.cook(_USABLE_EXECUTORS)

    def usable(self) -> frozenset[Executor]:
        """Executors that Spark gives tasks to: none that is going away, is being decommissioned, or is excluded."""
        return frozenset(Executor(*line.split(" ")) for line in self._evaluator.evaluate(self._arguments).splitlines())


def located_table(session: SparkSession, by_partition: Sequence[Executor]) -> DataFrame:
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
    rows = jvm.scala.collection.immutable.ArraySeq.unsafeWrapArray(physical_plan(numbers).executeCollect())
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
    shuffled = physical_plan(column.repartitionById(count, F.col(PARTITION_COLUMN)))
    plain = jsession.internalCreateDataFrame(located, shuffled.schema(), False).queryExecution().logical()
    fields = context._gateway.new_array(jvm.java.lang.Object, plain.productArity())  # noqa: SLF001
    for index in range(plain.productArity()):
        fields[index] = plain.productElement(index)
    fields[0], fields[2] = shuffled.output(), shuffled.outputPartitioning()
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(jsession, plain.makeCopy(fields)), session)


def physical_plan(frame: Any) -> Any:
    """The physical plan of a DataFrame."""
    return frame._jdf.queryExecution().executedPlan()  # noqa: SLF001


def opaque(session: SparkSession, rows: DataFrame) -> DataFrame:
    """The rows as an RDD, so that later plans do not contain how they were frame."""
    jsession: Any = session._jsparkSession  # noqa: SLF001
    inner: Any = rows._jdf  # noqa: SLF001  there is no other way
    frame = jsession.internalCreateDataFrame(inner.queryExecution().toRdd(), inner.schema(), False)
    return DataFrame(frame, session)
