"""A store that fails on purpose, for tests.

Faults come from a seeded `random.Random`, so that a run can be repeated exactly:

* *before*: the call fails and had no effect (`DidNotHappenError`);
* *after*: the call has its effect, but its reply is lost (`MayHaveHappenedError`);
* *torn*: the call fails without effect, but the caller cannot know (`MayHaveHappenedError`);
* *delay*: the call takes longer, by the clock that is passed in.

A read changes nothing, so all its faults are `DidNotHappenError`. A crash hook sees every effect before and after
it takes place and may kill the process or raise there. `delete` handles its names one by one, each with its own
faults and hook calls, as a store may stop half-way.

```python
store = FaultyStore(LocalStore(path), random.Random(7), Faults(after=0.1), clock=SystemClock())
```
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from varvite.storage.errors import DidNotHappenError, InvalidRequestError, MayHaveHappenedError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from varvite.storage.clock import Clock
    from varvite.storage.object_stores.contract import ObjectMeta, ObjectStore

Operation = Literal["get", "get_range", "put", "put_if_absent", "list", "delete", "put_file", "get_file", "link_file"]
Phase = Literal["before", "after"]
_Fault = Literal["none", "before", "after", "torn"]

_WRITES: Final = frozenset({"put", "put_if_absent", "delete", "put_file"})
_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class Faults:
    """Probability of each fault, per call, from 0 to 1; at most one of before, after and torn strikes a call."""

    before: float = 0.0
    after: float = 0.0
    torn: float = 0.0
    delay: float = 0.0
    """Probability of a delay; it may come together with another fault."""
    delay_max_s: float = 1.0
    """Longest delay, seconds."""

    def __post_init__(self) -> None:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        chances = {name: value for name, value in values.items() if name != "delay_max_s"}
        if any(not 0 <= chance <= 1 for chance in chances.values()) or self.before + self.after + self.torn > 1:
            raise InvalidRequestError(f"{self}: probabilities go from 0 to 1, before + after + torn too")
        if self.delay_max_s < 0:
            raise InvalidRequestError(f"{self}: delay_max_s must be 0 or more")


@dataclass(frozen=True)
class _Fate:
    fault: _Fault
    delay_s: float


def _no_hook(operation: Operation, name: str, phase: Phase) -> None:
    pass


class FaultyStore:
    """`inner` with faults; without them (`Faults()`, no hook) it behaves exactly like `inner`."""

    def __init__(
        self,
        inner: ObjectStore,
        rng: random.Random,
        faults: Faults,
        *,
        clock: Clock,
        crash_hook: Callable[[Operation, str, Phase], None] = _no_hook,
    ) -> None:
        """Wrap a store.

        Args:
            inner: The store that does the work.
            rng: Decides; owned by this store from now on. The order of calls decides the faults.
            faults: How likely each fault is.
            clock: Makes the delays.
            crash_hook: Called with operation, name (the prefix for `list`) and phase, around each effect that
                takes place; what it raises goes to the caller.
        """
        self._inner = inner
        self._rng = rng
        self._lock = threading.Lock()
        self.faults = faults
        """May be replaced at any time, for example to let a storage recover."""
        self._clock = clock
        self._crash_hook = crash_hook

    @property
    def url(self) -> str:
        return self._inner.url

    def get(self, name: str) -> bytes:
        return self._run("get", name, lambda: self._inner.get(name))

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        return self._run("get_range", name, lambda: self._inner.get_range(name, offset, length))

    def put(self, name: str, data: bytes) -> None:
        self._run("put", name, lambda: self._inner.put(name, data))

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self._run("put_if_absent", name, lambda: self._inner.put_if_absent(name, data))

    def list(self, prefix: str, *, start_after: str = "") -> Sequence[ObjectMeta]:
        return self._run("list", prefix, lambda: self._inner.list(prefix, start_after=start_after))

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._run("delete", name, lambda name=name: self._inner.delete([name]))

    def put_file(self, name: str, path: Path) -> None:
        self._run("put_file", name, lambda: self._inner.put_file(name, path))

    def get_file(self, name: str, path: Path) -> None:
        self._run("get_file", name, lambda: self._inner.get_file(name, path))

    def link_file(self, name: str, path: Path) -> bool:
        return self._run("link_file", name, lambda: self._inner.link_file(name, path))

    def _run(self, operation: Operation, name: str, effect: Callable[[], _Answer]) -> _Answer:
        fate = self._fate()
        if fate.delay_s:
            self._clock.sleep(fate.delay_s)
        lost = MayHaveHappenedError if operation in _WRITES else DidNotHappenError
        if fate.fault == "before":
            raise DidNotHappenError(f"{operation} failed on purpose, without effect; try again", object_name=name)
        if fate.fault == "torn":
            raise lost(f"{operation} failed on purpose, unclear how far; read back", object_name=name)
        self._crash_hook(operation, name, "before")
        answer = effect()
        self._crash_hook(operation, name, "after")
        if fate.fault == "after":
            raise lost(f"the reply to {operation} was lost on purpose; read back", object_name=name)
        return answer

    def _fate(self) -> _Fate:
        faults = self.faults
        with self._lock:
            # Always the same number of draws per call, so that changing one probability moves nothing else.
            strike, slow, share = self._rng.random(), self._rng.random(), self._rng.random()
        delay_s = share * faults.delay_max_s if slow < faults.delay else 0.0
        chances: tuple[tuple[_Fault, float], ...] = (
            ("before", faults.before),
            ("after", faults.after),
            ("torn", faults.torn),
        )
        for fault, chance in chances:
            if strike < chance:
                return _Fate(fault, delay_s)
            strike -= chance
        return _Fate("none", delay_s)
