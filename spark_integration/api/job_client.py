"""`JobClient`: PyFlink's handle of a running job, which every query of varvite is, and the values that it gives."""

from __future__ import annotations

import enum
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from varvite.storage.clock import SystemClock
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


@dataclass(frozen=True)
class JobID:
    """The id of a job, constant for the life of its storage."""

    job_id: str

    def __str__(self) -> str:
        return self.job_id


class JobStatus(enum.Enum):
    """States of a job; here it is RUNNING, FAILED, CANCELED or FINISHED. PyFlink's numbers."""

    CREATED = 0
    RUNNING = 1
    FAILING = 2
    FAILED = 3
    CANCELLING = 4
    CANCELED = 5
    FINISHED = 6
    RESTARTING = 7
    SUSPENDED = 8
    RECONCILING = 9

    def is_globally_terminal_state(self) -> bool:
        """True if the job has ended for good."""
        return self in {JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED}

    def is_terminal_state(self) -> bool:
        """True if this process has no part in the job any more."""
        return self.is_globally_terminal_state() or self is JobStatus.SUSPENDED


class CompletableFuture(Generic[T]):
    """A value that may still have to come."""

    def __init__(self, value: Callable[[], T], is_done: Callable[[], bool] = lambda: True) -> None:
        self._value = value
        self._is_done = is_done

    def cancel(self) -> bool:
        """False: it cannot be cancelled."""
        return False

    def cancelled(self) -> bool:
        """False."""
        return False

    def done(self) -> bool:
        """True if the value is there."""
        return self._is_done()

    def result(self) -> T:
        """The value, for which this waits. Raises what prevents it."""
        return self._value()

    def exception(self) -> Exception | None:
        """The exception that prevents the value, for which this waits; None: there is a value."""
        try:
            self._value()
        except Exception as error:  # noqa: BLE001  it is the result
            return error
        return None


@dataclass(frozen=True, slots=True)
class JobExecutionResult:
    """The result of `execute`, when the job has ended."""

    job_name: str
    net_runtime_ms: int
    job_id: str = ""

    def get_job_id(self) -> JobID:
        """The job's id."""
        return JobID(self.job_id)

    def get_net_runtime(self) -> int:
        """Milliseconds from the start to the end."""
        return self.net_runtime_ms

    def get_accumulator_result(self, accumulator_name: str) -> Any:
        """Not possible: no accumulator has a name here. Raises `InvalidRequestError` always."""
        raise InvalidRequestError(
            f"there is no accumulator {accumulator_name!r}: make one of Spark's with "
            "spark.sparkContext.accumulator(0), use it in the function, and read its value here"
        )

    def get_all_accumulator_results(self) -> dict[str, Any]:
        """Nothing: see `get_accumulator_result`."""
        return {}


class JobClient:
    """The part of PyFlink's handle that a query has."""

    _started_s: float

    @property
    @abstractmethod
    def job_id(self) -> str:
        """The job's id."""

    def begin(self) -> None:
        """Take the time of the start."""
        self._started_s = SystemClock().monotonic_s()

    def get_job_id(self) -> JobID:
        """The job's id."""
        return JobID(self.job_id)

    def get_job_status(self) -> CompletableFuture[JobStatus]:
        """RUNNING, FINISHED, CANCELED (it was stopped) or FAILED."""
        return CompletableFuture(self._status)

    def cancel(self) -> CompletableFuture[None]:
        """Stop the query after the batch that is running, as `stop` does; returns when it has ended."""
        query: Any = self
        query.stop()
        return CompletableFuture(lambda: None)

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        """The result of the job, when it has ended; its error if it fails."""
        query: Any = self
        return CompletableFuture(self._result, lambda: not query.isActive)

    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        """Nothing: see `JobExecutionResult.get_accumulator_result`."""
        return CompletableFuture(dict[str, Any])

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """Not possible. Raises `InvalidRequestError` always."""
        del savepoint_directory
        raise _command(self.job_id)

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        """Not possible. Raises `InvalidRequestError` always."""
        del advance_to_end_of_event_time, savepoint_directory
        raise _command(self.job_id)

    @abstractmethod
    def _was_stopped(self) -> bool:
        """True if `stop` was called."""

    def _status(self) -> JobStatus:
        query: Any = self
        if query.isActive:
            return JobStatus.RUNNING
        if query.exception() is not None:
            return JobStatus.FAILED
        return JobStatus.CANCELED if self._was_stopped() else JobStatus.FINISHED

    def _result(self) -> JobExecutionResult:
        query: Any = self
        query.awaitTermination()
        spent_ms = round((SystemClock().monotonic_s() - self._started_s) * 1000)
        return JobExecutionResult(query.name or "", spent_ms, self.job_id)


def _command(job_id: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"a savepoint of job {job_id} is made by a command, while the job runs or not: varvite savepoint create JOB "
        "NAME --storage URL (docs/operate/savepoints.md)"
    )
