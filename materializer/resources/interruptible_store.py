"""An object store that checks the stop flag before every call, so that the code above it ends promptly."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from varvite.storage.fail_point import fail_point
from varvite.storage.object_stores.contract import is_reusable
from varvite.storage.object_stores.prepared_object import prepare

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from varvite.materializer.resources.stop_signal import StopSignal
    from varvite.storage.object_stores.contract import ObjectMeta, ObjectStore
    from varvite.storage.object_stores.prepared_object import PreparedObject


class InterruptibleStore:
    """An `ObjectStore` whose methods raise `Stopped` once `stop` is set."""

    def __init__(self, inner: ObjectStore, stop: StopSignal, crash_point: str | None = None) -> None:
        """`crash_point` names the fail point that is passed after every read and every stored file."""
        self._inner = inner
        self._stop = stop
        self._crash_point = crash_point

    @property
    def url(self) -> str:
        return self._inner.url

    def with_crash_point(self, name: str) -> InterruptibleStore:
        """The same store with another fail point."""
        return InterruptibleStore(self._inner, self._stop, name)

    def get(self, name: str) -> bytes:
        self._stop.check()
        data = self._inner.get(name)
        self._pass()
        return data

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        self._stop.check()
        data = self._inner.get_range(name, offset, length)
        self._pass()
        return data

    def prepare(self, name: str, content: bytes | Path) -> PreparedObject:
        self._stop.check()
        prepared = prepare(self._inner, name, content)
        return replace(prepared, store=InterruptibleStore(prepared.store, self._stop, self._crash_point))

    def is_reusable(self, name: str) -> bool:
        self._stop.check()
        return is_reusable(self._inner, name)

    def put(self, name: str, data: bytes) -> None:
        self._stop.check()
        self._inner.put(name, data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        self._stop.check()
        return self._inner.put_if_absent(name, data)

    def list(self, prefix: str, *, start_after: str = "") -> Sequence[ObjectMeta]:
        self._stop.check()
        return self._inner.list(prefix, start_after=start_after)

    def delete(self, names: Iterable[str]) -> None:
        self._stop.check()
        self._inner.delete(names)

    def put_file(self, name: str, path: Path) -> None:
        self._stop.check()
        self._inner.put_file(name, path)
        self._pass()

    def get_file(self, name: str, path: Path) -> None:
        self._stop.check()
        self._inner.get_file(name, path)
        self._pass()

    def link_file(self, name: str, path: Path) -> bool:
        self._stop.check()
        return self._inner.link_file(name, path)

    def _pass(self) -> None:
        if self._crash_point is not None:
            fail_point(self._crash_point)
