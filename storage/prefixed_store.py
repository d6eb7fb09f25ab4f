"""A part of a store as a store of its own: a job's store is `<root>/<job>`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.storage.object_name import check_name, check_prefix
from varve.storage.prepared_object import prepare

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from varve.storage.object_store import ObjectMeta, ObjectStore
    from varve.storage.prepared_object import PreparedObject


class PrefixedStore:
    """The objects of `inner` below `prefix/`, under names without it; see `ObjectStore` for each method."""

    def __init__(self, inner: ObjectStore, prefix: str) -> None:
        """`prefix` has no `/` at its ends. Raises `InvalidRequestError` if it could not be a name."""
        self._inner = inner
        self._prefix = check_name(prefix) + "/"

    @property
    def url(self) -> str:
        return f"{self._inner.url.rstrip('/')}/{self._prefix[:-1]}"

    def get(self, name: str) -> bytes:
        return self._inner.get(self._full(name))

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        return self._inner.get_range(self._full(name), offset, length)

    def prepare(self, name: str, content: bytes | Path) -> PreparedObject:
        return prepare(self._inner, self._full(name), content)

    def put(self, name: str, data: bytes) -> None:
        self._inner.put(self._full(name), data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self._inner.put_if_absent(self._full(name), data)

    def list(self, prefix: str, *, start_after: str = "") -> Sequence[ObjectMeta]:
        skip = len(self._prefix)
        after = self._prefix + start_after if start_after else ""
        found = self._inner.list(self._prefix + check_prefix(prefix), start_after=after)
        return [meta._replace(name=meta.name[skip:]) for meta in found]

    def delete(self, names: Iterable[str]) -> None:
        self._inner.delete([self._full(name) for name in names])

    def put_file(self, name: str, path: Path) -> None:
        self._inner.put_file(self._full(name), path)

    def get_file(self, name: str, path: Path) -> None:
        self._inner.get_file(self._full(name), path)

    def link_file(self, name: str, path: Path) -> bool:
        return self._inner.link_file(self._full(name), path)

    def _full(self, name: str) -> str:
        # Checked before it is joined: the inner store would accept a/../b only as a whole it cannot judge.
        return self._prefix + check_name(name)


def substore(store: ObjectStore, prefix: str) -> ObjectStore:
    """The objects of `store` below `prefix/` as a store; `prefix` may be "" for the store itself."""
    return PrefixedStore(store, prefix) if prefix else store
