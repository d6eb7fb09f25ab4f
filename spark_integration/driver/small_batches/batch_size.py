"""The size of a batch before it is read, as far as Spark knows it.

Sources of files tell the size of their files. A batch of heartbeats alone is known by its plan, from which Spark has
removed all that has no rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from varvite.spark_integration.connectors.heartbeats.heartbeat import HEARTBEAT_COLUMN
from varvite.spark_integration.driver.small_batches.way import BatchSize

if TYPE_CHECKING:
    from varvite.spark_integration.connectors.heartbeats.heartbeat import InputRows
    from varvite.spark_integration.connectors.running_query import RunningQuery

_UNKNOWN_BYTES: Final = 1 << 62
"""Spark's size of what tells nothing is about this, or more."""
NOTHING_KNOWN: Final = BatchSize()
EMPTY: Final = BatchSize(rows_max=0, size_bytes=0)


class BatchSizes:
    """Tells the sizes of a query's batches; `query` is None for a job without heartbeats."""

    def __init__(self, query: RunningQuery | None) -> None:
        self._query = query
        self._tells_size = True

    def of(self, rows: InputRows) -> BatchSize:
        """The size of the batch with these rows. Raises `Py4JError`, `DidNotHappenError`."""
        if self._query is not None and is_heartbeat(self._query.execution().lastExecution().optimizedPlan()):
            return EMPTY
        if not self._tells_size:
            return NOTHING_KNOWN
        inner: Any = rows.frame._jdf  # noqa: SLF001  there is no public way to a plan's statistics
        size_bytes = int(str(inner.queryExecution().analyzed().stats().sizeInBytes()))
        self._tells_size = size_bytes < _UNKNOWN_BYTES
        return BatchSize(size_bytes=size_bytes) if self._tells_size else NOTHING_KNOWN


def is_heartbeat(plan: Any) -> bool:
    """Has a batch with this optimized plan no other rows than heartbeats? False if it cannot be seen."""
    if plan.nodeName() != "Project":
        return False
    column = plan.projectList().last()
    if column.name() != HEARTBEAT_COLUMN or column.nodeName() != "Alias":
        return False
    return bool(column.child().nodeName() == "GreaterThanOrEqual")  # of the user's rows it is the literal false
