"""Connects a pump to the state worker of its partition: directly, or through the parent, which it may start.

The start is free of races. The holder of the lock looks again, binds the parent's socket itself and hands it over.
Requests wait in the socket while the parent still imports.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from varvite.spark_integration.messages.protocol import Ready
from varvite.spark_integration.messages.user_errors import TRIED_AGAIN, WORKER_NOTE
from varvite.spark_integration.transport.executor_jvm import ProcessWatch, find_jvm
from varvite.spark_integration.transport.home import (
    PARENT_SOCKET,
    WorkerHome,
    connect,
    exclusive,
    import_path,
    listen,
    log_tail,
    worker_name,
    worker_socket,
)
from varvite.spark_integration.transport.wire import (
    Channel,
    ListWorkers,
    Opening,
    ParentReport,
    PeerLostError,
    StartWorker,
)
from varvite.storage.clock import SystemClock
from varvite.storage.errors import DidNotHappenError
from varvite.storage.object_stores.backoff import Backoff
from varvite.storage.object_stores.remote.protocols import PROTOCOLS

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

    from varvite.storage.clock import Clock

_PARENT: Final = "varvite.spark_integration.worker.process.parent"
_SINGLE_THREAD: Final = {
    # Both start threads at import, which a process that forks must not have. Arrow's default pool is not jemalloc.
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
_END_PAUSES_S: Final = (0.0, 0.02, 0.1, 0.3, 0.6)
"""Before each look for a worker's end, which follows that of its connection."""
_REPORT_TIMEOUT_S: Final = 2.0
_SECRETS: Final = "PYTHON_WORKER_FACTORY_"
"""Prefix of what lets a process pose as Spark's Python worker; no business of ours."""


@dataclass(frozen=True)
class WorkerLaunch:
    """The way to make workers."""

    factory: str = "varvite.spark_integration.worker.state_worker:StateWorker"
    """`module:qualified.name` of a `WorkerFactory`."""
    backoff: Backoff = field(default_factory=lambda: Backoff(attempts=12, initial_s=0.01, maximum_s=1.0))
    """For reaching a worker that has just ended, or is just ending."""


def parent_report(home: WorkerHome, timeout_s: float) -> ParentReport | None:
    """The report of the home's parent about itself and its workers; None if none runs, or it is just ending.

    Raises OSError.
    """
    connection = connect(home, PARENT_SOCKET, timeout_s=timeout_s)
    if connection is None:
        return None
    channel = Channel(connection)
    try:
        channel.send_message(ListWorkers())
        return channel.receive_message(ParentReport)
    except PeerLostError:
        return None
    finally:
        channel.close()


class WorkerConnector:
    """Connects to the workers of one home."""

    def __init__(
        self,
        home: WorkerHome,
        launch: WorkerLaunch,
        jvm: Callable[[int], int] = find_jvm,
        clock: Clock | None = None,
        start_parent: Callable[[], object] | None = None,
    ) -> None:
        """Nothing is connected yet.

        Args:
            home: Of the workers.
            launch: How they are made.
            jvm: Finds the executor's JVM, which the parent watches, from the id of this process.
            clock: Time.
            start_parent: Has the parent started by a process of the executor, where this process is none.
        """
        self._home = home
        self._launch = launch
        self._jvm = jvm
        self._clock = clock or SystemClock()
        self._start_elsewhere = start_parent

    def open(self, opening: Opening) -> tuple[Channel, Ready]:
        """Bring a request to its worker; returns the connection after the worker's `Ready`.

        Raises:
            DidNotHappenError: no worker took the request; nothing was executed.
            WorkerFailedError: the worker could not begin.
        """
        problem: Exception | None = None
        for pause_s in self._launch.backoff.pauses():
            self._clock.sleep(pause_s)
            try:
                connection = self._connect(opening)
                if connection is None:
                    continue
                channel = Channel(connection)
                try:
                    channel.send_message(opening)
                    return channel, channel.receive_message(Ready)
                except BaseException:
                    channel.close()
                    raise
            except (PeerLostError, OSError, subprocess.SubprocessError) as error:
                problem = error  # it ended between connect and Ready: nothing has happened
        unreached = DidNotHappenError(
            f"the state worker cannot be reached ({problem or 'it does not listen'}); {TRIED_AGAIN}",
            job=opening.task.batch.operator.job,
            operator=opening.task.batch.operator.operator,
            partition=opening.task.partition,
            batch=opening.task.batch.batch,
        )
        unreached.add_note(self.log_note())
        raise unreached from problem

    def ensure_parent(self) -> None:
        """Start the parent unless it runs. Raises `DidNotHappenError`, `OSError`."""
        (connect(self._home, PARENT_SOCKET) or self._start_parent()).close()

    def exit_code(self, pid: int) -> int | None:
        """The exit code of a worker whose connection has ended, negative for a signal; None if it has not ended."""
        for pause_s in _END_PAUSES_S:
            self._clock.sleep(pause_s)
            try:
                report = parent_report(self._home, _REPORT_TIMEOUT_S)
            except OSError:
                return None
            if report is None:
                return None
            code = next((end.exit_code for end in report.ended if end.pid == pid), None)
            if code is not None:
                return code
        return None

    def log_note(self) -> str:
        """The last lines of the workers' log, as a note of an error."""
        return f"{WORKER_NOTE}\n{log_tail(self._home)}"

    def _connect(self, opening: Opening) -> socket.socket | None:
        operator = opening.task.batch.operator
        worker = worker_name(operator.job_id, opening.task.partition)
        connection = connect(self._home, worker_socket(worker))
        if connection is not None:
            return connection
        request = StartWorker(
            worker=worker,
            partition=opening.task.partition,
            factory=self._launch.factory,
            preload=_preload(operator.storage_url, operator.storage_options),
        )
        self._ask_parent(request)
        return connect(self._home, worker_socket(worker))

    def _ask_parent(self, request: StartWorker) -> None:
        channel = Channel(connect(self._home, PARENT_SOCKET) or self._start_parent())
        try:
            channel.send_message(request)
            report = channel.receive_message(ParentReport)
        finally:
            channel.close()
        if report.error is not None:
            raise OSError(report.error)

    def _start_parent(self) -> socket.socket:
        """Start the parent unless another task has just done so; returns a connection to it. Raises OSError."""
        if self._start_elsewhere is not None:
            self._start_elsewhere()
            connection = connect(self._home, PARENT_SOCKET)
            if connection is None:
                raise ConnectionRefusedError("the parent of the state workers ended at once")
            return connection
        try:
            self._home.create()
        except FileNotFoundError as error:
            raise DidNotHappenError(
                f"{self._home.path.parent} is gone, and with it the executor; {TRIED_AGAIN}"
            ) from error
        with exclusive(self._home.lock_path):
            connection = connect(self._home, PARENT_SOCKET)
            if connection is not None:
                return connection
            jvm = ProcessWatch.of(self._jvm(os.getpid()))
            server = listen(self._home, PARENT_SOCKET)
            try:
                self._spawn(server, jvm)
                connection = connect(self._home, PARENT_SOCKET)
            finally:
                server.close()
                jvm.close()
        if connection is None:
            raise ConnectionRefusedError("the parent of the state workers ended at once")
        return connection

    def _spawn(self, server: socket.socket, jvm: ProcessWatch) -> None:
        # -P: the working directory of an executor may hold files named like modules of the standard library.
        command = [sys.executable, "-P", "-m", _PARENT, "--home", str(self._home.path)]
        command += ["--listen-fd", str(server.fileno()), "--jvm-pid", str(jvm.pid)]
        descriptors = [server.fileno()]
        if jvm.descriptor is not None:
            command += ["--jvm-fd", str(jvm.descriptor)]
            descriptors.append(jvm.descriptor)
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(_SECRETS)}
        environment = {**_SINGLE_THREAD, **inherited}
        environment["PYTHONPATH"] = os.pathsep.join(import_path(sys.path))
        with self._home.log_path.open("ab") as log:
            # The process forks and ends at once, so nothing of ours is left to be waited for.
            subprocess.run(  # noqa: S603  our own interpreter and module
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                pass_fds=descriptors,
                start_new_session=True,
                check=True,
            )


def _preload(storage_url: str, storage_options: Mapping[str, Any]) -> tuple[str, ...]:
    """Modules that reading this storage needs and that take long to import."""
    protocol = storage_url.partition("://")[0]
    if not any(protocol in names for names in PROTOCOLS):
        return ()
    # Imported here: tasks with a local store do not need it, and it takes 30 ms.
    from varvite.storage.object_stores.remote.engine import packages_of

    return packages_of(storage_url, storage_options)
