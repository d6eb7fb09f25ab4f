"""A storage that takes a name again only with the same bytes, and loses the first answer to each write."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from varvite.storage.errors import InvalidRequestError, MayHaveHappenedError
from varvite.storage.object_stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable


class WriteOnceStore(MemoryStore):
    """The storage of the module's text; refused writes are in `refused`, all writes in `sent`."""

    def __init__(self, loses: Callable[[str], bool]) -> None:
        """`loses`: of which names the first answer is lost: after a put, and before a put-if-absent."""
        super().__init__()
        self._loses = loses
        self.sent: dict[str, list[bytes]] = defaultdict(list)
        self.refused: list[str] = []

    def put(self, name: str, data: bytes) -> None:
        self._take(name, data)
        super().put(name, data)
        self._lose(name)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        self._take(name, data)
        self._lose(name)
        return super().put_if_absent(name, data)

    def _take(self, name: str, data: bytes) -> None:
        before = self.sent[name]
        before.append(bytes(data))
        if before[0] != before[-1]:
            self.refused.append(name)
            raise InvalidRequestError("it was written with other bytes", object_name=name)

    def _lose(self, name: str) -> None:
        if len(self.sent[name]) == 1 and self._loses(name):
            raise MayHaveHappenedError("the answer was lost on purpose", object_name=name)

    def sent_again(self, word: str) -> list[str]:
        """Names with that word in them that were sent more than once."""
        return [name for name, bodies in self.sent.items() if word in name and len(bodies) > 1]
