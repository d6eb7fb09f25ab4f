"""An object that is encoded once and sent any number of times, by any thread, always as the same bytes.

A store that transforms objects, as encryption does under a random salt, would do so again for each attempt of an upload
or a claim. But a name is never written again with other bytes, which log stores may count on
(`varvite.storage.job.log_store`), and for a hedge, which often loses, the work would be wasted.
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
    """The bytes to send and their destination. `close` it after the last use."""

    store: ObjectStore
    """The store that takes the content as it is."""
    name: str
    """The name in that store."""
    content: bytes | Path
    """The bytes, or the file that holds them."""
    close: Callable[[], None] = _keep_nothing
    """Removes temporary files; afterwards it cannot be sent."""

    def put(self) -> None:
        """Send it as `ObjectStore.put` or `put_file` does."""
        if isinstance(self.content, Path):
            self.store.put_file(self.name, self.content)
        else:
            self.store.put(self.name, self.content)

    def put_if_absent(self) -> bool:
        """Send it as `ObjectStore.put_if_absent` does. Raises `InvalidRequestError` for a file."""
        if isinstance(self.content, Path):
            raise InvalidRequestError("a file cannot be put if absent; give its bytes", object_name=self.name)
        return self.store.put_if_absent(self.name, self.content)


class PreparingStore(Protocol):
    """A store that transforms objects, or one above it."""

    def prepare(self, name: str, content: bytes | Path) -> PreparedObject:
        """Encode an object. Errors as those of `ObjectStore.put`."""
        ...


def prepare(store: ObjectStore, name: str, content: bytes | Path) -> PreparedObject:
    """Encode an object for `store`; nothing is sent yet, and nothing is checked that sending checks.

    A store without `prepare` sends the content as it is. A store above another one must pass the call on, or an
    encrypting store below it encrypts each attempt anew.

    Args:
        store: The destination.
        name: The object's name.
        content: Its bytes, or the file that holds them, which must not change any more.

    Raises:
        VarviteError: As `ObjectStore.put`.
    """
    # Not isinstance: on a protocol it takes longer than all the rest of a claim in memory.
    if hasattr(store, "prepare"):
        return cast("PreparingStore", store).prepare(name, content)
    return PreparedObject(store, name, content)


class Preparation:
    """Lazily encodes an object at the first use by any thread; other threads wait meanwhile."""

    def __init__(self, store: ObjectStore, name: str, content: bytes | Path) -> None:
        """Takes the arguments of `prepare`; nothing is done yet."""
        self._store = store
        self._name = name
        self._content: bytes | Path | None = content
        self._lock = threading.Lock()
        self._ready: PreparedObject | None = None

    def ready(self) -> PreparedObject:
        """The encoded object, the same one each time. Errors as `prepare`; the next call tries again."""
        with self._lock:
            if self._ready is None:
                if self._content is None:
                    raise InvariantError("the prepared object is closed", object_name=self._name)
                self._ready = prepare(self._store, self._name, self._content)
                self._content = None  # not twice in memory if it was encrypted
            return self._ready

    def close(self) -> None:
        """Release the encoded object after the last use."""
        if self._ready is not None:
            self._ready.close()
