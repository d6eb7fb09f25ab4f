from __future__ import annotations

import zlib

import pytest

from varvite.storage.errors import CorruptDataError, MissingObjectError
from varvite.storage.format.records import ObjectSlice
from varvite.storage.object_stores.memory import MemoryStore
from varvite.storage.transfer import slice_reader
from varvite.storage.transfer.slice_reader import GAP_BYTES_MAX, plan_reads, read_slice, read_slices

DATA = bytes(range(256)) * 1000


def cut(name: str, offset: int, length: int) -> ObjectSlice:
    return ObjectSlice(name, offset, length, zlib.crc32(DATA[offset : offset + length]))


@pytest.fixture
def store() -> MemoryStore:
    made = MemoryStore()
    for name in ("a", "b"):
        made.put(name, DATA)
    return made


def test_slices_are_read_and_verified_in_order(store: MemoryStore) -> None:
    wanted = [cut("a", 0, 10), cut("a", 10, 5), cut("b", 7, 1), cut("a", 3, 0), cut("a", 200_000, 9)]
    assert read_slice(store, wanted[1]) == DATA[10:15]
    found = [(s.slice, bytes(s.data)) for s in read_slices(store, wanted)]
    assert found == [(w, DATA[w.offset : w.offset + w.length]) for w in wanted]
    assert read_slice(store, wanted[3]) == b""


@pytest.mark.parametrize(
    ("wanted", "reads"),
    [
        pytest.param([(0, 5), (5, 5), (10, 5)], 1, id="side by side"),
        pytest.param([(0, 5), (5 + GAP_BYTES_MAX, 5)], 1, id="near"),
        pytest.param([(0, 5), (6 + GAP_BYTES_MAX, 5)], 2, id="far"),
        pytest.param([(5, 5), (0, 5)], 2, id="backwards"),
        pytest.param([(0, 5), (3, 5)], 2, id="overlapping"),
        pytest.param([], 0, id="none"),
    ],
)
def test_neighbours_share_a_read(wanted: list[tuple[int, int]], reads: int) -> None:
    assert len(plan_reads([cut("a", *w) for w in wanted])) == reads


def test_a_read_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slice_reader, "READ_BYTES_MAX", 10)
    groups = plan_reads([cut("a", 0, 5), cut("a", 5, 5), cut("a", 10, 5), cut("a", 15, 50), cut("a", 65, 1)])
    assert [len(g) for g in groups] == [2, 1, 1, 1]
    assert len(plan_reads([cut("a", 0, 5), cut("b", 5, 5)])) == 2


@pytest.mark.parametrize("many", [False, True])
def test_damage_is_found_and_named(store: MemoryStore, many: bool) -> None:
    def read(wanted: ObjectSlice) -> None:
        if many:
            list(read_slices(store, [cut("b", 0, 1), wanted]))
        else:
            read_slice(store, wanted)

    for wanted, error in (
        (ObjectSlice("a", 0, 5, 1), CorruptDataError),
        (ObjectSlice("a", 0, 0, 1), CorruptDataError),
        (cut("a", len(DATA) - 5, 10), CorruptDataError),
        (cut("gone", 0, 5), MissingObjectError),
    ):
        with pytest.raises(error) as caught:
            read(wanted)
        assert caught.value.context["object_name"] == wanted.name
