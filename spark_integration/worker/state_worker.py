"""The state worker of one partition: brings its state to the base, executes batches, keeps them pending.

Invariants:

* I3: a batch that is executed again starts from the same base; what an earlier attempt left is dropped as a whole.
* I4: what a batch changed is pending until a later request says that this very tag won at this
  slot. Otherwise it is dropped and the user's function is made anew.
* I5: state is the tile plus the newer segments of the line, nothing else.
* I9: everything local may vanish.
"""

from __future__ import annotations

import gc
import logging
from typing import TYPE_CHECKING, Final

from varvite.changelog.chain.tiles import key_range
from varvite.changelog.keyed.backend import KeyedStateBackend
from varvite.changelog.restore.files import FileChecksums
from varvite.changelog.restore.local import CopyRange
from varvite.changelog.restore.restore import ReachedBy
from varvite.changelog.segments.batch import BatchTime
from varvite.changelog.types.factory import parse_type_string
from varvite.spark_integration.messages.protocol import JobLocation, StateSpec, agree
from varvite.spark_integration.messages.requested_store import requested_store
from varvite.spark_integration.messages.user_errors import user_code_raises
from varvite.spark_integration.messages.worker_figures import NOTHING_READ, UploadRecorder
from varvite.spark_integration.transport.home import executor_key
from varvite.spark_integration.worker.attempt import (
    Attempt,
    AttemptContext,
    AttemptOutcome,
    VectorizedAttempt,
    state_lost,
)
from varvite.spark_integration.worker.runners.broadcast import BroadcastRunner
from varvite.spark_integration.worker.runners.operator import OperatorRunner
from varvite.spark_integration.worker.runners.vectorized import VectorizedRunner
from varvite.spark_integration.worker.state.base_restore import BaseRestorer
from varvite.spark_integration.worker.state.local_place import LocalPlace
from varvite.spark_integration.worker.state.non_keyed import NonKeyedState
from varvite.spark_integration.worker.state.part_decision import ChangeSizes
from varvite.spark_integration.worker.state.stores import WorkingStores
from varvite.storage.clock import SystemClock
from varvite.storage.errors import InvariantError, LocalDataError
from varvite.storage.fail_point import fail_point
from varvite.storage.format.records import ORIGIN
from varvite.storage.transfer.upload import Uploader, UploadResources

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from varvite.changelog.working_stores.contract import StoreSize, WorkingStore
    from varvite.spark_integration.messages.protocol import BatchRequest, OperatorRequest, TaskRequest
    from varvite.spark_integration.transport.home import WorkerHome
    from varvite.storage.clock import Clock
    from varvite.storage.format.records import Link, Tile
    from varvite.storage.object_stores.contract import ObjectStore

_log: Final = logging.getLogger(__name__)
_GC_THRESHOLDS: Final = (200_000, 50, 1_000)
_FULL_COLLECTION_BATCHES: Final = 64
"""Batches between two complete collections of the cyclic garbage of user code."""


class StateWorker:
    """State and functions of one partition, for all operators of a job."""

    def __init__(self, partition: int, home: WorkerHome, clock: Clock | None = None) -> None:
        self._partition = partition
        self._home = home
        self._clock = clock or SystemClock()
        self._operators: dict[str, OperatorState] = {}
        self._job_store: tuple[OperatorRequest, ObjectStore] | None = None
        """Store of all operators, with its request; a query that was started again may name another one."""
        self._working_stores = WorkingStores()
        self._upload_resources: UploadResources | None = None
        """Of all operators, and of uploads that earlier attempts have given up."""
        self._batches = 0
        # The usual thresholds cost more than the row loop itself; `idle` collects, these bound a long batch.
        gc.set_threshold(*_GC_THRESHOLDS)

    def has_function(self, operator: str, function_hash: str) -> bool:
        """Is the function here, so that `begin` does not fetch it?"""
        state = self._operators.get(operator)
        return state is not None and state.function_hash == function_hash

    def begin(self, task: TaskRequest, function: Callable[[], bytes]) -> Attempt:
        """Bring the operator's state to the task's base and start an attempt.

        Raises:
            VarviteError: the base cannot be restored; the state of this operator is dropped, a later request restores.
        """
        request = task.batch.operator
        state = self._operators.get(request.operator)
        if state is None or not state.serves(request):
            if state is not None:
                function = state.kept_function(request.function_hash) or function
                self._operators.pop(request.operator).close()
            self._upload_resources = self._upload_resources or UploadResources(request.upload)
            state = OperatorState(
                request,
                self._partition,
                self._home,
                self._open_job_store(request),
                self._working_stores,
                self._clock,
                upload_resources=self._upload_resources,
            )
            self._operators[request.operator] = state
        return state.begin(task, function)

    def idle(self) -> None:
        fail_point("worker.after_summary")
        for state in self._operators.values():
            state.prepare()
        self._batches += 1
        gc.collect(2 if self._batches % _FULL_COLLECTION_BATCHES == 0 else 0)

    def close(self) -> None:
        """Close functions and stores."""
        for state in self._operators.values():
            state.close()
        self._operators.clear()
        if self._upload_resources is not None:
            self._upload_resources.close()
            self._upload_resources = None

    def _open_job_store(self, request: OperatorRequest) -> ObjectStore:
        if self._job_store is None or not agree(JobLocation, self._job_store[0], request):
            self._job_store = request, requested_store(request)
        return self._job_store[1]


class OperatorState:
    """Working state, pending attempt and function of one operator on this partition."""

    def __init__(
        self,
        request: OperatorRequest,
        partition: int,
        home: WorkerHome,
        store: ObjectStore,
        stores: WorkingStores,
        clock: Clock,
        *,
        upload_resources: UploadResources | None = None,
    ) -> None:
        """`upload_resources` is what it shares with other operators, if there are any."""
        self.request = request
        self.partition = partition
        self._clock = clock
        self._executor = executor_key(home.path)
        self._store_of_job = store
        self.low, self.high = key_range(partition, request.parallelism, request.max_parallelism)
        self.function_hash = ""
        self.non_keyed = NonKeyedState(request, partition, store)
        self.tile: Tile | None = None
        """Changelog off: the tile of the confirmed state."""
        self._checksums = FileChecksums()
        self._change_sizes = ChangeSizes()
        """The sizes of changes, as earlier attempts have found them."""
        self._uploads = UploadRecorder()
        """Counts the uploads until a summary takes them along."""
        self._log_read = NOTHING_READ
        """The log that was read for the pending attempt's base."""
        self._state_size: StoreSize | None = None
        """About the confirmed state, as of the end of the attempt before."""
        self._function = b""
        self._runner: OperatorRunner | None = None
        self._backend: KeyedStateBackend | None = None
        self._store: WorkingStore | None = None
        self._pending: Attempt | None = None
        self._upload_resources = upload_resources or UploadResources(request.upload)
        self._epoch: int | None = None
        """The driver's run that the function was made for."""
        directory = home.state_directory(request.job_id, request.operator, self.low, self.high)
        local = self._local_place()
        self._restorer = BaseRestorer(request, self.low, self.high, store, directory, stores, local=local)

    def serves(self, request: OperatorRequest) -> bool:
        """Can this state go on under that request? The function may differ; what the state was opened with may not."""
        return agree(StateSpec, self.request, request)

    def kept_function(self, function_hash: str) -> Callable[[], bytes] | None:
        """The function for the state that takes this one's place, for `has_function` has promised it; None: another."""
        function = self._function
        return (lambda: function) if self.function_hash == function_hash else None

    def begin(self, task: TaskRequest, function: Callable[[], bytes]) -> Attempt:
        """Bring the state to the task's base and start an attempt. Raises as `StateWorker.begin`."""
        try:
            return self._begin(task, function)
        except LocalDataError as error:
            self._drop_state()
            raise state_lost(error) from error

    def _begin(self, task: TaskRequest, function: Callable[[], bytes]) -> Attempt:
        self.request = task.batch.operator
        sent = task.batch.base_view
        self._restorer.follow(self.request, None if sent is None else sent.view(task.partition))
        started_s = self._clock.monotonic_s()
        try:
            how = self._reach_base(task)
            self._reach_non_keyed(task.batch)
        except BaseException:
            self._drop_state()
            raise
        if self.function_hash != self.request.function_hash:
            self._drop_runner()  # only now: what was pending under the old function is folded or dropped
            self._function, self.function_hash = function(), self.request.function_hash
        backend = self._open_backend()
        backend.begin_batch(BatchTime(task.batch.time_ms, task.batch.watermark_ms))
        runner = self._open_runner(None if task.batch.base == ORIGIN else task.batch.base.seq)
        runner.start(task.batch.time_ms, task.batch.watermark_ms, task.batch.late_watermark_ms)
        context = self._context(task, backend, how)
        if isinstance(runner, VectorizedRunner):
            attempt = VectorizedAttempt(context, runner)
        else:
            attempt = Attempt(context, runner)
        attempt.timings_ms["restore"] = (self._clock.monotonic_s() - started_s) * 1000
        self._pending = attempt
        return attempt

    @property
    def directory(self) -> Path:
        """Of the working store, where it has one; there may be others beside it whose names begin with its name."""
        return self._restorer.directory

    @property
    def backend(self) -> KeyedStateBackend | None:
        """The state as the attempt sees it; None before the first one, and after one was dropped."""
        return self._backend

    def prepare(self) -> None:
        """Clean up, and do the work of the next fold ahead; called between requests."""
        pending = self._pending
        if self._backend is not None and (pending is None or pending.finished):
            self._backend.clean_up()  # first, because it would undo what is prepared
            self._backend.work_ahead()
            self._state_size = self._backend.store.size_estimate()
            if pending is not None and not pending.folded:
                self._backend.prepare(pending.task.batch.slot)
        self._restorer.keep_up(self._store)

    def _uploader(self) -> Uploader:
        """An uploader within the job's limits. Attempts that hang are of the process, however many batches fail."""
        self._upload_resources.resize(self.request.upload)
        return Uploader(self._store_of_job, self._clock, self.request.upload, self._uploads, self._upload_resources)

    def close(self) -> None:
        """Close the function and the store; local files stay for local recovery."""
        self._drop_runner()
        self._pending = None
        self._close_store()
        self._restorer.close()

    def _context(self, task: TaskRequest, backend: KeyedStateBackend, restored: str) -> AttemptContext:
        return AttemptContext(
            task=task,
            low=self.low,
            high=self.high,
            backend=backend,
            non_keyed=self.non_keyed,
            tile=self.tile,
            directory=self.directory,
            unconfirmed=self._restorer.unconfirmed,
            checksums=self._checksums,
            change_sizes=self._change_sizes,
            uploader=self._uploader,
            uploads=self._uploads,
            clock=self._clock,
            executor=self._executor,
            restored=restored,
            log_read=self._log_read,
            state_size=self._state_size,
            on_abort=self._drop_attempt,
        )

    def _drop_attempt(self, attempt: Attempt) -> None:
        """Drop an attempt that will never be confirmed."""
        if self._pending is attempt:
            self._drop_pending()
            if attempt.is_state_lost:
                self._drop_state()

    def _local_place(self) -> LocalPlace | None:
        request = self.request
        if request.local_recovery is None:
            return None
        key = CopyRange(request.job_id, request.operator, self.low, self.high)
        return LocalPlace(request.local_recovery, key, self.partition, self._clock)

    def _reach_base(self, task: TaskRequest) -> ReachedBy:
        """Bring the store to the base; answers how."""
        base = task.batch.base
        self._log_read = NOTHING_READ
        if self._pending is not None:
            confirmed = task.batch.confirmed  # of fewer partitions if the base had another parallelism
            if self._fold_winner(base, confirmed[self.partition] if self.partition < len(confirmed) else ""):
                return ReachedBy.CONFIRMED
            self._drop_pending()
        if self._store is not None and self._store.version == base:
            return ReachedBy.CURRENT
        reached = self._restorer.reach(base, self._store)
        self._drop_runner()
        self._store, self.tile, self._log_read = reached.store, reached.tile, reached.log_read
        return reached.how

    def _fold_winner(self, base: Link, tag: str) -> bool:
        """Fold the pending attempt if it is the one that commit `base` names; answers whether it was."""
        pending = self._pending
        if pending is None or not self._has_won(pending, base, tag):
            return False
        if pending.outcome is not None:
            self._apply(pending.outcome, base)
        self._pending = None
        return True

    def _apply(self, outcome: AttemptOutcome, at: Link) -> None:
        """Make the changes of the attempt that has won the confirmed state, at version `at`."""
        self._change_sizes = outcome.change_sizes
        if outcome.tile is not None:
            self.tile = outcome.tile
            self._restorer.unconfirmed.clear()
        elif self._backend is not None:
            self._backend.fold(at)
        else:
            raise InvariantError("the changes of the attempt that won are gone", operator=self.request.operator)
        self.non_keyed.confirm(outcome.sections, at)

    def _has_won(self, pending: Attempt, base: Link, tag: str) -> bool:
        return pending.finished and pending.task.batch.slot == base.seq and pending.task.tag == tag

    def _reach_non_keyed(self, batch: BatchRequest) -> None:
        """Bring the non-keyed state to the base. A new run of the driver makes the function anew, as a restart does."""
        if self._epoch != batch.epoch:
            self._drop_runner()
            self._epoch = batch.epoch
        if not self.non_keyed.is_at(batch):
            self._drop_runner()
            self.non_keyed.restore(batch, lambda: self._restorer.images(batch.base))

    def _open_backend(self) -> KeyedStateBackend:
        if self._backend is None:
            if self._store is None:
                raise InvariantError("no store after the base was reached", operator=self.request.operator)
            request = self.request
            key_type = parse_type_string(request.key_type)
            self._backend = KeyedStateBackend(
                self._store, key_type, request.operator, request.states, generic_types=request.generic_types
            )
        return self._backend

    def _open_runner(self, restored_checkpoint: int | None) -> OperatorRunner:
        if self._runner is None:
            vectorized, broadcast = self.request.vectorized, self.request.broadcast
            make = VectorizedRunner if vectorized else BroadcastRunner if broadcast else OperatorRunner
            states = self._open_backend(), self.non_keyed.backend, restored_checkpoint
            self._runner = make(self.request, self.partition, self._function, *states)
        return self._runner

    def _drop_pending(self) -> None:
        """Forget the pending attempt as a whole: its changes, and the fields its function instance kept (I4)."""
        pending, self._pending = self._pending, None
        self._drop_runner()
        if pending is not None and pending.outcome is not None:
            self._change_sizes = pending.outcome.change_sizes
        if pending is not None and pending.folded:
            self._drop_state()

    def _drop_runner(self) -> None:
        """Throw the function instance away, and with it the overlay and all handles."""
        runner, self._runner, self._backend = self._runner, None, None
        self.non_keyed.drop()
        if runner is not None:
            try:
                runner.close()
            except user_code_raises():  # the instance is thrown away
                _log.exception("close() of the function of operator %s raised", self.request.operator)

    def _drop_state(self) -> None:
        """Forget the state, in memory and on disk: the next request restores it."""
        self._drop_runner()
        self._pending = None
        self.tile = None
        self.non_keyed.forget()
        self._close_store()
        self._restorer.discard_local()

    def _close_store(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            try:
                store.close()
            except user_code_raises():  # a store of the user's
                _log.exception("closing the store of operator %s failed", self.request.operator)
