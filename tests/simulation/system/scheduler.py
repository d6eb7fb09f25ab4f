"""The scheduler of the simulated system: everybody's threads take turns, at every effect, as the seed says.

A task is a thread of a simulated process. It runs on a real thread, but only one of all tasks runs at any time: who has
the baton. At each effect (`pause`), sleep and wait it is decided who goes on. Time is virtual: it passes a little with
each step, and jumps ahead when all sleep. Real threads are kept and used again, by all simulations of this process.

Orders are what only the hub (the thread that called `run`) may do, while no task runs: killing a process, starting
another one, checking what must not interleave.
"""

from __future__ import annotations

import math
import random
import threading
import zlib
from _thread import allocate_lock
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

BEGIN_MS: Final = 1_700_000_000_000
"""Wall clock at the beginning, without skew."""


class Killed(BaseException):
    """The task's process is gone."""


class Violation(BaseException):
    """An invariant is broken."""


class Crash:
    """Something that ends at once when its process is killed, without the care of an ordinary end."""

    def crash(self) -> None:
        """Release what the system would release."""


@dataclass(eq=False)
class Process:
    """A process of the simulated system; a directory is its local disk."""

    name: str
    directory: Path
    host: Path | None = None
    """A directory that it shares with others, and that outlives it."""
    skew_s: float = 0.0
    """Of its wall clock."""
    is_alive: bool = True
    stalled_until_s: float = 0.0
    resources: list[Crash] = field(default_factory=list)

    def stalls(self, now_s: float, seconds: float) -> None:
        """It does nothing for so long."""
        self.stalled_until_s = max(self.stalled_until_s, now_s + seconds)


class Task:
    """A thread of a simulated process."""

    __slots__ = ("body", "carrier", "context", "killed", "last_step", "name", "process", "ready", "wake_s")

    def __init__(self, process: Process, name: str, body: Callable[[], None]) -> None:
        self.process = process
        self.name = name
        self.body = body
        self.carrier: _Carrier | None = None
        self.killed = False
        self.last_step = 0
        """Step of the system at which it was stopped last."""
        self.wake_s = 0.0
        self.ready: Callable[[], bool] | None = None
        """Condition that it waits for, until `wake_s` at most; None: it sleeps, or may go on."""
        self.context: Any = None
        """Of whoever uses the task."""

    def may_go_on(self, now_s: float) -> bool:
        if self.process.stalled_until_s > now_s:
            return False
        return self.wake_s <= now_s or (self.ready is not None and self.ready())

    def earliest_s(self) -> float:
        """Earliest time at which it could go on without anybody else's doing."""
        wake_s = 0.0 if self.ready is not None and self.ready() else self.wake_s
        return max(self.process.stalled_until_s, wake_s)


class _Carrier:
    """A real thread that carries one task after another."""

    idle: Final[list[_Carrier]] = []

    def __init__(self) -> None:
        self.go = allocate_lock()
        self.go.acquire()
        self.work: tuple[Scheduler, Task] | None = None
        threading.Thread(target=self._carry, name="simulated", daemon=True).start()

    @classmethod
    def take(cls) -> _Carrier:
        return cls.idle.pop() if cls.idle else cls()

    def _carry(self) -> None:
        while True:
            self.go.acquire()
            work, self.work = self.work, None
            assert work is not None
            scheduler, task = work
            failure: BaseException | None = None
            try:
                if not task.killed:
                    task.body()
            except BaseException as error:  # noqa: BLE001  what it means is for the simulation to say
                failure = error
            del work
            _Carrier.idle.append(self)
            scheduler._ended(task, failure)
            del scheduler, task, failure


class Scheduler:
    """As the module's text says.

    Args:
        rng: Decides; owned by the scheduler from now on. None: all take turns.
        step_s: Seconds that pass with each step.
        burst: Steps that a task makes on average before another one may go on.
    """

    def __init__(self, rng: random.Random | None, step_s: float = 0.02, burst: float = 2.0) -> None:
        self.now_s = 0.0
        self.steps = 0
        self.digest = 0
        """Of all steps: equal for equal runs."""
        self.trace: list[str] | None = None
        self.current: Task | None = None
        self.failure: BaseException | None = None
        self.orders: list[Callable[[], None]] = []
        self.on_step: Callable[[Task, str], None] = lambda _task, _what: None
        self.on_end: Callable[[Task, BaseException | None], None] = lambda _task, _error: None
        self._rng = rng
        self._step_s = step_s
        self._stay = 1 - 1 / burst
        self._limit = 0
        self._tasks: list[Task] = []
        self._hub = allocate_lock()
        self._hub.acquire()

    def start(self, process: Process, name: str, body: Callable[[], None]) -> Task:
        """A new task; it begins when it is its turn."""
        task = Task(process, name, body)
        self._tasks.append(task)
        return task

    def run(self, steps: int) -> None:
        """Go on for so many steps, or until nobody is left; raises what `failure` holds. Called by the hub."""
        self._limit = self.steps + steps
        while self.failure is None and self.steps < self._limit:
            orders, self.orders = self.orders, []
            for order in orders:
                order()
            task = self._choose()
            if task is None:
                break
            self._resume(task)
            self._hub.acquire()
        if self.failure is not None:
            raise self.failure

    def pause(self, what: str) -> None:
        """The current task is about to do something that others can see. Nothing happens outside of tasks."""
        task = self.current
        if task is None:
            return
        if task.killed:
            raise Killed
        self.steps += 1
        task.last_step = self.steps
        self.now_s += self._step_s
        self._note(task, what)
        try:
            self.on_step(task, what)
        except BaseException as error:  # noqa: BLE001  the hub raises it
            self.failure = self.failure or error
        self._pass_on(task)

    def sleep(self, seconds: float) -> None:
        """The current task sleeps; outside of tasks time passes."""
        if self.current is None:
            self.now_s += seconds
            return
        self.current.wake_s = self.now_s + seconds
        self.pause("sleep")

    def wait_for(self, ready: Callable[[], bool], seconds: float = math.inf) -> bool:
        """The current task waits until that is so, or for so long; whether it is so."""
        task = self.current
        while not ready():
            assert task is not None, "nobody can wait outside of a task"
            task.ready, task.wake_s = ready, self.now_s + seconds
            try:
                self.pause("wait")
            finally:
                task.ready, task.wake_s = None, 0.0
            if seconds < math.inf:
                break
        return ready()

    def kill(self, process: Process) -> None:
        """End a process at once: local files stay as they are. Called by the hub."""
        assert self.current is None
        process.is_alive = False
        for resource in process.resources:
            resource.crash()
        process.resources.clear()
        with ExitStack() as stack:
            for directory in (process.directory, process.host):
                if directory is not None and directory.exists():
                    stack.enter_context(_put_away(directory))  # what tasks do while they unwind must not touch it
            for task in [task for task in self._tasks if task.process is process]:
                task.killed = True
                self._resume(task)
                self._hub.acquire()

    def kill_all(self) -> None:
        """End every process."""
        while self._tasks:
            self.kill(self._tasks[0].process)

    def fail(self, text: str) -> None:
        """An invariant is broken."""
        self.failure = self.failure or Violation(text)
        raise self.failure

    def _pass_on(self, task: Task) -> None:
        """Let whoever is chosen go on, and return when the task is again."""
        if self.failure is not None or self.orders or self.steps >= self._limit:
            self._to_hub()
        elif self._rng is not None and task.may_go_on(self.now_s) and self._rng.random() < self._stay:
            return
        else:
            chosen = self._choose()
            if chosen is task:
                return
            if chosen is None:
                self._to_hub()
            else:
                self._resume(chosen)
        carrier = task.carrier
        assert carrier is not None
        carrier.go.acquire()
        if task.killed:
            raise Killed

    def _ended(self, task: Task, failure: BaseException | None) -> None:
        self._tasks.remove(task)
        if task.killed:
            self._to_hub()
            return
        try:
            self.on_end(task, failure)
        except BaseException as error:  # noqa: BLE001  the hub raises it
            self.failure = self.failure or error
        chosen = None if self.failure is not None or self.orders else self._choose()
        if chosen is None:
            self._to_hub()
        else:
            self._resume(chosen)

    def _choose(self) -> Task | None:
        """The task that goes on; time passes if nobody can. None: nobody is left."""
        ready = [task for task in self._tasks if task.may_go_on(self.now_s)]
        if not ready:
            next_s = min((task.earliest_s() for task in self._tasks), default=math.inf)
            if next_s == math.inf:
                if self._tasks:
                    waiting = ", ".join(f"{task.process.name}/{task.name}" for task in self._tasks)
                    self.failure = self.failure or Violation(f"all wait for ever: {waiting}")
                return None
            self.now_s = max(self.now_s, next_s)
            ready = [task for task in self._tasks if task.may_go_on(self.now_s)]
        if self._rng is None:
            return min(ready, key=lambda task: task.last_step)
        return ready[int(self._rng.random() * len(ready))]

    def _resume(self, task: Task) -> None:
        self.current = task
        if task.carrier is None:
            task.carrier = _Carrier.take()
            task.carrier.work = (self, task)
        task.carrier.go.release()

    def _to_hub(self) -> None:
        self.current = None
        self._hub.release()

    def _note(self, task: Task, what: str) -> None:
        self.digest = zlib.crc32(f"{task.process.name}/{task.name} {what}".encode(), self.digest)
        if self.trace is not None:
            self.trace.append(f"{self.now_s:10.2f} {task.process.name}/{task.name} {what}")


class ProcessClock:
    """The clocks of a process."""

    def __init__(self, scheduler: Scheduler, process: Process) -> None:
        self._scheduler = scheduler
        self._process = process

    def now_ms(self) -> int:
        return BEGIN_MS + round((self._scheduler.now_s + self._process.skew_s) * 1000)

    def monotonic_s(self) -> float:
        return self._scheduler.now_s

    def sleep(self, seconds: float) -> None:
        self._scheduler.sleep(seconds)


class TaskFuture(Future[Any]):
    """A future that the current task waits for."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._scheduler = scheduler

    def result(self, timeout: float | None = None) -> Any:
        self._scheduler.wait_for(self.done, math.inf if timeout is None else timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._scheduler.wait_for(self.done, math.inf if timeout is None else timeout)
        return super().exception(0)


@contextmanager
def _put_away(directory: Path) -> Iterator[None]:
    """While the block runs, the directory is elsewhere; what is made in its place is removed."""
    away = directory.with_name(f"{directory.name}.away")
    directory.rename(away)
    yield
    remove(directory)
    away.rename(directory)


def remove(directory: Path) -> None:
    """Delete a directory, if it is there."""
    import shutil

    shutil.rmtree(directory, ignore_errors=True)
