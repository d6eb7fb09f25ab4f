"""An object that is made ready once and sent as often as need be, by any thread: as the same bytes each time.

A store that changes what it is given, as encryption does under a random salt, would do so anew for each attempt of an
upload or of a claim. But a name is never written again with other bytes, which log stores may count on
(`varvite.storage.job.log_store`); and the work would be done once more for a hedge that often loses.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from varvite.storage.errors import InvalidRequestError, InvariantError

if TYPE_CHECKING:
    from collections.abc import Callable

    from varvite.storage.object_stores.contract import ObjectStore


def _keep_nothing() -> None:
    pass


@dataclass(frozen=True)
class PreparedObject:
    """What is sent, and where to. `close` it when nobody sends it any more."""

    store: ObjectStore
    """Takes the content as it is."""
    name: str
    """In that store."""
    content: bytes | Path
    """The bytes, or the file that has them."""
    close: Callable[[], None] = _keep_nothing
    """Removes what was made for it; it cannot be sent then."""

    def put(self) -> None:
        """See `ObjectStore.put` and `put_file`."""
        if isinstance(self.content, Path):
            self.store.put_file(self.name, self.content)
        else:
            self.store.put(self.name, self.content)

    def put_if_absent(self) -> bool:
        """See `ObjectStore.put_if_absent`. Raises `InvalidRequestError` for a file."""
        if isinstance(self.content, Path):
            raise InvalidRequestError("a file cannot be put if absent; give its bytes", object_name=self.name)
        return self.store.put_if_absent(self.name, self.content)


class PreparingStore(Protocol):
    """A store that changes what it is given, or stands above one that may."""

    def prepare(self, name: str, content: bytes | Path) -> PreparedObject:
        """Make an object ready. Errors as those of `ObjectStore.put`."""
        ...


def prepare(store: ObjectStore, name: str, content: bytes | Path) -> PreparedObject:
    """Make an object ready to be sent to `store`; nothing is sent yet, and nothing checked that sending checks.

    A store without `prepare` sends what it is given. One that stands above others must pass it on, or each attempt is
    one of its own for an encrypting store below it.

    Args:
        store: Where to.
        name: Of the object.
        content: Its bytes, or the file that has them, which must not be written any more.

    Raises:
        VarviteError: As `ObjectStore.put`.
    """
    # Not isinstance: on a protocol it takes longer than all the rest of a claim in memory.
    if hasattr(store, "prepare"):
        return cast("PreparingStore", store).prepare(name, content)
    return PreparedObject(store, name, content)


class Preparation:
    """An object that is made ready when it is first sent, by whichever thread comes first; the others wait for that."""

    def __init__(self, store: ObjectStore, name: str, content: bytes | Path) -> None:
        """As for `prepare`; nothing is done yet."""
        self._store = store
        self._name = name
        self._content: bytes | Path | None = content
        self._lock = threading.Lock()
        self._ready: PreparedObject | None = None

    def ready(self) -> PreparedObject:
        """The same object each time. Errors as `prepare`; who comes next tries again."""
        with self._lock:
            if self._ready is None:
                if self._content is None:
                    raise InvariantError("it is not sent any more", object_name=self._name)
                self._ready = prepare(self._store, self._name, self._content)
                self._content = None  # not twice in memory, where it was encrypted
            return self._ready

    def close(self) -> None:
        """Nobody sends it any more."""
        if self._ready is not None:
            self._ready.close()
