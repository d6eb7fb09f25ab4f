"""Base of stores that pass most calls on to another store as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from varvite.storage.object_stores.contract import is_reusable
from varvite.storage.object_stores.prepared_object import prepare

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from varvite.storage.object_stores.contract import ObjectMeta, ObjectStore
    from varvite.storage.object_stores.prepared_object import PreparedObject


class PassThroughStore:
    """An `ObjectStore` that is `inner`, but for the methods that a subclass overrides."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner

    @property
    def url(self) -> str:
        return self._inner.url

    def get(self, name: str) -> bytes:
        return self._inner.get(name)

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        return self._inner.get_range(name, offset, length)

    def prepare(self, name: str, content: bytes | Path) -> PreparedObject:
        return prepare(self._inner, name, content)

    def is_reusable(self, name: str) -> bool:
        return is_reusable(self._inner, name)

    def put(self, name: str, data: bytes) -> None:
        self._inner.put(name, data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self._inner.put_if_absent(name, data)

    def list(self, prefix: str, *, start_after: str = "") -> Sequence[ObjectMeta]:
        return self._inner.list(prefix, start_after=start_after)

    def delete(self, names: Iterable[str]) -> None:
        self._inner.delete(names)

    def put_file(self, name: str, path: Path) -> None:
        self._inner.put_file(name, path)

    def get_file(self, name: str, path: Path) -> None:
        self._inner.get_file(name, path)

    def link_file(self, name: str, path: Path) -> bool:
        return self._inner.link_file(name, path)
