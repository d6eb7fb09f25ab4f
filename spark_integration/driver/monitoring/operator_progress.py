"""The operators of a job in the progress of Spark's query, as Spark shows its own stateful operators; pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryProgress

if TYPE_CHECKING:
    from varvite.spark_integration.driver.monitoring.statistics import CheckpointStatistics, OperatorStatistics

UNKNOWN = -1
"""Stands for a number that is not known, as in the progress of Spark's sinks."""


def with_operators(progress: StreamingQueryProgress, statistics: CheckpointStatistics | None) -> StreamingQueryProgress:
    """The progress of a batch with the job's operators, after Spark's own.

    Args:
        progress: Spark's.
        statistics: Of the same batch; None: there are none (any more).
    """
    if statistics is None or not statistics.operators:
        return progress
    fields = json.loads(progress.json)
    fields["stateOperators"] = [*fields.get("stateOperators", ()), *map(_operator, statistics.operators)]
    return StreamingQueryProgress.fromJson(fields)


def _operator(operator: OperatorStatistics) -> dict[str, Any]:
    spent_ms = {phase: round(ms) for phase, ms in operator.total_ms.items()}
    rows, size_bytes = operator.state_rows, operator.state_bytes
    return {
        "operatorName": operator.operator,
        "numRowsTotal": UNKNOWN if rows is None else rows,
        "numRowsUpdated": operator.mutations,
        "numRowsRemoved": UNKNOWN,  # changes are counted together
        "allUpdatesTimeMs": spent_ms.get("process", 0),
        "allRemovalsTimeMs": spent_ms.get("timers", 0),
        "commitTimeMs": spent_ms.get("checkpoint", 0),
        "memoryUsedBytes": UNKNOWN if size_bytes is None else size_bytes,
        "numRowsDroppedByWatermark": operator.late_rows,
        "numShufflePartitions": operator.partitions,
        "numStateStoreInstances": operator.partitions,
        "customMetrics": {
            "rowsIn": operator.rows_in,
            "rowsOut": operator.rows_out,
            **{f"{phase}TimeMs": ms for phase, ms in spent_ms.items()},
        },
    }
