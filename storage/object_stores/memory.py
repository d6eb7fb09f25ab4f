"""An object store in this process's memory, for tests and simulation.

It keeps the contract of `ObjectStore` except that nothing outlives the process; a forked child has its own copy.
"""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakValueDictionary

from varvite.storage.clock import SystemClock
from varvite.storage.errors import InvalidRequestError, MissingObjectError
from varvite.storage.object_stores.contract import ObjectMeta
from varvite.storage.object_stores.names import check_name, check_prefix
from varvite.storage.object_stores.whole_objects import WholeObjects

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from varvite.storage.clock import Clock


class _Object(NamedTuple):
    data: bytes
    modified_s: float


class MemoryStore(WholeObjects):
    """Bytes in a dict, guarded by a lock."""

    def __init__(self, name: str | None = None, *, clock: Clock | None = None) -> None:
        """Make an empty store.

        Args:
            name: The name in its URL `memory://<name>`; left out: an unused name. `open_store` finds a store by its
                URL while somebody holds it. Raises `InvalidRequestError` if the name is taken or has a `/`.
            clock: Gives the modification times.
        """
        self._lock = threading.Lock()
        self._objects: dict[str, _Object] = {}
        self._clock = clock or SystemClock()
        with _registry_lock:
            self._name = name if name is not None else _free_name()
            if "/" in self._name or self._name in _stores:
                raise InvalidRequestError(
                    f"a memory store cannot be named {self._name!r}: taken, or with '/'; choose another"
                )
            _stores[self._name] = self

    @property
    def url(self) -> str:
        return f"memory://{self._name}"

    def get(self, name: str) -> bytes:
        check_name(name)
        with self._lock:
            stored = self._objects.get(name)
        if stored is None:
            raise MissingObjectError(f"there is no object {name} in {self.url}", object_name=name)
        return stored.data

    def put(self, name: str, data: bytes) -> None:
        check_name(name)
        with self._lock:
            self._objects[name] = self._new_object(data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        check_name(name)
        with self._lock:
            if name in self._objects:
                return False
            self._objects[name] = self._new_object(data)
            return True

    def list(self, prefix: str, *, start_after: str = "") -> Sequence[ObjectMeta]:
        check_prefix(prefix)
        with self._lock:
            metas = [
                ObjectMeta(name, len(item.data), item.modified_s)
                for name, item in self._objects.items()
                if name.startswith(prefix) and name > start_after
            ]
        return sorted(metas)

    def delete(self, names: Iterable[str]) -> None:
        checked = [check_name(name) for name in names]
        with self._lock:
            for name in checked:
                self._objects.pop(name, None)

    def _new_object(self, data: bytes) -> _Object:
        # A copy: a caller's bytearray or memoryview must not change a stored object afterwards.
        return _Object(bytes(data), self._clock.now_ms() / 1000)


_registry_lock: Final = threading.RLock()
_stores: Final[WeakValueDictionary[str, MemoryStore]] = WeakValueDictionary()
_kept: Final[dict[str, MemoryStore]] = {}
_numbers: Final = itertools.count(1)


def _free_name() -> str:
    return next(name for n in _numbers if (name := f"unnamed-{n}") not in _stores)


def shared_memory_store(name: str) -> MemoryStore:
    """The process's only store with this name, made at the first call and kept until the process ends."""
    with _registry_lock:
        store = _stores.get(name)
        if store is None:
            store = MemoryStore(name)
        _kept[name] = store
    return store
