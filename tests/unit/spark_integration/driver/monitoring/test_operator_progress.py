"""The job's operators in Spark's progress."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress

from tests.workers.checkpoint_figures import statistics
from varvite.spark_integration.driver.monitoring.operator_progress import UNKNOWN, with_operators
from varvite.spark_integration.driver.monitoring.statistics import OperatorStatistics

SPARKS: dict[str, Any] = {
    "operatorName": "dedupe", "numRowsTotal": 1, "numRowsUpdated": 1, "numRowsRemoved": 0, "allUpdatesTimeMs": 1,
    "allRemovalsTimeMs": 1, "commitTimeMs": 1, "memoryUsedBytes": 1, "numRowsDroppedByWatermark": 0,
    "numShufflePartitions": 2, "numStateStoreInstances": 2, "customMetrics": {},
}  # fmt: skip
PROGRESS: dict[str, Any] = {
    "id": "6a8c1a9e-1c1f-4c4e-8b3d-0d9f7f6f0f01", "runId": "6a8c1a9e-1c1f-4c4e-8b3d-0d9f7f6f0f02", "name": "job",
    "timestamp": "2026-01-01T00:00:00.000Z", "batchId": 7, "batchDuration": 3, "durationMs": {"addBatch": 2},
    "eventTime": {"watermark": "2026-01-01T00:00:00.000Z"}, "stateOperators": [SPARKS], "sources": [],
    "sink": {"description": "ForeachBatchSink", "numOutputRows": -1, "metrics": {}}, "numInputRows": 4,
    "inputRowsPerSecond": 1.0, "processedRowsPerSecond": 2.0,
}  # fmt: skip
OPERATOR = OperatorStatistics(
    operator="sums", partitions=4, rows_in=10, rows_out=9, mutations=6, late_rows=3, state_rows=100, state_bytes=None,
    total_ms={"process": 20.4, "timers": 3.0, "checkpoint": 1.6},
)  # fmt: skip


def test_progress_has_the_operators_with_late_rows_and_metrics() -> None:
    """Found as an IndexError of programs that read stateOperators[0]."""
    progress = StreamingQueryProgress.fromJson(PROGRESS)
    made = with_operators(progress, statistics(operators=(OPERATOR,)))
    assert [operator.operatorName for operator in made.stateOperators] == ["dedupe", "sums"], "Spark's own come first"
    ours = made.stateOperators[1]
    assert (ours.numRowsTotal, ours.numRowsUpdated, ours.numRowsDroppedByWatermark) == (100, 6, 3)
    assert (ours.numRowsRemoved, ours.memoryUsedBytes) == (UNKNOWN, UNKNOWN), "what is not known is not 0"
    assert (ours.allUpdatesTimeMs, ours.allRemovalsTimeMs, ours.commitTimeMs) == (20, 3, 2)
    assert ours.customMetrics == {
        "rowsIn": 10,
        "rowsOut": 9,
        "processTimeMs": 20,
        "timersTimeMs": 3,
        "checkpointTimeMs": 2,
    }
    assert (made.batchId, made.numInputRows, made.durationMs) == (7, 4, {"addBatch": 2})
    assert "sums" in made.json


def test_progress_of_a_batch_without_statistics_is_sparks() -> None:
    progress = StreamingQueryProgress.fromJson(PROGRESS)
    assert with_operators(progress, None) is progress
    assert with_operators(progress, statistics()) is progress
