"""Switches off Spark's measuring of Arrow batches where they are small anyway.

Spark measures each row for `spark.sql.execution.arrow.maxBytesPerBatch`, which costs more than the rest of writing
small rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

    from varvite.spark_integration.messages.operator_summaries import OperatorSummaries

MAX_RECORDS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
MAX_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
UNMEASURED: Final = str((1 << 31) - 1)
"""The value of `MAX_BYTES` with which Spark does not measure."""
SMALL_BATCH_BYTES: Final = 64 << 20
"""Spark's own default of `MAX_BYTES`."""


def may_skip_measuring(row_bytes_max: int | None, rows_per_batch: int) -> bool:
    """Do full batches of such rows stay far below Arrow's limit?

    Args:
        row_bytes_max: Largest mean size of the rows of an Arrow batch; None if none was seen.
        rows_per_batch: Rows after which Spark ends a batch; 0 or less: never.
    """
    return row_bytes_max is not None and rows_per_batch > 0 and row_bytes_max * rows_per_batch <= SMALL_BATCH_BYTES


class ArrowBatchLimit:
    """Sets `MAX_BYTES` of the stream's session after each batch; leaves it alone if the user has set it."""

    def __init__(self, session: SparkSession) -> None:
        self._conf = session.conf
        self._is_mine = session.conf.get(MAX_BYTES, None) is None
        self._measured = str(session.conf.get(MAX_BYTES))
        self._rows_per_batch = int(str(session.conf.get(MAX_RECORDS)))
        self._skips = False

    def after(self, summaries: Iterable[OperatorSummaries]) -> None:
        """Set the limit of the next batch by the rows of the one that has just ended."""
        if not self._is_mine:
            return
        sizes = [size for size in (operator.largest("row_bytes_max") for operator in summaries) if size is not None]
        skip = may_skip_measuring(max(sizes), self._rows_per_batch) if sizes else self._skips
        if skip != self._skips:
            self._conf.set(MAX_BYTES, UNMEASURED if skip else self._measured)
            self._skips = skip
