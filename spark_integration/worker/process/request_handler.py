"""Serves a request from its opening to the end of the answer, on the worker's main thread.

Whatever the state worker raises travels to the pump, whose task fails with it. What a state worker raises where it
must not (while it drops an attempt, or works ahead) leaves its state in doubt. Then the process ends, and the next
request forks a fresh one.

Invariants: I9 (a process that ends loses only what is restored).
"""

from __future__ import annotations

import importlib
import io
import logging
import os
import pickle
import struct
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from varvite.spark_integration.messages.protocol import FunctionPackage, Ready
from varvite.spark_integration.messages.user_errors import message_of, traceback_of
from varvite.spark_integration.processes import end_if_forked
from varvite.spark_integration.transport.wire import PeerLostError, PumpEnvironment, WorkerFailure
from varvite.spark_integration.worker.process.accumulators import reset_accumulators
from varvite.storage.errors import InvalidRequestError, InvariantError, VarviteError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from varvite.spark_integration.messages.protocol import BroadcastValue, TaskRequest
    from varvite.spark_integration.transport.home import WorkerHome
    from varvite.spark_integration.transport.wire import Channel
    from varvite.spark_integration.worker.process.contract import AttemptContract, WorkerContract, WorkerFactory
    from varvite.spark_integration.worker.process.output import WorkerOutput
    from varvite.spark_integration.worker.process.request_queue import PendingRequest

_log: Final = logging.getLogger(__name__)
_BUGS: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    TypeError,
    ValueError,
    struct.error,
)
"""Errors of a program: it makes them again of the same input."""


@dataclass(frozen=True)
class WorkerSettings:
    """The worker that the process was forked for."""

    partition: int
    home: WorkerHome
    factory: str


class RequestHandler:
    """Drives the state worker of this process."""

    def __init__(self, settings: WorkerSettings, output: WorkerOutput) -> None:
        self._settings = settings
        self._output = output
        self._worker: WorkerContract | None = None

    def serve(self, request: PendingRequest) -> bool:
        """Serve one request; answers if the whole answer was sent. Raises only if the process must not go on."""
        try:
            return self._serve(request)
        finally:
            self._output.end()

    def _serve(self, request: PendingRequest) -> bool:
        task = request.task
        try:
            attempt = self._begin(request.channel, request.opening.environment, task)
        except PeerLostError:
            _log.info("the pump of task attempt %d left before it was served", task.task_attempt)
            return False
        except BaseException as error:  # noqa: BLE001  the task must learn of it, whatever it is
            self._report(request.channel, error, task)
            return False
        return self._execute(request, attempt)

    def idle(self) -> None:
        """Let the state worker work ahead. Raises only if the process must not go on."""
        if self._worker is not None:
            self._worker.idle()

    def close(self) -> None:
        """Close the state worker."""
        if self._worker is not None:
            self._worker.close()

    def _begin(self, channel: Channel, environment: PumpEnvironment, task: TaskRequest) -> AttemptContract:
        adopt_environment(environment)
        reset_accumulators()
        worker = self._ensure_worker()
        operator = task.batch.operator
        needed = not worker.has_function(operator.operator, operator.function_hash)
        channel.send_message(Ready(needs_function=needed, pid=os.getpid()))
        package = channel.receive_message(FunctionPackage) if needed else None
        if package is not None:
            load_broadcasts(package.broadcasts)
        self._output.begin(channel, f"{operator.operator} {task.partition}")

        def function() -> bytes:
            if package is None:
                raise InvariantError("the state worker asked for a function that it said it has")
            return package.function

        return worker.begin(task, function)

    def _ensure_worker(self) -> WorkerContract:
        if self._worker is None:
            factory: WorkerFactory = _load(self._settings.factory)
            self._worker = factory(self._settings.partition, self._settings.home)
        return self._worker

    def _execute(self, request: PendingRequest, attempt: AttemptContract) -> bool:
        """Stream the input through the attempt; True if the whole answer was sent."""
        channel, task = request.channel, request.task
        request.in_user_code = True
        try:
            for batch in _input(request):
                for answer in attempt.process(batch):
                    channel.send_batch(answer)
            for answer in attempt.finish():
                channel.send_batch(answer)
            self._output.end()
            channel.send_end()
        except PeerLostError:
            request.in_user_code = False
            _log.info("task attempt %d of slot %d is dropped: its pump has gone", task.task_attempt, task.batch.slot)
            attempt.abort()
            return False
        except BaseException as error:  # noqa: BLE001  the task must learn of it, whatever it is
            end_if_forked()
            request.in_user_code = False
            attempt.abort()
            self._report(channel, error, task)
            return False
        request.in_user_code = False
        return True

    def _report(self, channel: Channel, error: BaseException, task: TaskRequest) -> None:
        _log.error("task attempt %d of slot %d failed", task.task_attempt, task.batch.slot, exc_info=error)
        self._output.end()
        with suppress(PeerLostError):  # maybe nobody is there to hear it
            channel.send_failure(describe_failure(error))


def _input(request: PendingRequest) -> Iterator[pa.RecordBatch]:
    for batch in request.channel.receive_batches():
        if request.superseded_s is not None:  # what had arrived before the cut could still be read
            raise PeerLostError("a newer attempt has taken its place")
        yield batch


def describe_failure(error: BaseException) -> WorkerFailure:
    """An error in a form that travels; a `VarviteError` travels as itself if it can."""
    pickled: bytes | None = None
    if isinstance(error, VarviteError):
        try:
            pickled = pickle.dumps(error)
            pickle.loads(pickled)  # noqa: S301  what cannot be loaded here cannot be loaded by the pump
        except Exception:  # noqa: BLE001  then its text must do
            pickled = None
    return WorkerFailure(
        exception_type=f"{type(error).__module__}.{type(error).__qualname__}",
        message=message_of(error),
        traceback=traceback_of(error),
        pickled=pickled,
        is_repeated=isinstance(error, _BUGS),
    )


def adopt_environment(environment: PumpEnvironment) -> None:
    """Let user code import, and find SparkFiles and `TaskContext`, as in the Python worker that the pump runs in.

    By its `TaskContext` PySpark knows that it is not on the driver, and refuses to make a session there.
    """
    path = [*environment.sys_path, *(p for p in sys.path if p not in environment.sys_path)]
    if path != sys.path:
        sys.path[:] = path
        importlib.invalidate_caches()
    from pyspark.core.files import SparkFiles

    SparkFiles._root_directory = environment.files_directory  # noqa: SLF001  as PySpark's own worker does
    SparkFiles._is_running_on_worker = True  # noqa: SLF001
    if environment.task_context:
        from pyspark import TaskContext

        TaskContext._setTaskContext(None)  # noqa: SLF001  of which there is one: the new one would be made of it
        TaskContext._setTaskContext(pickle.loads(environment.task_context))  # noqa: S301, SLF001


def load_broadcasts(broadcasts: tuple[BroadcastValue, ...]) -> None:
    """Make the function's broadcast variables known to PySpark in this process.

    Their values are read now: the files belong to the executor's JVM, which deletes them when it likes.
    """
    from pyspark.core import broadcast as spark_broadcast

    for value in broadcasts:
        if value.path is not None:
            loaded: Any = spark_broadcast.Broadcast(path=value.path)
        else:
            loaded = spark_broadcast.Broadcast(sock_file=io.BytesIO(value.pickled or b""))  # type: ignore[arg-type]
        _ = loaded.value
        spark_broadcast._broadcastRegistry[value.broadcast_id] = loaded  # noqa: SLF001  as PySpark's own worker does


def _load(factory: str) -> Any:
    module, _, name = factory.partition(":")
    target: Any = importlib.import_module(module)
    try:
        for part in name.split("."):
            target = getattr(target, part)
    except AttributeError as error:
        raise InvalidRequestError(f"{factory!r} names no state worker factory; write module:qualified.name") from error
    return target
