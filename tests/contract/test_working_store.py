"""The contract of `WorkingStore`, for every implementation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.stores.working_stores import KINDS, contents, open_snapshot, open_store
from varvite.changelog.segments.batch import Batch
from varvite.changelog.segments.changes import Op, StateChanges
from varvite.storage.errors import IncompatibleError, InvalidRequestError, InvariantError
from varvite.storage.format.records import ORIGIN, Link, StateSchema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from varvite.changelog.working_stores.contract import WorkingStore

COUNT = StateSchema(name="count", kind="value", value_type="1:long")
SUM = StateSchema(name="sum", kind="reducing", value_type="1:tuple<long,double>")
SEEN = StateSchema(name="seen", kind="list", value_type="1:string")
TIMERS = StateSchema(name="timers", kind="timers", value_type="1:long", namespace_type="1:tuple<long,long>")
PLACES = StateSchema(name="places", kind="map", value_type="1:list<long>", map_key_type="1:string")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def store(kind: str, tmp_path: Path) -> Iterator[WorkingStore]:
    opened = open_store(kind, tmp_path / "db")
    yield opened
    opened.close()


def values(schema: StateSchema, *rows: tuple[int, str, Any]) -> StateChanges:
    """(key group, key, value); None deletes."""
    ops = bytes([Op.DELETE if value is None else Op.PUT for _, _, value in rows])
    return StateChanges(
        schema, [row[0] for row in rows], [row[1] for row in rows], ops if any(ops) else None, None,
        [row[2] for row in rows],
    )  # fmt: skip


def entries(*rows: tuple[int, str, Op, str | None, bytes | None]) -> StateChanges:
    """(key group, key, op, map key, value) of PLACES."""
    groups, keys, ops, map_keys, held = zip(*rows, strict=True)
    return StateChanges(PLACES, list(groups), list(keys), bytes(ops), list(map_keys), list(held))


def elements(*rows: tuple[int, str, Op, str | None]) -> StateChanges:
    """(key group, key, op, element) of SEEN."""
    groups, keys, ops, held = zip(*rows, strict=True)
    return StateChanges(SEEN, list(groups), list(keys), bytes(ops), None, list(held))


def timers(*rows: tuple[int, str | None, Op, int, tuple[int, int] | None]) -> StateChanges:
    """(key group, key, op, time, namespace) of TIMERS."""
    groups, keys, ops, times, namespaces = map(list, zip(*rows, strict=True))
    return StateChanges(TIMERS, groups, keys, bytes(ops) if any(ops) else None, None, times, namespaces)


def due(store: WorkingStore, until_ms: int) -> list[tuple[int, int, str | None, Any]]:
    """(key group, time, key, namespace) of the due timers, in order."""
    table = store.timer_table(TIMERS)
    return [(group, *table.form.unpack(packed)) for packed, group in table.due(until_ms)]


def all_kinds() -> list[StateChanges]:
    return [
        values(COUNT, (0, "a", 1), (3, "b", -(2**63))),
        values(SUM, (0, "a", (1, 0.5)), (7, "c", (None, None))),
        elements((0, "a", Op.APPEND, "x"), (0, "a", Op.APPEND, "y"), (5, "d", Op.APPEND, "")),
        entries((0, "a", Op.PUT, "k", b"\x91\x01"), (0, "a", Op.PUT, "null", None), (3, "b", Op.PUT, "k", b"\x90")),
        timers((0, "a", Op.PUT, 5, (0, 5)), (3, None, Op.PUT, -5, None), (3, "b", Op.PUT, 5, (0, 5))),
    ]


def test_a_new_store_is_empty_and_at_the_origin(store: WorkingStore) -> None:
    assert store.version == ORIGIN
    assert store.schemas == ()
    assert store.value_table(COUNT).get(0, "a") is None
    assert store.map_table(PLACES).get(0, "a", "k") == (False, None)
    assert store.map_table(PLACES).entries(0, "a") == {}
    assert store.list_table(SEEN).elements(0, "a") == []
    assert [list(store.value_table(COUNT).items()), list(store.list_table(SEEN).items())] == [[], []]
    assert store.schemas == (COUNT, PLACES, SEEN)


def test_values_are_put_and_deleted(store: WorkingStore) -> None:
    table = store.value_table(COUNT)
    store.apply([values(COUNT, (0, "a", 1), (3, "b", 2))], Link(1, "t1"))
    assert (table.get(0, "a"), table.get(3, "b"), table.get(3, "c")) == (1, 2, None)
    store.apply([values(COUNT, (0, "a", None), (3, "b", 5), (3, "never", None))], Link(2, "t2"))
    assert (table.get(0, "a"), table.get(3, "b"), table.get(3, "never")) == (None, 5, None)
    assert sorted(table.items()) == [(3, "b", 5)]
    assert store.version == Link(2, "t2")


def test_map_entries_are_put_deleted_and_cleared(store: WorkingStore) -> None:
    table = store.map_table(PLACES)
    store.apply(
        [entries((1, "a", Op.PUT, "x", b"\x91\x01"), (1, "a", Op.PUT, "y", None), (1, "ab", Op.PUT, "x", b"\x90"))],
        Link(1, "t1"),
    )
    assert table.get(1, "a", "x") == (True, b"\x91\x01")
    assert table.get(1, "a", "y") == (True, None), "a null value is an entry"
    assert table.get(1, "a", "z") == (False, None)
    assert table.entries(1, "a") == {"x": b"\x91\x01", "y": None}
    store.apply([entries((1, "a", Op.DELETE, "y", None), (1, "a", Op.DELETE, "never", None))], Link(2, "t2"))
    assert table.entries(1, "a") == {"x": b"\x91\x01"}
    store.apply([entries((1, "a", Op.CLEAR, None, None), (1, "a", Op.PUT, "n", b"\x90"))], Link(3, "t3"))
    assert table.entries(1, "a") == {"n": b"\x90"}
    assert table.entries(1, "ab") == {"x": b"\x90"}, "a key that begins like a cleared one keeps its entries"
    store.apply([entries((1, "a", Op.DELETE, "n", None), (1, "ab", Op.CLEAR, None, None))], Link(4, "t4"))
    assert list(table.items()) == []


def test_list_elements_keep_their_order_over_batches(store: WorkingStore) -> None:
    table = store.list_table(SEEN)
    for seq in range(1, 12):
        added = [(2, key, Op.APPEND, f"{seq}{part}") for part in "ab" for key in ("k", "other")]
        store.apply([elements(*added)], Link(seq, f"t{seq}"))
    expected = [f"{seq}{part}" for seq in range(1, 12) for part in "ab"]
    assert table.elements(2, "k") == table.elements(2, "other") == expected
    store.apply([elements((2, "k", Op.CLEAR, None), (2, "k", Op.APPEND, "new"))], Link(12, "t12"))
    assert table.elements(2, "k") == ["new"]
    store.apply([elements((2, "k", Op.CLEAR, None), (2, "other", Op.CLEAR, None))], Link(13, "t13"))
    assert list(table.items()) == []


def test_an_append_without_ops_is_an_append(store: WorkingStore) -> None:
    store.apply([StateChanges(SEEN, [0, 0], ["a", "a"], None, None, ["x", "y"])], Link(1, "t"))
    assert store.list_table(SEEN).elements(0, "a") == ["x", "y"]


def test_due_timers_come_in_order_over_key_groups(store: WorkingStore) -> None:
    rows = [(group, f"k{group}", Op.PUT, time_ms, (0, time_ms)) for group in range(8) for time_ms in (-3, 0, 3, 7)]
    store.apply([timers(*rows[::-1], (2, None, Op.PUT, 0, None))], Link(1, "t1"))
    found = due(store, 3)
    assert found == sorted(found, key=lambda row: (row[1], row[2] or "null comes last"))
    assert len(found) == 3 * 8 + 1
    assert due(store, -4) == []
    assert due(store, 7)[:25] == found


def test_timers_are_removed_by_what_names_them(store: WorkingStore) -> None:
    table = store.timer_table(TIMERS)
    store.apply(
        [timers((1, "a", Op.PUT, 5, (0, 5)), (1, "a", Op.PUT, 5, (0, 6)), (1, "b", Op.PUT, 5, (0, 5)))], Link(1, "t1")
    )
    store.apply([timers((1, "a", Op.PUT, 5, (0, 5)), (1, "b", Op.PUT, 9, None))], Link(2, "t2"))
    assert len(due(store, 100)) == 4, "a timer that is there is not set twice"
    store.apply([timers((1, "a", Op.DELETE, 5, (0, 6)), (1, "never", Op.DELETE, 5, None))], Link(3, "t3"))
    assert due(store, 100) == [(1, 5, "a", (0, 5)), (1, 5, "b", (0, 5)), (1, 9, "b", None)]
    assert table.contains(1, table.form.pack(5, "a", (0, 5)))
    assert not table.contains(1, table.form.pack(5, "a", (0, 6)))
    assert not table.contains(2, table.form.pack(5, "a", (0, 5)))
    with pytest.raises(InvariantError):
        table.contains(8, b"")


def test_timers_that_come_before_the_ones_seen_are_found(store: WorkingStore) -> None:
    """A store may remember where its timers begin."""
    store.apply([timers((1, "a", Op.PUT, 50, None))], Link(1, "t1"))
    assert [due(store, 10), len(due(store, 60))] == [[], 1]
    store.apply([timers((1, "a", Op.DELETE, 50, None))], Link(2, "t2"))
    assert due(store, 60) == []
    store.apply([timers((1, "b", Op.PUT, 20, None))], Link(3, "t3"))
    store.apply([timers((1, "c", Op.PUT, 70, None), (1, "a", Op.PUT, -1, None))], Link(4, "t4"))
    assert [row[1] for row in due(store, 60)] == [-1, 20]
    store.fold([Batch([timers((1, "d", Op.PUT, -2, None))], 5)], Link(5, "t5"), last=True)
    assert [row[1] for row in due(store, 60)] == [-2, -1, 20]


def test_what_tables_return_belongs_to_the_caller(store: WorkingStore) -> None:
    store.apply(all_kinds(), Link(1, "t1"))
    store.list_table(SEEN).elements(0, "a").clear()
    store.map_table(PLACES).entries(0, "a").clear()
    for _, _, held in list(store.list_table(SEEN).items()):
        held.clear()
    assert store.list_table(SEEN).elements(0, "a") == ["x", "y"]
    assert len(store.map_table(PLACES).entries(0, "a")) == 2


def test_items_come_by_key_group(store: WorkingStore) -> None:
    groups = [5, 0, 7, 3, 0, 5]
    store.apply([values(COUNT, *((group, f"k{i}", i) for i, group in enumerate(groups)))], Link(1, "t1"))
    assert [group for group, _, _ in store.value_table(COUNT).items()] == sorted(groups)


def test_only_accepted_key_groups_are_applied(store: WorkingStore) -> None:
    store.apply(all_kinds(), Link(1, "t1"), accepts=lambda group: group in {3, 5})
    assert store.version == Link(1, "t1")
    assert store.value_table(COUNT).get(0, "a") is None
    assert store.value_table(COUNT).get(3, "b") == -(2**63)
    assert store.list_table(SEEN).elements(0, "a") == []
    assert store.list_table(SEEN).elements(5, "d") == [""]
    assert list(store.map_table(PLACES).items()) == [(3, "b", "k", b"\x90")]
    assert due(store, 5) == [(3, -5, None, None), (3, 5, "b", (0, 5))]


def test_key_groups_of_other_stores_are_skipped_if_they_are_not_accepted(store: WorkingStore) -> None:
    store.apply([values(COUNT, (100, "far", 1), (0, "a", 2))], Link(1, "t1"), accepts=range(8).__contains__)
    assert list(store.value_table(COUNT).items()) == [(0, "a", 2)]


def test_a_key_group_outside_changes_nothing(store: WorkingStore) -> None:
    store.apply(all_kinds(), Link(1, "t1"))
    before = contents(store)
    with pytest.raises(InvariantError):
        store.apply([values(COUNT, (0, "a", 9)), values(SUM, (8, "z", (1, 1.0)))], Link(2, "t2"))
    assert contents(store) == before
    assert store.version == Link(1, "t1")
    with pytest.raises(InvariantError):
        store.value_table(COUNT).get(8, "z")


def test_a_lower_version_is_refused(store: WorkingStore) -> None:
    store.apply(all_kinds(), Link(5, "t5"))
    with pytest.raises(InvariantError):
        store.apply([], Link(4, "t4"))
    store.apply([], Link(9, "t9"))
    assert store.version == Link(9, "t9")


def _kind(schema: StateSchema, **changed: Any) -> StateSchema:
    return StateSchema(**{**{f: getattr(schema, f) for f in schema.__struct_fields__}, **changed})


@pytest.mark.parametrize(
    ("other", "table"),
    [
        (_kind(COUNT, value_type="1:double"), "value_table"),
        (_kind(COUNT, kind="reducing"), "value_table"),
        (_kind(COUNT, kind="list"), "list_table"),
        (_kind(PLACES, map_key_type="1:long"), "map_table"),
        (_kind(PLACES, value_type="1:long"), "map_table"),
        (_kind(SEEN, value_type="1:binary"), "list_table"),
        (_kind(TIMERS, namespace_type=None), "timer_table"),
        (_kind(COUNT, kind="timers"), "timer_table"),
    ],
)
def test_another_schema_is_refused_by_name(store: WorkingStore, other: StateSchema, table: str) -> None:
    store.apply(all_kinds(), Link(1, "t1"))
    with pytest.raises(IncompatibleError) as raised:
        getattr(store, table)(other)
    assert other.name in raised.value.message
    assert raised.value.context["operator"] == "counter"


def test_changes_of_another_schema_are_refused(store: WorkingStore) -> None:
    store.apply(all_kinds(), Link(1, "t1"))
    with pytest.raises(IncompatibleError):
        store.apply([values(_kind(COUNT, value_type="1:string"), (0, "a", "text"))], Link(2, "t2"))
    assert store.value_table(COUNT).get(0, "a") == 1


def test_replay_folds_batches_of_different_seqs_at_once(store: WorkingStore) -> None:
    """Different key groups may be at different seqs; only the end has a version."""
    store.apply([values(COUNT, (0, "a", 1)), elements((1, "l", Op.APPEND, "x"))], Link(1, "t1"))
    only_0 = Batch([values(COUNT, (0, "a", 3), (1, "b", 99))], 3, accepts=lambda group: group == 0)
    first = [Batch([values(COUNT, (1, "b", 5)), elements((1, "l", Op.APPEND, "y"))], 4), only_0]
    store.fold(first, Link(6, "t6"), last=False)
    store.fold([Batch([values(COUNT, (0, "a", 6)), elements((1, "l", Op.APPEND, "z"))], 6)], Link(6, "t6"), last=True)
    assert store.version == Link(6, "t6")
    assert sorted(store.value_table(COUNT).items()) == [(0, "a", 6), (1, "b", 5)]
    assert store.list_table(SEEN).elements(1, "l") == ["x", "y", "z"]


def test_a_store_has_no_version_while_it_is_folded(store: WorkingStore) -> None:
    store.fold([Batch([values(COUNT, (0, "a", 1))], 2)], Link(5, "t5"), last=False)
    with pytest.raises(InvariantError):
        _ = store.version


def test_prepare_changes_nothing_that_can_be_seen(store: WorkingStore) -> None:
    store.apply(all_kinds(), Link(1, "t1"))
    before = contents(store)
    prepared = [values(COUNT, (0, "a", 100)), elements((0, "a", Op.APPEND, "z"))]
    store.prepare(prepared, 2)
    assert (contents(store), store.version) == (before, Link(1, "t1"))
    store.apply(prepared, Link(2, "t2"))
    assert store.value_table(COUNT).get(0, "a") == 100
    assert store.list_table(SEEN).elements(0, "a") == ["x", "y", "z"]


def test_other_changes_than_the_prepared_ones_may_be_applied(store: WorkingStore) -> None:
    store.apply(all_kinds(), Link(1, "t1"))
    store.prepare([values(COUNT, (0, "a", 100))], 2)
    store.apply([values(COUNT, (3, "b", 7))], Link(2, "t2"))
    assert (store.value_table(COUNT).get(0, "a"), store.value_table(COUNT).get(3, "b")) == (1, 7)


def test_prepared_changes_that_were_not_confirmed_leave_no_trace(store: WorkingStore, tmp_path: Path) -> None:
    store.apply(all_kinds(), Link(1, "t1"))
    before = contents(store)
    prepared = [values(COUNT, (0, "a", 100), (0, "new", 1), (3, "b", None), (3, "missing", None))]
    store.prepare(prepared, 2)
    store.prepare(prepared[:0], 2)
    assert contents(store) == before
    store.prepare(prepared, 2)
    store.write_snapshot(tmp_path / "snapshot")
    assert contents(open_snapshot("hashmap", tmp_path / "snapshot")) == before
    store.prepare(prepared, 2)
    store.fold([Batch([values(COUNT, (0, "a", 9))], 2)], Link(2, "t2"), last=True)
    table = store.value_table(COUNT)
    assert [table.get(*key) for key in ((0, "a"), (0, "new"), (3, "missing"))] == [9, None, None]


def test_prefetched_values_are_those_of_the_store(store: WorkingStore) -> None:
    table = store.value_table(COUNT)
    store.apply([values(COUNT, *((i % 8, f"k{i}", i) for i in range(200)))], Link(1, "t1"))
    for seq in (2, 4):
        table.prefetch([i % 8 for i in range(250)], [f"k{i}" for i in range(250)])
        assert [table.get(i % 8, f"k{i}") for i in range(201)] == [*range(200), None]
        store.apply([values(COUNT, (0, "k0", None), (1, "k1", -1))], Link(seq, "t"))
        assert (table.get(0, "k0"), table.get(1, "k1"), table.get(2, "k2")) == (None, -1, 2)
        store.apply([values(COUNT, (0, "k0", 0), (1, "k1", 1))], Link(seq + 1, "t"))


@pytest.mark.parametrize("reader", KINDS)
def test_a_snapshot_holds_the_whole_state(store: WorkingStore, reader: str, tmp_path: Path) -> None:
    """Every store writes the same format, so the backend may change at restart."""
    store.apply(all_kinds(), Link(1, "t1"))
    store.apply([elements((0, "a", Op.APPEND, "z")), values(COUNT, (3, "b", None))], Link(2, "t2"))
    store.write_snapshot(tmp_path / "snapshot")
    expected = contents(store)
    store.apply([values(COUNT, (0, "a", 77)), elements((5, "d", Op.CLEAR, None))], Link(3, "t3"))
    opened = open_snapshot(reader, tmp_path / "snapshot")
    assert contents(opened) == expected
    assert (opened.version, opened.schemas) == (Link(2, "t2"), store.schemas)
    opened.apply([elements((0, "a", Op.APPEND, "after"))], Link(3, "t3"))
    assert opened.list_table(SEEN).elements(0, "a") == ["x", "y", "z", "after"]
    opened.close()


def test_a_snapshot_of_the_empty_store_is_the_empty_store(store: WorkingStore, kind: str, tmp_path: Path) -> None:
    store.value_table(COUNT)
    store.write_snapshot(tmp_path / "snapshot")
    opened = open_snapshot(kind, tmp_path / "snapshot")
    assert (opened.version, opened.schemas, contents(opened)) == (ORIGIN, (COUNT,), {"count": {}})
    opened.close()


def test_a_snapshot_needs_a_directory_of_its_own(store: WorkingStore, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError):
        store.write_snapshot(tmp_path)


def test_every_store_gives_the_same_state(tmp_path: Path) -> None:
    """`apply` depends on the changes alone (I5)."""
    stores = [open_store(kind, tmp_path / kind) for kind in KINDS]
    filters: list[Callable[[int], bool] | None] = [None, lambda group: group < 4, None]
    for seq, accepts in enumerate(filters, 1):
        for store in stores:
            store.apply(all_kinds(), Link(seq, f"t{seq}"), accepts)
    found = [contents(store) for store in stores]
    assert all(other == found[0] for other in found[1:])
    assert found[0]["seen"][0, b"\xa1a"] == [b"\xa1x", b"\xa1y"] * 3
    for store in stores:
        store.close()


def test_a_store_that_tells_its_size_knows_of_what_it_holds(store: WorkingStore) -> None:
    """For metrics: about, and None where it would have to be counted."""
    store.apply(all_kinds(), Link(1, "t1"))
    size = store.size_estimate()
    assert size is None or (size.rows or 0) >= 9
