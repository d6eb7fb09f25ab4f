"""A store that keeps the newest entries of the chain in memory, so that each is fetched once.

Following the chain, a fold and the collector all read entries: without this, each of them asks for its own copy. The
driver of the job may announce the entries that it has written; those are not fetched at all.

Invariants: I8 (entries never change, and are verified by whoever reads them), I10 (the memory is bounded).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from varvite.storage.format import layout
from varvite.storage.object_stores.contract import range_of
from varvite.storage.object_stores.pass_through import PassThroughStore

if TYPE_CHECKING:
    from varvite.storage.object_stores.contract import ObjectStore

KEPT_BYTES_MAX: Final = 64 << 20
"""Limit of the bytes that are kept: the log of ten minutes at 100 KB/s."""


class Entries:
    """Entries by name, up to a limit of bytes; may be used from several threads."""

    def __init__(self, bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0

    def add(self, name: str, data: bytes) -> None:
        """Keep an entry; those that were added first are dropped for it."""
        with self._lock:
            if name in self._kept or len(data) > self._bytes_max:
                return
            self._kept[name] = data
            self._bytes += len(data)
            while self._bytes > self._bytes_max:
                self._bytes -= len(self._kept.popitem(last=False)[1])

    def find(self, name: str) -> bytes | None:
        """An entry that is kept."""
        with self._lock:
            return self._kept.get(name)


class RecentEntries(PassThroughStore):
    """A job's store with its newest entries in memory; may be used from several threads."""

    def __init__(self, inner: ObjectStore, entries: Entries | None = None) -> None:
        """`inner` is rooted at `<root>/<job>`; `entries` may be added to by others, too."""
        super().__init__(inner)
        self._entries = entries or Entries()

    def above(self, inner: ObjectStore) -> RecentEntries:
        """The same entries in front of another way to the same objects."""
        return RecentEntries(inner, self._entries)

    def get(self, name: str) -> bytes:
        kept = self._entries.find(name)
        if kept is not None:
            return kept
        data = super().get(name)
        if name.startswith(layout.CHAIN):
            self._entries.add(name, data)
        return data

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        kept = self._entries.find(name)
        if kept is None:
            return super().get_range(name, offset, length)
        return range_of(kept, name, offset, length)
