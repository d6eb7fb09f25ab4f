"""The simulated object storage: one disk, and for each process its own unreliable way to it.

It is what the commit protocol asks for and no better: a completed write is seen by every later read and LIST, and that
is all. What may happen, as the seed says: a call fails without effect; it has its effect and the reply is lost; its
effect comes long after the caller has given up, even when that process is gone; a write hangs until its caller's
timeout, and has its effect before that or after; a LIST takes several pages, between which others go on; a read returns
a flipped bit.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.simulation.system.bugs.script import Outcome
from tests.simulation.system.scheduler import BEGIN_MS, Process, Scheduler, Task
from varvite.storage.errors import DidNotHappenError, MayHaveHappenedError, MissingObjectError
from varvite.storage.object_stores.contract import ObjectMeta, range_of


@dataclass(frozen=True)
class StoreFaults:
    """Probability of each fault, per call."""

    before: float = 0.0
    """It fails without effect, and says so."""
    lost: float = 0.0
    """It has its effect, and the reply is lost."""
    torn: float = 0.0
    """It fails without effect, and the caller cannot know."""
    late: float = 0.0
    """The caller gives up; the effect comes later."""
    late_max_s: float = 60.0
    hang: float = 0.0
    """The caller hears nothing until its timeout; the effect comes within twice that time."""
    hang_s: float = 20.0
    slow: float = 0.0
    slow_max_s: float = 10.0
    pages: float = 0.0
    """A LIST has pages of a few names."""
    flips: float = 0.0
    """A read returns a flipped bit."""


NO_FAULTS = StoreFaults()
CERTAIN: dict[str, Callable[[float], StoreFaults]] = {
    "fails": lambda _seconds: StoreFaults(before=1.0),
    "torn": lambda _seconds: StoreFaults(torn=1.0),
    "lost": lambda _seconds: StoreFaults(lost=1.0),
    "late": lambda seconds: StoreFaults(late=1.0, late_max_s=seconds),
    "hangs": lambda seconds: StoreFaults(hang=1.0, hang_s=seconds),
}
"""Outcome of a script → the fault, which is certain."""


class Disk:
    """Content of the storage; an `ObjectStore` of its own without faults, which does not pause."""

    url = "memory://simulated"

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.objects: dict[str, tuple[bytes, float]] = {}
        self.on_put: Callable[[str, bytes], None] = lambda _name, _data: None
        self.on_delete: Callable[[str], None] = lambda _name: None
        self._late: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()

    def get(self, name: str) -> bytes:
        found = self.objects.get(name)
        if found is None:
            raise MissingObjectError(f"there is no object {name}", object_name=name)
        return found[0]

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        return range_of(self.get(name), name, offset, length)

    def put(self, name: str, data: bytes) -> None:
        self.objects[name] = (bytes(data), BEGIN_MS / 1000 + self._scheduler.now_s)
        self.on_put(name, data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        if name in self.objects:
            return False
        self.put(name, data)
        return True

    def list(self, prefix: str, *, start_after: str = "") -> Sequence[ObjectMeta]:
        found = [name for name in self.objects if name.startswith(prefix) and name > start_after]
        return [ObjectMeta(name, len(self.objects[name][0]), self.objects[name][1]) for name in sorted(found)]

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self.objects:
                del self.objects[name]
                self.on_delete(name)

    def put_file(self, name: str, path: Path) -> None:
        self.put(name, path.read_bytes())

    def get_file(self, name: str, path: Path) -> None:
        path.write_bytes(self.get(name))

    def link_file(self, name: str, path: Path) -> bool:
        del name, path
        return False

    def later(self, seconds: float, effect: Callable[[], object]) -> None:
        """This takes place after so long."""
        heapq.heappush(self._late, (self._scheduler.now_s + seconds, next(self._numbers), effect))

    def settle(self, *, all_of_them: bool = False) -> None:
        """Lets late effects take place that are due."""
        while self._late and (all_of_them or self._late[0][0] <= self._scheduler.now_s):
            heapq.heappop(self._late)[2]()


class SimulatedStore:
    """The storage as one process reaches it."""

    def __init__(
        self,
        disk: Disk,
        scheduler: Scheduler,
        process: Process,
        rng: random.Random,
        faults: Callable[[], StoreFaults],
        scripted: dict[Task, Outcome],
    ) -> None:
        self._disk = disk
        self._scripted = scripted
        self._scheduler = scheduler
        self.process = process
        self._rng = rng
        self._faults = faults

    @property
    def url(self) -> str:
        return self._disk.url

    def get(self, name: str) -> bytes:
        return self._flipped(self._read("get", name, lambda: self._disk.get(name)))

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        return self._flipped(self._read("get_range", name, lambda: self._disk.get_range(name, offset, length)))

    def put(self, name: str, data: bytes) -> None:
        own = bytes(data)
        self._write("put", name, lambda: self._disk.put(name, own))

    def put_if_absent(self, name: str, data: bytes) -> bool:
        own = bytes(data)
        return self._write("put_if_absent", name, lambda: self._disk.put_if_absent(name, own))

    def list(self, prefix: str, *, start_after: str = "") -> Sequence[ObjectMeta]:
        found: list[ObjectMeta] = []
        size = self._rng.randint(1, 5) if self._rng.random() < self._faults().pages else 1 << 30
        after = start_after
        while True:
            page = self._read("list", prefix, lambda after=after: self._disk.list(prefix, start_after=after))
            found += page[:size]
            if len(page) <= size:
                return found
            after = found[-1].name

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._write("delete", name, lambda name=name: self._disk.delete([name]))

    def put_file(self, name: str, path: Path) -> None:
        self.put(name, path.read_bytes())

    def get_file(self, name: str, path: Path) -> None:
        path.write_bytes(self.get(name))

    def link_file(self, name: str, path: Path) -> bool:
        del name, path
        return False

    def _read(self, what: str, name: str, effect: Callable[[], Any]) -> Any:
        self._begin(what, name)
        faults = self._faults()
        scripted = self._outcome()
        answer = effect()
        if self._rng.random() < faults.before + faults.lost or scripted is not None:
            raise DidNotHappenError(f"simulated: {what} failed", object_name=name)
        return answer

    def _write(self, what: str, name: str, effect: Callable[[], Any]) -> Any:
        self._begin(what, name)
        faults, strike = self._faults(), self._rng.random()
        scripted = self._outcome()
        if scripted is not None:
            faults, strike = CERTAIN[scripted.what](scripted.number), 0.0
        if strike < faults.before:
            raise DidNotHappenError(f"simulated: {what} failed", object_name=name)
        strike -= faults.before
        if strike < faults.torn:
            raise MayHaveHappenedError(f"simulated: {what} failed, unclear how", object_name=name)
        strike -= faults.torn
        if strike < faults.late:
            seconds = faults.late_max_s if scripted else self._rng.random() * faults.late_max_s
            self._disk.later(seconds, effect)
            raise MayHaveHappenedError(f"simulated: {what} timed out", object_name=name)
        strike -= faults.late
        if strike < faults.hang:
            self._disk.later(self._rng.random() * 2 * faults.hang_s, effect)
            self._scheduler.sleep(faults.hang_s)
            raise MayHaveHappenedError(f"simulated: {what} had no answer", object_name=name)
        strike -= faults.hang
        answer = effect()
        if strike < faults.lost:
            raise MayHaveHappenedError(f"simulated: the reply to {what} was lost", object_name=name)
        if self._rng.random() < 0.1:
            self._scheduler.pause(f"{what} done")  # the reply is on its way
        return answer

    def _outcome(self) -> Outcome | None:
        """Outcome of the current task's call, if a script has one."""
        task = self._scheduler.current
        return None if task is None else self._scripted.pop(task, None)

    def _begin(self, what: str, name: str) -> None:
        faults = self._faults()
        if self._rng.random() < faults.slow:
            self._scheduler.sleep(self._rng.random() * faults.slow_max_s)
        self._scheduler.pause(f"{what} {name}")

    def _flipped(self, data: bytes) -> bytes:
        if not data or self._rng.random() >= self._faults().flips:
            return data
        changed = bytearray(data)
        place = self._rng.randrange(len(data) * 8)
        changed[place // 8] ^= 1 << place % 8
        return bytes(changed)
