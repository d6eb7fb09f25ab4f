"""Threads of the system as tasks of the scheduler: what takes the place of thread pools while a simulation runs.

A pool whose work the system does not wait for at once (packs, ranges of the materializer) gets tasks of its own; the
others do their work in the thread that hands it over, which then pauses at each effect all the same.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from typing import Any, Final, Self
from unittest import mock

from tests.simulation.system.scheduler import Killed, Process, Scheduler, TaskFuture, Violation
from varvite.spark_integration.driver.snapshot_watch import SnapshotWatch
from varvite.storage.attempt_threads import AttemptThreads
from varvite.storage.object_stores.contract import ObjectStore

BESIDE: Final = ("varvite-pack", "varvite-materialize", "varvite-claim")
"""Prefixes of the names of threads that run beside the one that hands the work over."""
SCHEDULER: Scheduler | None = None
"""Of the simulation that runs in this process."""


def scheduler() -> Scheduler:
    """The scheduler of the simulation that runs."""
    assert SCHEDULER is not None
    return SCHEDULER


class TaskPool:
    """In the place of a `ThreadPoolExecutor`."""

    def __init__(self, max_workers: int | None = None, thread_name_prefix: str = "", **_: Any) -> None:
        self._workers = max_workers or 1
        self._name = thread_name_prefix
        self._beside = thread_name_prefix.startswith(BESIDE)
        self._queue: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._running = 0
        self._open = True

    def submit(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        if not self._open:
            raise RuntimeError("cannot schedule new futures after shutdown")
        own = scheduler()
        future = TaskFuture(own)
        job = lambda: work(*args, **kwargs)  # noqa: E731
        task = own.current
        if not self._beside or task is None:
            _carry_out(future, job)
            return future
        self._queue.append((future, job))
        self._fill(task.process)
        return future

    def map(self, work: Callable[[Any], Any], *iterables: Iterable[Any]) -> Iterator[Any]:
        return iter([work(*items) for items in zip(*iterables, strict=False)])

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._open = False
        if cancel_futures:
            while self._queue:
                self._queue.popleft()[0].cancel()
        if wait and not (scheduler().current is None or scheduler().current.killed):  # type: ignore[union-attr]
            scheduler().wait_for(lambda: not self._running and not self._queue)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def _fill(self, process: Process) -> None:
        while self._queue and self._running < self._workers:
            self._running += 1
            scheduler().start(process, self._name, lambda: self._work(process))

    def _work(self, process: Process) -> None:
        try:
            if self._queue:
                _carry_out(*self._queue.popleft())
        finally:
            self._running -= 1
        self._fill(process)


class TaskThreads:
    """In the place of `AttemptThreads`: no call hangs here for ever."""

    lost = 0

    def __init__(self, limit: int, name: str = "varvite-upload-attempt") -> None:
        self.limit = limit
        self._pool = TaskPool(limit, name)

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        return self._pool.submit(call)

    def give_up(self, future: Future[Any]) -> None:
        future.cancel()

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def _carry_out(future: Future[Any], work: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except (Killed, Violation):
        raise
    except BaseException as error:  # noqa: BLE001  as a thread pool does
        future.set_exception(error)
    else:
        future.set_result(result)


def wait_for_futures(
    waited: Iterable[Future[Any]], timeout: float | None = None, return_when: str = futures.ALL_COMPLETED
) -> Any:
    """In the place of `concurrent.futures.wait`."""
    all_of = set(waited)
    enough = any if return_when == futures.FIRST_COMPLETED else all
    if not enough(one.done() for one in all_of):
        bound = {} if timeout is None else {"seconds": timeout}
        scheduler().wait_for(lambda: enough(one.done() for one in all_of), **bound)
    return futures.wait(all_of, 0)


class _TaskEvent:
    """In the place of the event that ends the watch."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def wait(self, seconds: float) -> bool:
        return scheduler().wait_for(lambda: self._is_set, seconds)


class _WatchTask:
    """In the place of the thread that watches."""

    def __init__(self, body: Callable[[], None]) -> None:
        self._body = body

    def start(self) -> None:
        task = scheduler().current
        assert task is not None
        scheduler().start(task.process, "watch", self._body)

    def is_alive(self) -> bool:
        return False


class WatchOfTasks(SnapshotWatch):
    """The driver's look at published snapshots, as a task."""

    def __init__(self, store: ObjectStore, job_id: str) -> None:
        super().__init__(store, job_id)
        replaced: Any = self
        replaced._stopped = _TaskEvent()
        replaced._thread = _WatchTask(self._run)


@contextmanager
def simulated_threads(own: Scheduler) -> Iterator[None]:
    """Pools, waits and the watch of all loaded modules of varvite use the scheduler."""
    global SCHEDULER  # noqa: PLW0603  one simulation runs in a process at a time
    with ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            if not name.startswith("varvite."):
                continue
            if getattr(module, "ThreadPoolExecutor", None) is futures.ThreadPoolExecutor:
                stack.enter_context(mock.patch.object(module, "ThreadPoolExecutor", TaskPool))
            if getattr(module, "AttemptThreads", None) is AttemptThreads:
                stack.enter_context(mock.patch.object(module, "AttemptThreads", TaskThreads))
            if getattr(module, "wait", None) is futures.wait:
                stack.enter_context(mock.patch.object(module, "wait", wait_for_futures))
        before, SCHEDULER = SCHEDULER, own
        try:
            yield
        finally:
            SCHEDULER = before
