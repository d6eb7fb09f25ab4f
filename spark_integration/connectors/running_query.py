"""The start of Spark's query, and the query while it runs, asked inside foreachBatch through inner classes of Spark.

Spark has planned the batch then, and holds its offsets in memory, whether it has written its logs or not.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, IllegalArgumentException

from varvite.spark_integration.options.progress_mode import SPARK_OPTIONS
from varvite.storage.errors import DidNotHappenError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from varvite.spark_integration.options.progress_mode import ProgressMode

_log: Final = logging.getLogger(__name__)
_REFUSAL: Final = "async progress tracking"
"""Part of Spark's error if it refuses the options."""
_ASYNCHRONOUS: Final = "AsyncProgressTracking"
"""Part of the name of the class by which Spark runs a query that writes its logs rarely."""


def start_query(writer: DataStreamWriter, progress: ProgressMode) -> StreamingQuery:
    """Start a query; in a version of Spark that refuses to write its logs rarely, with logs in each batch."""
    if not progress.is_in_chain:
        return writer.start()
    try:
        return writer.options(**SPARK_OPTIONS).start()
    except (IllegalArgumentException, AnalysisException) as error:
        if _REFUSAL not in str(error).lower():
            raise
        _log.warning("this Spark writes its logs in each batch, because it refuses not to: %s", error)
    return writer.options(asyncProgressTrackingEnabled="false").start()


class RunningQuery:
    """A query of Spark's that runs.

    Raises (all methods):
        DidNotHappenError: Spark's query cannot be asked.

    Args:
        session: A session of its application.
        name: The query's name.
    """

    def __init__(self, session: SparkSession, name: str) -> None:
        self._session: Any = session
        self._name = name
        self._execution: Any = None
        self._buffer: Any = None
        """Java's class, which takes milliseconds to find."""

    def execution(self) -> Any:
        """Spark's own object, a `MicroBatchExecution`."""
        if self._execution is None:
            with self.asked("its execution"):
                for query in self._session._jsparkSession.streams().active():  # noqa: SLF001  not PySpark's handle
                    if query.name() == self._name:
                        self._execution = query.streamingQuery()
                        return self._execution
            raise DidNotHappenError(f"Spark does not run the query {self._name!r} any more; start it again")
        return self._execution

    def writes_rarely(self) -> bool:
        """Does Spark write its logs rarely, so that the location lags behind?"""
        with self.asked("its class"):
            return _ASYNCHRONOUS in str(self.execution().getClass().getName())

    def offsets(self, batch: int) -> bytes | None:
        """The bytes of `offsets/<batch>`, of a batch that is being executed; None if Spark does not hold them."""
        with self.asked(f"the offsets of batch {batch}"):
            log = self.execution().offsetLog()
            entry = log.get(batch)
            if entry.isEmpty():
                return None
            if self._buffer is None:
                self._buffer = self._session._jvm.java.io.ByteArrayOutputStream  # noqa: SLF001  as above
            written = self._buffer()
            log.serialize(entry.get(), written)
            return bytes(written.toByteArray())

    @contextmanager
    def asked(self, subject: str) -> Iterator[None]:
        """Translate what Spark's objects raise inside of the block."""
        try:
            yield
        except Py4JError as error:
            raise DidNotHappenError(
                f"Spark's query {self._name!r} cannot be asked for {subject} ({error}); start the query again"
            ) from error
