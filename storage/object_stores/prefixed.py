"""The objects below a prefix as a store: a job's store is `<root>/<job>`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from varvite.storage.errors import VarviteError
from varvite.storage.object_stores.names import check_name, check_prefix
from varvite.storage.object_stores.prepared_object import prepare

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence
    from pathlib import Path

    from varvite.storage.object_stores.contract import ObjectMeta, ObjectStore
    from varvite.storage.object_stores.prepared_object import PreparedObject


class PrefixedStore:
    """The objects of `inner` below `prefix/`, under names without it, in errors as well."""

    def __init__(self, inner: ObjectStore, prefix: str, **context: Any) -> None:
        """`prefix` has no `/` at its ends; `context` is added to every error of `inner`.

        Raises `InvalidRequestError` if `prefix` could not be a name.
        """
        self._inner = inner
        self._prefix = check_name(prefix) + "/"
        self._context = context

    @property
    def url(self) -> str:
        return f"{self._inner.url.rstrip('/')}/{self._prefix[:-1]}"

    def get(self, name: str) -> bytes:
        full = self._full(name)
        with self._errors_by_name():
            return self._inner.get(full)

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        full = self._full(name)
        with self._errors_by_name():
            return self._inner.get_range(full, offset, length)

    def prepare(self, name: str, content: bytes | Path) -> PreparedObject:
        return prepare(self._inner, self._full(name), content)

    def put(self, name: str, data: bytes) -> None:
        full = self._full(name)
        with self._errors_by_name():
            self._inner.put(full, data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        full = self._full(name)
        with self._errors_by_name():
            return self._inner.put_if_absent(full, data)

    def list(self, prefix: str, *, start_after: str = "") -> Sequence[ObjectMeta]:
        skip = len(self._prefix)
        full, after = self._prefix + check_prefix(prefix), self._prefix + start_after if start_after else ""
        with self._errors_by_name():
            metas = self._inner.list(full, start_after=after)
        return [meta._replace(name=meta.name[skip:]) for meta in metas]

    def delete(self, names: Iterable[str]) -> None:
        full = [self._full(name) for name in names]
        with self._errors_by_name():
            self._inner.delete(full)

    def put_file(self, name: str, path: Path) -> None:
        full = self._full(name)
        with self._errors_by_name():
            self._inner.put_file(full, path)

    def get_file(self, name: str, path: Path) -> None:
        full = self._full(name)
        with self._errors_by_name():
            self._inner.get_file(full, path)

    def link_file(self, name: str, path: Path) -> bool:
        full = self._full(name)
        with self._errors_by_name():
            return self._inner.link_file(full, path)

    @contextmanager
    def _errors_by_name(self) -> Generator[None]:
        """Make errors of the inner store name the object as this store does: callers know no other name."""
        try:
            yield
        except VarviteError as error:
            named = error.context.get("object_name")
            if isinstance(named, str):
                error.context["object_name"] = named.removeprefix(self._prefix)
            error.with_context(**self._context)
            raise

    def _full(self, name: str) -> str:
        # Checked before it is joined: afterwards the inner store could not tell the prefix from the name.
        return self._prefix + check_name(name)


def substore(store: ObjectStore, prefix: str) -> ObjectStore:
    """The objects of `store` below `prefix/` as a store; `prefix` may be "" for the store itself."""
    return PrefixedStore(store, prefix) if prefix else store
