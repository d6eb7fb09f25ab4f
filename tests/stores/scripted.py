"""A memory store whose next calls fail in ways that a test writes down."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING

from varvite.storage.object_stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable


class ScriptedStore(MemoryStore):
    """Before each `put`, `put_if_absent` or `get` the next step of its script runs, if there is one.

    A step is a callable without arguments: it may raise, or change the store. `lost_replies` are raised after the
    call had its effect.
    """

    def __init__(self) -> None:
        super().__init__()
        self.script: dict[str, deque[Callable[[], None]]] = defaultdict(deque)
        self.lost_replies: dict[str, deque[Exception]] = defaultdict(deque)
        self.calls: list[str] = []

    def _step(self, operation: str) -> None:
        self.calls.append(operation)
        if self.script[operation]:
            self.script[operation].popleft()()

    def _reply(self, operation: str) -> None:
        if self.lost_replies[operation]:
            raise self.lost_replies[operation].popleft()

    def get(self, name: str) -> bytes:
        self._step("get")
        return super().get(name)

    def put(self, name: str, data: bytes) -> None:
        self._step("put")
        super().put(name, data)
        self._reply("put")

    def put_if_absent(self, name: str, data: bytes) -> bool:
        self._step("put_if_absent")
        created = super().put_if_absent(name, data)
        self._reply("put_if_absent")
        return created
