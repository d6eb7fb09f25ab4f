"""The executors that take tasks, as the driver's JVM knows them.

PySpark has no call for it, and Spark has none that answers at once. It is asked before each batch, so the question is a
piece of Java that Spark's own compiler of generated code (Janino) compiles in the driver's JVM: one call, 0.2 ms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from varvite.spark_integration.driver.placement.decision import Executor

if TYPE_CHECKING:
    from pyspark import SparkContext

_QUESTION: Final = """
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
"""A line `<id> <host>` for each. It never holds the scheduler's and the backend's lock together."""


class LiveExecutors:
    """See the module. Every method may raise what py4j raises, where Spark's inside is another one."""

    def __init__(self, context: SparkContext) -> None:
        python: Any = context
        jvm, new_array = python._jvm, python._gateway.new_array  # noqa: SLF001  there is no other way
        scala = python._jsc.sc()  # noqa: SLF001
        self._question = jvm.org.codehaus.janino.ScriptEvaluator()
        self._given = new_array(jvm.java.lang.Object, 2)
        names, types = new_array(jvm.java.lang.String, 2), new_array(jvm.java.lang.Class, 2)
        for index, (name, value) in enumerate(
            (("backend", scala.schedulerBackend()), ("scheduler", scala.taskScheduler()))
        ):
            names[index], types[index], self._given[index] = name, value.getClass(), value
        self._question.setParentClassLoader(scala.getClass().getClassLoader())
        self._question.setParameters(names, types)
        self._question.setReturnType(jvm.java.lang.Class.forName("java.lang.String"))
        self._question.cook(_QUESTION)

    def usable(self) -> frozenset[Executor]:
        """Those that Spark gives tasks to: not one that is going away, is being decommissioned, or is excluded."""
        return frozenset(Executor(*line.split(" ")) for line in self._question.evaluate(self._given).splitlines())
