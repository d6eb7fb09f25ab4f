"""A job of one operator in this process: the state workers' own code and the driver's own run, without Spark.

Batch by batch: `begin`, `process` any number of times, `end`, `commit`; or `drop` instead of going on. What a state
worker, the chain, the materializer and a restore do here is what they do in a job. Only Spark is missing, and the
processes: storage is memory, and everybody lives in this process.

Invariants: I1, I3, I4, I5 as in a job, because the same code keeps them.
"""

from __future__ import annotations

import hashlib
import shutil
from typing import TYPE_CHECKING, Any, Final

import msgspec

from varvite.changelog.commit.adopt_decision import decide_adoption
from varvite.changelog.commit.base_decision import SparkProgress
from varvite.changelog.commit.batch_result import entry_time
from varvite.changelog.commit.plan import NOTHING_ADOPTED
from varvite.changelog.commit.run import JobRun
from varvite.changelog.retention.snapshots import SnapshotReader
from varvite.changelog.segments.batch import BatchTime
from varvite.materializer.monitoring.events import Failed, JobFailed
from varvite.materializer.options.materializer_config import MaterializerConfig
from varvite.materializer.resources.stop_signal import StopSignal
from varvite.materializer.resources.workspace import Workspace
from varvite.materializer.service.context import MaterializerContext
from varvite.materializer.service.loop import MaterializerService
from varvite.spark_integration.driver.batch_commit import BatchCommitter
from varvite.spark_integration.driver.operator_requests import operator_request
from varvite.spark_integration.functions.pickling import ship
from varvite.spark_integration.harness.plan import JOB
from varvite.spark_integration.messages.operator_summaries import OperatorSummaries
from varvite.spark_integration.messages.protocol import SUMMARY_COLUMN, TaskRequest
from varvite.spark_integration.messages.summary import Summary, decode_summary
from varvite.spark_integration.messages.user_errors import UserErrorRaised, user_function_error
from varvite.spark_integration.transport.home import WorkerHome
from varvite.spark_integration.worker.state.stores import WorkingStores
from varvite.spark_integration.worker.state_worker import OperatorState
from varvite.storage.clock import SystemClock, SystemTokens
from varvite.storage.errors import MayHaveHappenedError
from varvite.storage.object_stores.memory import MemoryStore
from varvite.storage.object_stores.prefixed import PrefixedStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa

    from varvite.changelog.chain.view import LineView
    from varvite.changelog.commit.plan import Adoption
    from varvite.changelog.keyed.backend import KeyedStateBackend
    from varvite.materializer.monitoring.events import Event
    from varvite.spark_integration.harness.plan import HarnessPlan
    from varvite.spark_integration.messages.protocol import OperatorRequest, UserError
    from varvite.spark_integration.worker.attempt import Attempt
    from varvite.storage.format.records import SnapshotFloor

QUERY: Final = "harness"


class HarnessClock:
    """Processing time stands still until it is set; everything else is the machine's clock."""

    def __init__(self, time_ms: int) -> None:
        self.time_ms = time_ms
        self._system = SystemClock()

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic_s(self) -> float:
        return self._system.monotonic_s()

    def sleep(self, seconds: float) -> None:
        self._system.sleep(seconds)


class HarnessJob:
    """One run after the other of a job; used by one thread.

    Args:
        plan: The job.
        directory: For working state and the materializer; exists.
        clock: Processing time.
        objects: What the storage holds at the start: name → bytes.
        next_batch: The batch that comes first; above 0 if the objects have the state of the batches before.

    Raises:
        VarviteError: The objects are of another job, or hold no such state.
    """

    def __init__(
        self, plan: HarnessPlan, directory: Path, clock: HarnessClock, objects: Mapping[str, bytes], next_batch: int
    ) -> None:
        self._plan = plan
        self._directory = directory
        self._clock = clock
        self._tokens = SystemTokens()
        self._root = MemoryStore(clock=clock)
        for name, data in objects.items():
            self._root.put(name, data)
        self._store = PrefixedStore(self._root, JOB)
        self._function = ship(None, plan.job.operators[0].function)
        self._stores = WorkingStores()
        self._attempts: list[Attempt] = []
        self._summaries: list[Summary] = []
        self._attempt_number = 0
        self._materialized: SnapshotReader | None = None
        self.next_batch = next_batch
        self.late_rows = 0
        """Rows that were dropped in confirmed batches, because they came behind the watermark."""
        self.warnings: set[str] = set()
        """Sentences that the driver's log would say."""
        """The batch that is open, or comes next."""
        self.now = BatchTime(clock.time_ms)
        """The time of the batch that began last."""
        self._start()

    def _start(self) -> None:
        """A new run: everything that is known comes from the storage."""
        plan = self._plan
        config = plan.job.config
        run = JobRun.open(self._store, JOB, config.max_parallelism, config.commit_policy, self._clock, self._tokens)
        self._run = run
        run.take_over()
        batch = self.next_batch
        run.choose_base(SparkProgress(batch, QUERY, _hash(batch), _hash(batch - 1) if batch else None), None)
        self._clock.time_ms = entry_time(run.state.base, self._clock.time_ms)
        request = operator_request(plan.job, plan.job.operators[0], self._function.function_hash, run.record)
        request = msgspec.structs.replace(request, has_watermark=True)  # the test may move it
        self._committer = BatchCommitter(run, plan.job, (request,))
        self._committer.start(QUERY)
        home = WorkerHome(self._directory / "worker")
        self._states = [
            OperatorState(self.request, partition, home, self._store, self._stores, self._clock)
            for partition in range(self.request.parallelism)
        ]

    @property
    def request(self) -> OperatorRequest:
        """The request of the operator."""
        return self._committer.operators[0]

    @property
    def watermark_ms(self) -> int | None:
        """The watermark of the next batch to begin."""
        return self._committer.watermark_ms

    @watermark_ms.setter
    def watermark_ms(self, watermark_ms: int | None) -> None:
        self._committer.watermark_ms = watermark_ms

    @property
    def is_open(self) -> bool:
        """Elements can be processed: a batch has begun and not ended."""
        return bool(self._attempts) and not self._summaries

    @property
    def is_pending(self) -> bool:
        """A batch has ended and is not confirmed."""
        return bool(self._summaries)

    @property
    def backends(self) -> list[KeyedStateBackend]:
        """By partition: the state as the batch sees it; empty if none has begun."""
        return [state.backend for state in self._states if state.backend is not None] if self._attempts else []

    def begin(self) -> None:
        """Begin a batch; workers bring their state to its base. Raises `UserFunctionError`, `VarviteError`."""
        self.now = BatchTime(self._clock.time_ms, self.watermark_ms)
        self._attempt_number += 1
        self._spec = self._committer.spec(
            self.next_batch,
            attempt=self._attempt_number,
            time_ms=self.now.time_ms,
            commit_token=self._tokens.token(),
        )
        (request,) = self._committer.requests(self._spec)
        for partition, state in enumerate(self._states):
            task = TaskRequest(
                batch=request, partition=partition, tag=self._tokens.token(), task_attempt=self._attempt_number
            )
            self._attempts.append(state.begin(task, lambda: self._function.package().function))
            self._check(partition, self._attempts[-1].error)

    def process(self, partition: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Execute the operator on keyed rows of a partition; gives answers. Raises `UserFunctionError`."""
        attempt = self._attempts[partition]
        yield from attempt.process(batch)
        yield from attempt.flush()
        self._check(partition, attempt.error)

    def end(self) -> Iterator[pa.RecordBatch]:
        """The batch has no more elements: what is due fires; gives answers. Raises `UserFunctionError`."""
        summaries: list[Summary] = []
        for partition, attempt in enumerate(self._attempts):
            for answer in attempt.finish():
                encoded: Any = answer.column(SUMMARY_COLUMN).drop_null().to_pylist()
                if encoded:
                    summaries.append(decode_summary(encoded[0]))
                else:
                    yield answer
            self._check(partition, attempt.error)
        self._summaries = summaries

    def commit(self, latest_ms: Mapping[int, int]) -> None:
        """Confirm the batch that has ended.

        Args:
            latest_ms: The largest event time of each way to the operator, if there are several.
        """
        for state in self._states:
            state.prepare()
        summaries = (OperatorSummaries.of(self.request.operator, self._summaries),)
        executed = self._committer.executed(self._spec, _hash(self.next_batch), summaries, latest_ms)
        self._committer.commit(executed, self._adoption)
        self.late_rows += summaries[0].total("late_rows")
        self.warnings.update(*(note.warnings for note in summaries[0].notes))
        self._run.batch_done()
        self.next_batch += 1
        self._forget()

    def drop(self) -> None:
        """Forget the batch that has begun, as when its tasks failed."""
        for attempt in self._attempts:
            attempt.abort()
        self._forget()

    def crash(self) -> None:
        """Lose all processes and local disks, and start a new run."""
        self._forget()
        self._end_run()
        shutil.rmtree(self._directory / "worker", ignore_errors=True)
        self._start()

    def materialize(self) -> None:
        """Fold the changelog into snapshots, as a materializer beside the job does; the next checkpoint adopts them.

        Raises:
            MayHaveHappenedError: It failed; says why.
        """
        config = MaterializerConfig(storage_url=self._root.url, job=JOB)
        failures = _Failures()
        with Workspace(self._directory / "materializer") as workspace:
            context = MaterializerContext(
                config=config,
                clock=self._clock,
                tokens=self._tokens,
                workspace=workspace,
                reporter=failures,
                stop=StopSignal(),
            )
            service = MaterializerService(self._root, context)
            succeeded = service.run_once()
            service.close()
        if not succeeded:
            raise MayHaveHappenedError(f"materializing failed: {'; '.join(failures.errors)}")
        self._materialized = self._materialized or SnapshotReader(self._store, self._run.record.job_id)

    def objects(self) -> dict[str, bytes]:
        """The objects of the storage: name → bytes."""
        return {meta.name: self._root.get(meta.name) for meta in self._root.list("")}

    def close(self) -> None:
        """Close functions and stores."""
        self._forget()
        self._end_run()

    def _end_run(self) -> None:
        for state in self._states:
            state.close()
        self._run.close()

    def _forget(self) -> None:
        self._attempts, self._summaries = [], []

    def _check(self, partition: int, error: UserError | None) -> None:
        if error is not None:
            raised = UserErrorRaised(error, self.request.operator, partition)
            user_error = user_function_error(raised, JOB, self.next_batch)
            raise user_error from user_error.__cause__

    def _adoption(self, view: LineView, floors: tuple[SnapshotFloor, ...]) -> Adoption:
        reader = self._materialized
        if reader is None:
            return NOTHING_ADOPTED
        return decide_adoption(
            view, floors, reader.candidates(floors), reader.tile_files(view), self._run.record.job_id
        )


class _Failures:
    """Keeps what a materializer says of failures."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def report(self, event: Event) -> None:
        if isinstance(event, (Failed, JobFailed)):
            self.errors.append(f"{event.error_type}: {event.error}")


def _hash(batch: int) -> str:
    """Stands for the sources' offsets of a batch."""
    return hashlib.sha256(f"harness {batch}".encode()).hexdigest()
