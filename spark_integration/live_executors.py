"""The executors of the application, as the driver's JVM knows them.

PySpark has no call for it, so this goes through the JVM's own objects. To ask whether anything has changed costs a call
of some tenths of a millisecond; only then are hosts asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from varve.spark_integration.placement import Executor

if TYPE_CHECKING:
    from pyspark import SparkContext


class LiveExecutors:
    """See the module. Every method may raise what py4j raises, where Spark's inside is another one."""

    def __init__(self, context: SparkContext) -> None:
        python: Any = context
        scala = python._jsc.sc()  # noqa: SLF001  there is no other way
        self._backend = scala.schedulerBackend()
        self._statuses = scala.statusStore()

    def ids(self) -> frozenset[str]:
        """Of all that are registered."""
        return frozenset(filter(None, self._backend.getExecutorIds().mkString("\n").split("\n")))

    def usable(self, ids: frozenset[str]) -> frozenset[Executor]:
        """Those of `ids` that take tasks: neither going away nor, as yet, unknown to Spark's own statistics."""
        summaries = self._statuses.executorList(True)
        found: set[Executor] = set()
        for index in range(summaries.size()):
            summary = summaries.apply(index)
            name = str(summary.id())
            if name in ids and self._backend.isExecutorActive(name):
                found.add(Executor(name, str(summary.hostPort()).rpartition(":")[0]))
        return frozenset(found)
