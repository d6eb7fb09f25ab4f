"""A memory store that passes for one on S3, and in which put-if-absent hangs as a test says."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Literal

from varvite.storage.object_stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

When = Literal["before", "after"]


class HangingStore(MemoryStore):
    """Some put-if-absents hang, before or after they have their effect, until `gate` opens."""

    url = "s3://bucket/root"

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.calls: list[str] = []
        """The names of all put-if-absents."""
        self.on_call: dict[int, Callable[[], object]] = {}
        """Events before a put-if-absent, by its number from 1."""
        self._hangs: dict[int, When] = {}
        self._arrived = threading.Condition()
        self._late = 0

    def hang_next(self, when: When) -> None:
        """The next put-if-absent hangs."""
        self._hangs[len(self.calls) + 1] = when

    def put_if_absent(self, name: str, data: bytes) -> bool:
        self.calls.append(name)
        number = len(self.calls)
        self.on_call.get(number, lambda: None)()
        when = self._hangs.get(number)
        if when == "before":
            self._hang()
        created = super().put_if_absent(name, data)
        if when == "after":
            self._hang()
        if when is not None:
            with self._arrived:
                self._late += 1
                self._arrived.notify_all()
        return created

    def _hang(self) -> None:
        if not self.gate.wait(60):
            raise AssertionError("nobody has opened the gate")

    def let_arrive(self, count: int = 1) -> None:
        """Open the gate, and wait until so many that hung have had their effect."""
        self.gate.set()
        with self._arrived:
            assert self._arrived.wait_for(lambda: self._late >= count, 60)
