"""The warm parent of an executor's state workers: `python -m varvite.spark_integration.worker.process.parent`.

The first task that needs one starts it (`transport.connection`). It imports what workers need. On request it forks one
child per worker name, and again if that one died. Its starter has bound the socket at which it is reached, so a request
may wait there while the parent still imports.

It ends, and its children with it, when the executor's JVM ends. It also ends when its socket leaves the executor's
directory: `spark.stop()` deletes that directory while the JVM lives on. It never computes with Arrow and starts no
thread. A fork copies only the calling thread, and a lock that another one holds would stay locked in the child.

Invariant: I9 (what it deletes when the executor is gone is cache), I10 (the log is cut).
"""

from __future__ import annotations

import argparse
import gc
import importlib
import importlib.util
import logging
import os
import selectors
import shutil
import signal
import socket
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from varvite.spark_integration.processes import set_process_name, thread_count
from varvite.spark_integration.transport.executor_jvm import ProcessWatch
from varvite.spark_integration.transport.home import (
    PARENT_SOCKET,
    WorkerHome,
    exclusive,
    listen,
    socket_inode,
    worker_socket,
)
from varvite.spark_integration.transport.wire import (
    Channel,
    ListWorkers,
    ParentReport,
    StartWorker,
    WorkerEnd,
    WorkerProcess,
)
from varvite.storage.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varvite.storage.clock import Clock

    _Closeable = selectors.BaseSelector | socket.socket
    _Inherited = tuple[_Closeable, ...]

_log: Final = logging.getLogger("varvite.spark_integration.worker.process.parent")  # started as `__main__`
TICK_S: Final = 0.5
"""Interval at which the parent looks if its directory is still there."""
LOG_BYTES_MAX: Final = 4 << 20
"""The log is cut when it exceeds this; the part before the cut is kept once."""
STOP_GRACE_S: Final = 5.0
"""Time allowed for an orderly shutdown of the children."""
ENDED_MAX: Final = 100
"""Ends of workers that the parent remembers, for the pumps that have lost them."""
_REQUEST_TIMEOUT_S: Final = 2.0
_PRELOAD: Final = (
    "pyarrow",
    "pyarrow.compute",
    "rocksdict",
    "fsspec",
    "pandas",  # not ours: pyarrow imports it at the first array that it makes, if it is there
    "pyspark.cloudpickle",
    "pyspark.core.broadcast",
    "pyspark.core.files",
    "varvite.datastream",  # programs import it: 0.3 s and 10 MiB, here once instead of in each child
    "varvite.spark_integration.worker.process.child",
    "varvite.spark_integration.worker.state_worker",
)


class WorkerParent:
    """Forks workers and keeps a list of them."""

    def __init__(self, home: WorkerHome, server: socket.socket, jvm: ProcessWatch, clock: Clock) -> None:
        self._home = home
        self._server = server
        self._jvm = jvm
        self._clock = clock
        self._inode = socket_inode(home, PARENT_SOCKET)
        self._workers: dict[str, int] = {}
        self._ended: deque[WorkerEnd] = deque(maxlen=ENDED_MAX)
        self._stopping = False

    def serve(self) -> None:
        """Answer requests until the executor is gone or SIGTERM asks to stop."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._server, selectors.EVENT_READ)
            if self._jvm.descriptor is not None:
                selector.register(self._jvm.descriptor, selectors.EVENT_READ)
            while not self._stopping and not self._executor_gone():
                ready = selector.select(TICK_S)
                self._reap()
                if any(key.fileobj is self._server for key, _ in ready):
                    self._answer_safely(selector)
                self._cut_log()
        self._server.close()
        gone = self._executor_gone()
        self._end_workers(signal.SIGKILL if gone else signal.SIGTERM)
        if gone:
            self._remove_home()

    def stop(self) -> None:
        """Shut down in an orderly way at the next tick; local files stay."""
        self._stopping = True

    def _executor_gone(self) -> bool:
        if self._jvm.ended():
            _log.info("the executor's JVM (%d) has ended", self._jvm.pid)
        elif self._inode is None or socket_inode(self._home, PARENT_SOCKET) != self._inode:
            _log.info("%s is no longer in %s: the executor is gone", PARENT_SOCKET, self._home.path)
        else:
            return False
        return True

    def _answer_safely(self, selector: selectors.BaseSelector) -> None:
        """Answer a client; the loop goes on whatever it does."""
        try:
            connection, _ = self._server.accept()
        except OSError:
            _log.exception("a connection could not be accepted")
            self._clock.sleep(0.05)  # out of file descriptors: do not spin
            return
        channel = Channel(connection)
        try:
            channel.set_timeout(_REQUEST_TIMEOUT_S)
            request = channel.receive_message(StartWorker | ListWorkers)
            channel.send_message(self._answer(request, (selector, connection)))
        except Exception:  # noqa: BLE001
            _log.exception("a request was not understood, or its sender has gone")
        finally:
            channel.close()

    def _answer(self, request: StartWorker | ListWorkers, inherited: _Inherited) -> ParentReport:
        forked: str | None = None
        error: str | None = None
        if isinstance(request, StartWorker) and request.worker not in self._workers:
            try:
                self._fork(request, inherited)
                forked = request.worker
            except OSError as problem:
                _log.exception("worker %s could not be started", request.worker)
                error = f"{type(problem).__name__}: {problem}"
        workers = tuple(WorkerProcess(worker=w, pid=p, forked=w == forked) for w, p in self._workers.items())
        return ParentReport(
            pid=os.getpid(), threads=thread_count(), workers=workers, ended=tuple(self._ended), error=error
        )

    def _fork(self, request: StartWorker, inherited: _Inherited) -> None:
        for module in request.preload:
            _import(module)
        if thread_count() > 1:
            _log.warning("forking with %d threads; a preloaded module has started some", thread_count())
        server = listen(self._home, worker_socket(request.worker))
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            _run_child(self._home, server, request, self._jvm, parent, (*inherited, self._server))
        server.close()
        self._workers[request.worker] = pid
        _log.info("worker %s is process %d", request.worker, pid)

    def _reap(self) -> None:
        for worker, pid in list(self._workers.items()):
            try:
                ended, status = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                ended, status = pid, 0
            if ended:
                del self._workers[worker]
                end = WorkerEnd(pid=pid, exit_code=os.waitstatus_to_exitcode(status))
                self._ended.append(end)
                _log.info("worker %s (%d) has ended: exit code %d", worker, pid, end.exit_code)

    def _end_workers(self, first_signal: signal.Signals) -> None:
        """Signal the children, kill those that take too long, and wait for all."""
        self._signal_workers(first_signal)
        deadline_s = self._clock.monotonic_s() + STOP_GRACE_S
        while self._workers:
            self._reap()
            if self._clock.monotonic_s() > deadline_s:
                self._signal_workers(signal.SIGKILL)
            self._clock.sleep(0.01)

    def _remove_home(self) -> None:
        """Delete what the executor left, unless a task is starting, or has started, another parent in the directory."""
        with suppress(OSError), exclusive(self._home.lock_path, wait=False) as mine:
            if self._jvm.ended() or (mine and socket_inode(self._home, PARENT_SOCKET) in (None, self._inode)):
                shutil.rmtree(self._home.path, ignore_errors=True)

    def _signal_workers(self, number: signal.Signals) -> None:
        for pid in self._workers.values():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _cut_log(self) -> None:
        """Copy and truncate: the writers append, so they go on at the new end."""
        with suppress(OSError):  # the directory may be going away
            if self._home.log_path.stat().st_size > LOG_BYTES_MAX:
                shutil.copyfile(self._home.log_path, self._home.old_log_path)
                os.truncate(self._home.log_path, 0)


def _run_child(
    home: WorkerHome,
    server: socket.socket,
    request: StartWorker,
    jvm: ProcessWatch,
    parent: int,
    inherited: Sequence[_Closeable],
) -> None:
    """The rest of the child's life; does not return into the parent's loop."""
    code = 1
    try:
        for resource in inherited:
            resource.close()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        from varvite.spark_integration.worker.process.child import run_worker

        code = run_worker(home, server, request, jvm, parent)
    except BaseException:  # noqa: BLE001  this process only ends
        _log.exception("worker %s failed", request.worker)
    finally:
        try:
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def _import(module: str) -> None:
    """Import ahead; what cannot be imported fails later in the worker that needs it, with its own message."""
    try:
        if importlib.util.find_spec(module.partition(".")[0]) is not None:
            importlib.import_module(module)
    except Exception:  # noqa: BLE001  a module may raise anything
        _log.exception("cannot preload %s", module)


def _log_to_file() -> None:
    """Write varvite's own log; user code finds logging as it is in Spark's Python workers, with nothing set up."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"))
    log = logging.getLogger("varvite")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point; `transport.connection` is the caller and passes the descriptors on."""
    parser = argparse.ArgumentParser(prog="varvite.spark_integration.worker.process.parent", description=__doc__)
    parser.add_argument("--home", type=Path, required=True, help="directory of the executor's state workers")
    parser.add_argument("--listen-fd", type=int, required=True, help="the listening socket")
    parser.add_argument("--jvm-pid", type=int, required=True, help="process id of the executor's JVM")
    parser.add_argument("--jvm-fd", type=int, help="its pidfd; without it the process is polled")
    options = parser.parse_args(arguments)
    if os.fork():
        os._exit(0)  # the starter waits for this process; the parent proper is its orphan
    _log_to_file()
    set_process_name("varvite-parent")
    server = socket.socket(fileno=options.listen_fd)
    jvm = ProcessWatch(options.jvm_pid, options.jvm_fd)
    parent = WorkerParent(WorkerHome(options.home), server, jvm, SystemClock())
    signal.signal(signal.SIGTERM, lambda *_: parent.stop())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for module in _PRELOAD:
        _import(module)
    gc.collect()
    gc.freeze()  # the children share these pages as long as no collection writes into them
    _log.info("parent of workers in %s for JVM %d, %d thread(s)", options.home, options.jvm_pid, thread_count())
    parent.serve()


if __name__ == "__main__":
    main()
