"""Spark's own watermark of a running query, as it would reach a stateful operator at the end of Spark's plan.

Spark has one watermark for a query: by `spark.sql.streaming.multipleWatermarkPolicy` the least or the largest of all
`withWatermark` calls, each behind the rows that passed it. Each stateful operator of Spark hands it on, and a join of
two streams holds it back. `tests/spark/job/test_spark_watermarks.py` compares with Spark.

Spark computes the next batch's watermark after a batch, of what its rows have left behind. This asks for it somewhat
earlier: when the rows were read and before the commit, which keeps it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError

from varvite.spark_integration.connectors.running_query import RunningQuery
from varvite.spark_integration.plan.stateless import children_of
from varvite.storage.errors import DidNotHappenError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JOIN: Final = "StreamingSymmetricHashJoin"
"""The operator of Spark that hands on another watermark than it gets, of those that hand one on."""


class SparkWatermark:
    """The watermark of a query.

    Args:
        session: The session that runs it.
        query: Its name.
    """

    def __init__(self, session: SparkSession, query: str) -> None:
        self._query = RunningQuery(session, query)
        self._has_join: bool | None = None

    def after_batch(self) -> int | None:
        """The watermark that the next batch begins with, milliseconds; None: Spark has none yet.

        Call it inside foreachBatch, when the rows have been read.

        Raises:
            DidNotHappenError: Spark's query cannot be asked.
        """
        try:
            execution = self._query.execution()
            plan = execution.lastExecution().executedPlan()
            tracker = execution.watermarkTracker()
            tracker.updateWatermark(plan)  # idempotent: Spark does the same at the end of the batch
            reached_ms = int(tracker.currentWatermark())
            if self._has_join is None:
                self._has_join = _has_join(plan)
            if self._has_join:
                reached_ms = _handed_on(plan, reached_ms)
        except Py4JError as error:
            raise DidNotHappenError(
                f"Spark's watermark of query {self._query.name!r} cannot be read ({error}); start the query again, or "
                "leave withWatermark out and call with_watermark right after from_dataframe"
            ) from error
        return reached_ms or None  # Spark's is 0 before it has seen an event time


def _handed_on(node: Any, watermark_ms: int) -> int | None:
    """The watermark behind a node of a physical plan, by the rule of Spark's `PropagateWatermarkSimulator`."""
    if node.nodeName() == "EventTimeWatermark":
        return watermark_ms
    inputs = [_handed_on(child, watermark_ms) for child in children_of(node)]
    least_ms = min((time for time in inputs if time is not None), default=None)
    if least_ms is None or node.nodeName() != _JOIN:
        return least_ms
    produced = node.produceOutputWatermark(least_ms)
    return int(produced.get()) if produced.isDefined() else None


def _has_join(node: Any) -> bool:
    return node.nodeName() == _JOIN or any(map(_has_join, children_of(node)))
