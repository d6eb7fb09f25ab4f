"""The running query: Spark's own `StreamingQuery`, with readable errors and a stop between batches.

Spark keeps only the text of a batch's exception, in a `StreamingQueryException`. `BatchFunction` keeps the exception
itself, and the query raises it: a `VarviteError` (a `UserFunctionError` for the user's own functions and sinks)
replaces Spark's exception, any other becomes the cause of Spark's.

Spark's `stop()` during an action of foreachBatch can kill the stream thread with a StackOverflowError, so `stop` first
lets the running batch end, but not for ever: a batch that takes too long is cut off.
"""

from __future__ import annotations

import logging
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from varvite.spark_integration.api.job_client import JobClient
from varvite.spark_integration.driver.monitoring.operator_progress import with_operators
from varvite.storage.clock import SystemClock
from varvite.storage.errors import InvalidRequestError, VarviteError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    from varvite.spark_integration.driver.monitoring.statistics import StatisticsLog

_log: Final = logging.getLogger(__name__)
STOP_TIMEOUT_S: Final = 60.0
HEARTBEAT_S: Final = 1.1
"""After so long Spark has a heartbeat for one more batch."""
CANCEL_TIMEOUT_S: Final = 5.0
"""Time in which a batch ends whose jobs were cancelled; a sink that takes longer is left alone."""


class QueryRun(Protocol):
    """The part of the coordinator that a query needs."""

    statistics: StatisticsLog

    @property
    def job_id(self) -> str:
        """The job's id."""
        ...

    @property
    def metrics_port(self) -> int | None:
        """The port on which the driver serves the query's metrics; None if it does not."""
        ...

    def request_stop(self, timeout_s: float) -> bool:
        """Begin no further batch, and wait for the end of the one that is running; False if it takes longer."""
        ...

    def cancel(self, run_id: str) -> None:
        """Cut off the batch that is running, of that run of Spark's query."""
        ...

    def stop(self) -> None:
        """The query has ended: release everything. May be called twice."""
        ...

    def is_caught_up(self) -> bool:
        """True if Spark has acknowledged the last batch that it has planned."""
        ...

    def has_moved_watermark(self) -> bool:
        """True if the last batch has moved the watermark, so that timers may be due that no batch has fired."""
        ...


class BatchFunction:
    """The function that Spark calls for each batch; keeps the exception of a batch."""

    def __init__(self, process: Callable[[DataFrame, int], None]) -> None:
        self._process = process
        self._thread: int | None = None
        self._connection: Any = None
        self.error: Exception | None = None
        """The exception of the batch that ended the query, if one did."""

    def __call__(self, rows: DataFrame, batch: int) -> None:
        self._thread = threading.get_ident()
        self._connection = _connection_to_jvm(rows.sparkSession)
        try:
            self._process(rows, batch)
        except Exception as error:
            self.error = self.error or error
            raise
        finally:
            self._thread = self._connection = None

    def abandon(self) -> None:
        """Let Spark's thread go on without the function, which does not return."""
        from varvite.spark_integration.driver.coordinator import StopRequestedError

        self.error = StopRequestedError("the query was stopped, and its sink did not return")
        connection = getattr(self._connection, "socket", None)
        if connection is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    @property
    def is_caller(self) -> bool:
        """True if the current thread is inside a batch."""
        return self._thread == threading.get_ident()


class LaunchedQuery(NamedTuple):
    """A query of Spark's that runs, with the run behind it."""

    query: StreamingQuery
    run: QueryRun
    """The coordinator, whose resources the query holds."""
    batches: BatchFunction
    """The function that Spark calls for each batch."""


def _connection_to_jvm(session: SparkSession) -> Any:
    """The connection over which Spark's thread waits for the function; None if PySpark shares it among threads."""
    client = getattr(session.sparkContext._gateway, "_gateway_client", None)  # noqa: SLF001  there is no other way
    get = getattr(client, "get_thread_connection", None)
    return None if get is None else get()


def stop_timeout_s(session: SparkSession) -> float:
    """Time that `stop` leaves a batch: `spark.sql.streaming.stopTimeout`, or a minute where that is 0."""
    text = session.conf.get("spark.sql.streaming.stopTimeout", "0") or "0"
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001  Spark's own reading of such a time
    return jvm.org.apache.spark.network.util.JavaUtils.timeStringAsMs(text) / 1000 or STOP_TIMEOUT_S


class VarviteStreamingQuery(JobClient, StreamingQuery):
    """Spark's query handle; what is not overridden here is as in Spark."""

    def __init__(
        self,
        launched: LaunchedQuery,
        at_end: Sequence[Callable[[bool], None]] = (),
        *,
        stop_timeout_s: float,
        closing: Callable[[], LaunchedQuery] | None = None,
    ) -> None:
        """Take over a query that was started.

        Args:
            launched: The query.
            at_end: Called when everything is released, with True if the query ended by itself, its input used up. All
                are called, whatever one of them raises.
            stop_timeout_s: Time that `stop` leaves a batch.
            closing: Starts the query once more when it has ended by itself and its last batch has moved the watermark,
                for a batch in which the timers fire that are due now; None: it does not end by itself.
        """
        super().__init__(launched.query._jsq)  # noqa: SLF001  the same query on Spark's side
        self.begin()
        self._run = launched.run
        self._batches = launched.batches
        self._closing = closing
        self._may_close = closing is not None
        self._launching = threading.Lock()
        self._closing_error: Exception | None = None
        self._at_end = tuple(at_end)
        self._is_stopping = False
        self._stop_timeout_s = stop_timeout_s
        # Resources are released when the query ends, whoever ended it and whether or not anybody waits for it.
        self._release = threading.Thread(
            target=self._release_at_end, name=f"varvite-query-end-{launched.query.name}", daemon=True
        )
        self._release.start()

    @property
    def job_id(self) -> str:
        """The job's id, constant for the life of its storage."""
        return self._run.job_id

    def _was_stopped(self) -> bool:
        return self._is_stopping

    @property
    def checkpoint_statistics(self) -> StatisticsLog:
        """Figures of this run's last checkpoints: `history()`, `summary()`."""
        return self._run.statistics

    @property
    def metrics_port(self) -> int | None:
        """The port of `/metrics`, `/healthz` and `/readyz`; None without `metrics.reporter.prom.port`."""
        return self._run.metrics_port

    def awaitTermination(self, timeout: int | None = None) -> bool | None:  # noqa: N802  Spark's name
        """Wait for the query's end, at most `timeout` seconds; then True if it has ended, else False.

        Raises:
            VarviteError: The query was ended by an error of varvite; `UserFunctionError` by one of the user's function.
            StreamingQueryException: It was ended by anything else, as in Spark.
        """
        clock = SystemClock()
        end_s = None if timeout is None else clock.monotonic_s() + timeout
        try:
            if super().awaitTermination(timeout) is False:
                return False
            if self._may_close and end_s is not None:
                self._release.join(max(end_s - clock.monotonic_s(), 0))
                if self._release.is_alive():
                    return False
            self._release.join()
            super().awaitTermination()  # raises the error of a closing batch
        except StreamingQueryException as error:
            self._release.join()
            self._raise(error)
        if self._closing_error is not None:
            raise self._closing_error
        return None if timeout is None else True

    @property
    def lastProgress(self) -> StreamingQueryProgress | None:  # noqa: N802  Spark's name
        """Spark's progress of the last batch, with the job's operators among `stateOperators`; None before one."""
        progress = super().lastProgress
        return None if progress is None else self._with_operators([progress])[0]

    @property
    def recentProgress(self) -> list[StreamingQueryProgress]:  # noqa: N802  Spark's name
        """Spark's progress of the last batches, with the job's operators among `stateOperators`."""
        return self._with_operators(super().recentProgress)

    def _with_operators(self, progress: Sequence[StreamingQueryProgress]) -> list[StreamingQueryProgress]:
        by_batch = {checkpoint.batch: checkpoint for checkpoint in self._run.statistics.history()}
        return [with_operators(of_batch, by_batch.get(of_batch.batchId)) for of_batch in progress]

    @property
    def isActive(self) -> bool:  # noqa: N802  Spark's name
        """True while the query runs, up to the end of its closing batch."""
        return super().isActive or (self._may_close and self._release.is_alive())

    def processAllAvailable(self) -> None:  # noqa: N802  Spark's name
        """Wait until everything that the source holds now is processed. Raises as `awaitTermination`."""
        try:
            super().processAllAvailable()
        except StreamingQueryException as error:
            self._raise(error)

    def exception(self) -> Exception | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The error that ended the query; None while it runs, and after an orderly end."""
        error = super().exception()
        return None if error is None else self._readable(error)

    def stop(self) -> None:
        """Stop the query after the batch that is running; returns when it has ended.

        A batch that takes longer than `spark.sql.streaming.stopTimeout` (a minute if that is 0) is cut off: its Spark
        jobs are cancelled, its state workers are killed, and a sink that does not return is left alone. The next run
        executes the batch again, or calls its sink again.

        Raises:
            InvalidRequestError: Called by the query's own sink.
        """
        if self._batches.is_caller:
            raise InvalidRequestError(
                "a query cannot be stopped from inside its own batch; raise an exception, or stop it from outside"
            )
        with self._launching:
            self._is_stopping = True
        if not self._run.request_stop(self._stop_timeout_s):
            self._cut_off()
        super().stop()
        self._release.join()

    def _cut_off(self) -> None:
        _log.warning(
            "query %s: its batch has not ended within %.0f s, so its Spark jobs are cancelled and its state workers "
            "are ended; the next run executes the batch again",
            self.name, self._stop_timeout_s,
        )  # fmt: skip
        self._run.cancel(str(self.runId))
        if not self._run.request_stop(CANCEL_TIMEOUT_S):
            _log.warning("query %s: its sink does not return; a thread of this process stays in it", self.name)
            self._batches.abandon()

    def _release_at_end(self) -> None:
        complete = self._ends_well()
        try:
            if complete and self._launches_closing_batch():
                complete = self._ends_well()
            self._run.stop()
        except Exception:  # noqa: BLE001  nobody waits for this thread; a failure must at least be logged
            _log.exception("releasing the resources of the ended query failed")
        finally:
            used_up = bool(self._at_end) and complete and self._is_used_up()
            for call in self._at_end:  # one of them ends the iteration of a reader of the elements
                try:
                    call(used_up)
                except Exception:  # noqa: BLE001  as above
                    _log.exception("a call at the end of the query failed")

    def _ends_well(self) -> bool:
        try:
            super().awaitTermination()
        except Exception as error:  # noqa: BLE001  the query's failure, or the end of the JVM: both are an end
            _log.debug("the query ended: %s", error)
            return False
        return True

    def _launches_closing_batch(self) -> bool:
        """Start the query once more for the timers that its last batch has made due; False if there is no need."""
        if self._closing is None or not self._run.has_moved_watermark() or not self._is_used_up():
            return False
        self._run.stop()
        SystemClock().sleep(HEARTBEAT_S)
        with self._launching:
            if self._is_stopping:
                return False
            try:
                launched = self._closing()
            except Exception as error:  # noqa: BLE001  whoever waits gets it
                _log.warning("query %s: its closing batch could not be started: %s", self.name, error)
                self._closing_error = error
                return False
            self._run, self._batches = launched.run, launched.batches
            self._jsq = launched.query._jsq  # noqa: SLF001  as above
        return True

    def _is_used_up(self) -> bool:
        """True if all input of a query without an error was processed; False if it was stopped inside a batch."""
        try:
            return not self._is_stopping and self._run.is_caught_up()
        except Exception as error:  # noqa: BLE001  keeping the input is always right
            _log.warning("the input of the query is kept, because it is unknown if it is used up: %s", error)
            return False

    def _raise(self, error: StreamingQueryException) -> None:
        readable = self._readable(error)
        if readable is not None:
            raise readable from readable.__cause__

    def _readable(self, error: StreamingQueryException) -> Exception | None:
        """The exception to show instead of Spark's; None: the query was only stopped."""
        from varvite.spark_integration.driver.coordinator import StopRequestedError

        kept = self._batches.error
        if self._is_stopping and isinstance(kept, StopRequestedError):
            return None
        if isinstance(kept, VarviteError):
            return kept
        if kept is not None:
            error.__cause__ = kept
        return error
