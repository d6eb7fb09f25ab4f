"""The driver's own materializer, restarted when it dies (`materializer.mode = embedded`).

Each end of the child, by the kernel's out-of-memory killer for instance, is counted and reported, and followed by a
restart with exponential backoff up to `RESTARTS.maximum_s`. The job does not notice; its log only gets longer.

Invariants: I9 (the child may die at any moment), I10 (a child that dies at once is restarted with backoff).
"""

from __future__ import annotations

import logging
import signal
import threading
from subprocess import TimeoutExpired
from typing import TYPE_CHECKING, Final

from varvite.materializer.service.child_process import start_materializer_process
from varvite.storage.object_stores.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable

    from varvite.materializer.options.materializer_config import MaterializerConfig
    from varvite.materializer.service.child_process import MaterializerProcess

_log: Final = logging.getLogger(__name__)
RESTARTS: Final = Backoff(attempts=1, initial_s=1.0, maximum_s=300.0)
"""Pauses before starts; their number is not limited."""
SETTLED_S: Final = 60.0
"""Lifetime after which a child counts as well: the next pause is the shortest again."""


class SupervisedMaterializer:
    """A child process that is restarted when it ends, until `stop`.

    Args:
        config: The child's configuration.
        started: Called after each start.
        trouble: Called with an error text, and with an empty one once a child has settled.
        restarts: Pauses before restarts.
        settled_s: Lifetime after which a child has settled (`SETTLED_S`).

    Both are called by one thread of this object; they must not raise or block.
    """

    def __init__(
        self,
        config: MaterializerConfig,
        *,
        started: Callable[[], None],
        trouble: Callable[[str], None],
        restarts: Backoff = RESTARTS,
        settled_s: float = SETTLED_S,
    ) -> None:
        self._config = config
        self._started = started
        self._trouble = trouble
        self._restarts = restarts
        self._settled_s = settled_s
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._process: MaterializerProcess | None = None
        self._thread = threading.Thread(target=self._run, name="varvite-materializer-watch", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """Process id of the newest child, dead or alive; None before the first start."""
        process = self._process
        return None if process is None else process.pid

    def announce(self, seq: int, body: bytes) -> None:
        """Tell the child of an entry that is durable, so that it does not ask the storage. Never blocks or raises."""
        process = self._process
        if process is not None:
            process.announce(seq, body)

    def stop(self) -> None:
        """End the child, and start no other. Stopping again does nothing."""
        self._stopping.set()
        with self._lock:
            if self._process is not None:
                self._process.stop()
        self._thread.join()

    def _run(self) -> None:
        failures = 0
        while True:
            process, problem = self._start()
            if process is not None:
                self._started()
                failures, problem = self._wait_for_end(process, failures)
            if self._stopping.is_set():
                return
            failures += 1
            pause_s = self._restarts.pause_s(failures)
            text = f"the materializer {problem}; it is started again in {pause_s:g} s (failure {failures} in a row)"
            _log.warning("%s", text)
            self._trouble(text)
            if self._stopping.wait(pause_s):
                return

    def _start(self) -> tuple[MaterializerProcess | None, str]:
        """Start a child; returns it, or None and an error text."""
        with self._lock:
            if self._stopping.is_set():
                return None, ""
            try:
                self._process = start_materializer_process(self._config)
            except OSError as error:  # out of memory, processes or file descriptors: all may pass
                return None, f"could not be started: {error}"
            return self._process, ""

    def _wait_for_end(self, process: MaterializerProcess, failures: int) -> tuple[int, str]:
        """Wait for the child's end; (failures in a row before it, description of its end)."""
        try:
            code = process.wait(self._settled_s)
        except TimeoutExpired:
            failures = 0
            self._trouble("")
            code = process.wait(None)
        return failures, ending(code)


def ending(code: int) -> str:
    """Description of the end of a process with this exit code, for people."""
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    hint = ", as the kernel does when memory runs out" if -code == signal.SIGKILL else ""
    return f"was killed by {name}{hint}"
