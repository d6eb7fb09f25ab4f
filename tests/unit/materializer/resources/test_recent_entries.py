"""Entries of the chain in the materializer's memory."""

from __future__ import annotations

import pytest

from varvite.materializer.resources.recent_entries import Entries, RecentEntries
from varvite.storage.errors import CorruptDataError, MissingObjectError
from varvite.storage.format import layout
from varvite.storage.object_stores.memory import MemoryStore


def test_an_entry_is_fetched_once_whoever_reads_it() -> None:
    store, name = MemoryStore(), layout.chain(7)
    store.put(name, b"0123456789")
    recent = RecentEntries(store)
    assert recent.get(name) == b"0123456789"
    store.delete([name])
    assert recent.get(name) == b"0123456789"
    assert recent.get_range(name, 2, 3) == b"234"
    assert recent.above(store).get_range(name, 8, 2) == b"89"
    with pytest.raises(CorruptDataError, match="only 1 of the 2 bytes"):
        recent.get_range(name, 9, 2)
    with pytest.raises(MissingObjectError):
        RecentEntries(store).get(name)


def test_an_entry_that_was_announced_is_not_fetched() -> None:
    entries = Entries()
    recent = RecentEntries(MemoryStore(), entries)
    entries.add(layout.chain(7), b"entry")
    assert recent.get(layout.chain(7)) == b"entry"


def test_other_objects_are_fetched_each_time() -> None:
    store, name = MemoryStore(), layout.REQUEST
    recent = RecentEntries(store)
    for data in (b"one", b"another"):
        store.put(name, data)
        assert recent.get(name) == data
        assert recent.get_range(name, 0, 3) == data[:3]


def test_the_entries_that_were_added_first_make_room() -> None:
    entries = Entries(bytes_max=100)
    for seq in range(1, 5):
        entries.add(layout.chain(seq), bytes(40))
    kept = [seq for seq in range(1, 5) if entries.find(layout.chain(seq)) is not None]
    assert kept == [3, 4]
    entries.add(layout.chain(5), bytes(101))
    assert entries.find(layout.chain(5)) is None
    assert entries.find(layout.chain(4)) is not None, "one that is too large drops no others"
