"""The process of one state worker: accepts pumps and executes their requests one at a time.

The main thread executes (user code may need it); an accept thread accepts, watches the executor's JVM and the
parent, and ends what is stuck; a short thread per connection reads the opening message.

Invariants: I3 (a connection that ends early aborts its attempt as a whole), I6 (see `admission`), I9 (the
process may end at any moment: it holds only cache).
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import socket
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from varvite.spark_integration.messages.requested_store import has_run
from varvite.spark_integration.processes import (
    die_with_parent,
    guard_forks,
    keep_from_forks,
    orphaned,
    set_process_name,
)
from varvite.spark_integration.transport.home import enlarge_buffers, exclusive
from varvite.spark_integration.transport.segment_inbox import is_near
from varvite.spark_integration.transport.wire import Channel, Opening, PeerLostError
from varvite.spark_integration.worker.process.output import WorkerOutput
from varvite.spark_integration.worker.process.request_handler import RequestHandler, WorkerSettings, describe_failure
from varvite.spark_integration.worker.process.request_queue import PendingRequest, RequestQueue
from varvite.storage.clock import SystemClock

if TYPE_CHECKING:
    from varvite.spark_integration.transport.executor_jvm import ProcessWatch
    from varvite.spark_integration.transport.home import WorkerHome
    from varvite.spark_integration.transport.wire import StartWorker
    from varvite.storage.clock import Clock

_log: Final = logging.getLogger(__name__)
TICK_S: Final = 0.5
OPENING_TIMEOUT_S: Final = 30.0
"""Timeout of the opening message; then the connection is closed."""
FIRST_REQUEST_S: Final = 60.0
"""A worker that no request reaches within this time ends."""
STUCK_GRACE_S: Final = 30.0
"""Time that user code of a superseded attempt may go on before the process is ended for the newer one."""
STOP_GRACE_S: Final = 4.0
"""Time allowed for an orderly shutdown."""
EXIT_STUCK: Final = 75
COMMIT_PAUSE_S: Final = 0.1
"""Before it works ahead, a worker on the driver's machine leaves the processor to the commit for this time."""


class AcceptThread:
    """The thread that accepts pumps and decides when the process must end."""

    def __init__(
        self, queue: RequestQueue, server: socket.socket, jvm: ProcessWatch, parent: int, clock: Clock
    ) -> None:
        self._queue = queue
        self._server = server
        self._jvm = jvm
        self._parent = parent
        self._clock = clock
        self._stop_at_s: float | None = None
        self._wake_read, self._wake_write = socket.socketpair()
        for resource in (server, self._wake_read, self._wake_write):
            keep_from_forks(resource)
        self._thread = threading.Thread(target=self._run_or_end, name="varvite-accept", daemon=True)

    def start(self) -> None:
        """Begin to accept."""
        self._thread.start()

    def stop(self) -> None:
        """Accept no more connections, and see that the process ends soon. Callable from a signal handler."""
        self._wake_write.send(b"s")

    def _run_or_end(self) -> None:
        """Run, and end the process on a failure: without this thread it could not be reached and would not end."""
        try:
            self._run()
        except BaseException:  # noqa: BLE001  nothing may be left half alive
            _log.exception("the accept thread failed")
            os._exit(1)

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake_read, selectors.EVENT_READ)
            selector.register(self._server, selectors.EVENT_READ)
            if self._jvm.descriptor is not None:
                selector.register(self._jvm.descriptor, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select(TICK_S)]
                self._end_if_must()
                if self._wake_read in ready:
                    self._wake_read.recv(1)
                    self._stop_accepting(selector)
                elif self._server in ready:
                    self._accept()

    def _end_if_must(self) -> None:
        if self._jvm.ended() or orphaned(self._parent):
            os._exit(0)
        now_s = self._clock.monotonic_s()
        if self._stop_at_s is not None and now_s > self._stop_at_s:
            _log.error("the orderly shutdown took more than %.0f s", STOP_GRACE_S)
            os._exit(EXIT_STUCK)
        if self._queue.stuck_s(now_s) > STUCK_GRACE_S:
            _log.error("user code of a superseded attempt still runs after %.0f s: ending the process", STUCK_GRACE_S)
            os._exit(EXIT_STUCK)

    def _stop_accepting(self, selector: selectors.BaseSelector) -> None:
        if self._stop_at_s is None:
            self._stop_at_s = self._clock.monotonic_s() + STOP_GRACE_S
            selector.unregister(self._server)
            self._server.close()  # from here on pumps turn to the parent
            self._queue.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._server.accept()
            keep_from_forks(connection)
            enlarge_buffers(connection)
        except OSError:
            _log.exception("a connection could not be accepted")
            self._clock.sleep(0.05)  # out of file descriptors: do not spin
            return
        threading.Thread(target=self._receive_opening, args=(Channel(connection),), daemon=True).start()

    def _receive_opening(self, channel: Channel) -> None:
        try:
            channel.set_timeout(OPENING_TIMEOUT_S)
            opening = channel.receive_message(Opening)
            channel.set_timeout(None)
        except PeerLostError:
            channel.close()
            return
        except Exception as error:  # noqa: BLE001  a client may send anything
            _log.warning("a connection sent no valid opening: %s", error)
            with suppress(PeerLostError):
                channel.send_failure(describe_failure(error))
            channel.close()
            return
        self._queue.put(PendingRequest(channel, opening))


def run_worker(home: WorkerHome, server: socket.socket, start: StartWorker, jvm: ProcessWatch, parent: int) -> int:
    """Serve until idle for too long or stopped; returns the exit code.

    Called in the main thread of a fresh fork.
    """
    die_with_parent(parent)
    guard_forks()
    set_process_name(f"varvite-{start.partition}")
    clock = SystemClock()
    # Two processes must never be the same worker; the last one may still be dying with its own parent.
    with exclusive(home.worker_lock_path(start.worker)):
        queue = RequestQueue(clock, has_run)
        accept_thread = AcceptThread(queue, server, jvm, parent, clock)

        def stop(*_: Any) -> None:
            accept_thread.stop()

        signal.signal(signal.SIGTERM, stop)
        accept_thread.start()
        handler = RequestHandler(WorkerSettings(start.partition, home, start.factory), WorkerOutput())
        idle_timeout_s = FIRST_REQUEST_S
        while (request := queue.take(idle_timeout_s)) is not None:
            operator = request.task.batch.operator
            idle_timeout_s = operator.idle_timeout_s
            try:
                answered = handler.serve(request)
            finally:
                queue.finish(request)
            if answered and not queue.wait(COMMIT_PAUSE_S if is_near(operator.inbox) else 0):
                handler.idle()
        accept_thread.stop()
        handler.close()
    _log.info("worker %s ends in an orderly way", start.worker)
    sys.stdout.flush()
    return 0
