"""A hashmap store that takes over another store's key groups when they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from varvite.changelog.segments.changes import Op, StateChanges
from varvite.changelog.working_stores.hashmap.store import HashMapStore
from varvite.changelog.working_stores.hashmap.tables import HashMapTable
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.storage.errors import CorruptDataError, InvariantError
from varvite.storage.format.records import Link, StateSchema

if TYPE_CHECKING:
    from pathlib import Path

GROUPS = 64
VALUE = StateSchema(name="v", kind="value", value_type="1:long")
LIST = StateSchema(name="l", kind="list", value_type="1:long")
MAP = StateSchema(name="m", kind="map", value_type="1:long", map_key_type="1:string")
TIMER = StateSchema(name="t", kind="timers", value_type="1:long")


def puts(values: dict[int, int | None]) -> StateChanges:
    """A value of one key in each of these key groups."""
    ops = bytes(Op.DELETE if value is None else Op.PUT for value in values.values())
    return StateChanges(VALUE, list(values), [f"k{g}" for g in values], ops, None, list(values.values()))


class Later:
    """A store that is loaded later, and its source."""

    def __init__(self, directory: Path) -> None:
        groups, keys = list(range(GROUPS)), [f"k{g}" for g in range(GROUPS)]
        self.source = RocksDBStore.open(directory, "op", "1:string", 0, GROUPS)
        self.source.apply(
            [
                puts({g: g for g in groups}),
                StateChanges(LIST, groups, keys, None, None, groups),
                StateChanges(MAP, groups, keys, None, ["x"] * GROUPS, groups),
                StateChanges(TIMER, groups, keys, None, None, groups),
            ],
            Link(7, "t7"),
        )
        self.released = 0
        self.store = HashMapStore(operator="op", key_type="1:string", low=0, high=GROUPS)
        self.store.load_later(self.source, self._release)

    def _release(self) -> None:
        self.released += 1
        self.source.close()

    def loaded(self) -> list[int]:
        """Key groups of the value state that are in memory."""
        return sorted(self.store.value_table(VALUE).groups)

    def value(self, key_group: int) -> Any:
        return self.store.value_table(VALUE).get(key_group, f"k{key_group}")


@pytest.fixture
def later(tmp_path: Path) -> Later:
    return Later(tmp_path / "db")


def test_a_key_group_is_read_when_it_is_asked_for(later: Later) -> None:
    assert later.store.version == Link(7, "t7")
    assert later.loaded() == []
    assert later.value(5) == 5
    assert later.store.value_table(VALUE).get_many([9, 9, 11], ["k9", "none", "k11"]) == [9, None, 11]
    assert later.store.map_table(MAP).entries(3, "k3") == {"x": 3}
    assert later.store.list_table(LIST).elements(3, "k3") == [3]
    assert later.loaded() == [5, 9, 11]
    assert [timer[1] for timer in later.store.timer_table(TIMER).due(2)] == [0, 1, 2]
    assert later.released == 0


def test_changes_are_made_to_what_was_restored(later: Later) -> None:
    later.store.apply([puts({1: None, 2: 20})], Link(8, "t8"))
    later.store.apply([StateChanges(LIST, [4], ["k4"], None, None, [40])], Link(9, "t9"))
    later.store.apply([StateChanges(MAP, [4], ["k4"], None, ["y"], [41])], Link(10, "t10"))
    assert later.loaded() == [1, 2]
    assert later.store.list_table(LIST).elements(4, "k4") == [4, 40]
    assert later.store.map_table(MAP).entries(4, "k4") == {"x": 4, "y": 41}
    rows = {key_group: value for key_group, _, value in later.store.value_table(VALUE).items()}
    assert rows == {g: 20 if g == 2 else g for g in range(GROUPS) if g != 1}
    assert list(rows) == sorted(rows)


def test_some_of_it_is_read_ahead_with_each_batch_until_the_source_is_not_needed(later: Later) -> None:
    later.value(0)
    assert later.store.size_estimate().rows >= GROUPS * 3  # type: ignore[union-attr]
    for seq in range(8, 8 + 40):
        later.store.work_ahead()
        later.store.prepare([puts({seq: seq})], seq)
        later.store.apply([puts({seq: seq})], Link(seq, f"t{seq}"))
        if seq == 20:
            assert 10 < len(later.loaded()) < GROUPS
            assert later.released == 0
    assert later.released == 1
    assert later.loaded() == list(range(GROUPS))
    assert later.store.size_estimate().rows == 4 * GROUPS  # type: ignore[union-attr]
    later.store.close()
    assert later.released == 1


def test_a_store_that_is_closed_gives_its_source_up(later: Later) -> None:
    later.store.close()
    assert later.released == 1


def test_a_snapshot_has_all_of_it(later: Later, tmp_path: Path) -> None:
    later.store.apply([puts({3: 33})], Link(8, "t8"))
    later.store.write_snapshot(tmp_path / "snapshot")
    snapshot = RocksDBStore.open_existing(tmp_path / "snapshot", read_only=True)
    assert snapshot.version == Link(8, "t8")
    assert [row[2] for row in snapshot.value_table(VALUE).items()] == [33 if g == 3 else g for g in range(GROUPS)]
    assert [row[1] for row in snapshot.list_table(LIST).items()] == [f"k{g}" for g in range(GROUPS)]
    snapshot.close()


def test_a_source_that_cannot_be_read_fails_the_batch_and_tears_nothing(
    later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    later.value(1)

    def damaged(_: Any, __: Any) -> None:
        raise CorruptDataError("a block of the file is damaged", object_name="000004.sst")

    with monkeypatch.context() as patched:
        patched.setattr(HashMapTable, "load", damaged)
        patched.setattr(type(later.store.value_table(VALUE)), "load", damaged)
        for change in (puts({1: 10, 2: 20}), puts({2: 20})):
            with pytest.raises(CorruptDataError):
                later.store.apply([change], Link(8, "t8"))
            with pytest.raises(CorruptDataError):
                later.store.prepare([change], 8)
    assert later.store.version == Link(7, "t7")
    assert (later.value(1), later.value(2)) == (1, 2)


def test_a_key_group_of_others_is_a_bug(later: Later) -> None:
    with pytest.raises(InvariantError):
        later.value(GROUPS)
    with pytest.raises(InvariantError):
        later.store.apply([puts({GROUPS: 1})], Link(8, "t8"))
    assert later.store.version == Link(7, "t7")
