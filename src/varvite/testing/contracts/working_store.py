"""The claims about a `WorkingStore`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from varvite.changelog.segments.batch import Batch
from varvite.changelog.segments.changes import Op, StateChanges
from varvite.changelog.types.factory import parse_type_string
from varvite.changelog.types.key_wire import key_writer
from varvite.changelog.working_stores.contract import WorkingStore
from varvite.changelog.working_stores.custom import copy_store
from varvite.changelog.working_stores.hashmap.store import HashMapStore
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.changelog.working_stores.table_store import StoreTarget
from varvite.storage.errors import IncompatibleError, InvalidRequestError, InvariantError
from varvite.storage.format.records import ORIGIN, Link, StateSchema

MakeStore: TypeAlias = "Callable[[StoreTarget], WorkingStore]"

OPERATOR = "counter"
KEY_TYPE = "1:string"
KEY_GROUPS = 8
COUNT = StateSchema(name="count", kind="value", value_type="1:long")
SUM = StateSchema(name="sum", kind="reducing", value_type="1:tuple<long,double>")
SEEN = StateSchema(name="seen", kind="list", value_type="1:string")
TIMERS = StateSchema(name="timers", kind="timers", value_type="1:long", namespace_type="1:tuple<long,long>")
PLACES = StateSchema(name="places", kind="map", value_type="1:list<long>", map_key_type="1:string")


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


def due(store: WorkingStore, until_ms: int) -> list[tuple[Any, ...]]:
    """(key group, time, key, namespace) of the due timers, in order."""
    table = store.timer_table(TIMERS)
    return [(group, *table.form.unpack(packed)) for packed, group in table.due(until_ms)]


def all_kinds() -> list[StateChanges]:
    """Changes of a state of every kind."""
    return [
        values(COUNT, (0, "a", 1), (3, "b", -(2**63))),
        values(SUM, (0, "a", (1, 0.5)), (7, "c", (None, None))),
        elements((0, "a", Op.APPEND, "x"), (0, "a", Op.APPEND, "y"), (5, "d", Op.APPEND, "")),
        entries((0, "a", Op.PUT, "k", b"\x91\x01"), (0, "a", Op.PUT, "null", None), (3, "b", Op.PUT, "k", b"\x90")),
        timers((0, "a", Op.PUT, 5, (0, 5)), (3, None, Op.PUT, -5, None), (3, "b", Op.PUT, 5, (0, 5))),
    ]


def changed_schema(schema: StateSchema, **changed: Any) -> StateSchema:
    """The schema with other fields."""
    return StateSchema(**{**{f: getattr(schema, f) for f in schema.__struct_fields__}, **changed})


def contents(store: WorkingStore, key_type: str = KEY_TYPE) -> dict[str, dict[Any, Any]]:
    """State name → wire form of the key, and map key, → wire form of the value, or of all elements in order."""
    key_wire = key_writer(parse_type_string(key_type))
    states: dict[str, dict[Any, Any]] = {}
    for schema in store.schemas:
        value = parse_type_string(schema.value_type).to_wire
        if schema.kind == "map":
            map_key = parse_type_string(schema.map_key_type or "").to_wire
            states[schema.name] = {
                (group, key_wire(key), map_key(entry)): None if held is None else value(held)
                for group, key, entry, held in store.map_table(schema).items()
            }
        elif schema.kind == "timers":
            states[schema.name] = dict.fromkeys(store.timer_table(schema).items(), True)
        elif schema.kind == "list":
            states[schema.name] = {
                (group, key_wire(key)): [value(element) for element in elements]
                for group, key, elements in store.list_table(schema).items()
            }
        else:
            states[schema.name] = {
                (group, key_wire(key)): value(held) for group, key, held in store.value_table(schema).items()
            }
    return states


def open_target(make_store: MakeStore, directory: Path) -> WorkingStore:
    """A new empty store of the key groups [0, 8)."""
    return make_store(StoreTarget(operator=OPERATOR, key_type=KEY_TYPE, low=0, high=KEY_GROUPS, directory=directory))


def open_snapshot(reader: str, make_store: MakeStore, snapshot: Path) -> WorkingStore:
    """A store with the state of a snapshot: varvite's in memory, varvite's RocksDB, or the store itself."""
    source = RocksDBStore.open_existing(snapshot)
    if reader == "rocksdb":
        return source
    if reader == "hashmap":
        in_memory = HashMapStore(operator=OPERATOR, key_type=KEY_TYPE, low=0, high=KEY_GROUPS)
        in_memory.load_later(source, source.close)
        return in_memory
    store = open_target(make_store, snapshot.with_name(f"{snapshot.name}-copy"))
    copy_store(source, store)
    source.close()
    return store


class WorkingStoreContract:
    """The behavior of a working store that varvite relies on. Override `make_store`."""

    @pytest.fixture
    def make_store(self) -> MakeStore:
        """Makes a new, empty store: the factory of the custom state backend."""
        raise NotImplementedError("override the fixture `make_store`: it returns the factory of the stores")

    @pytest.fixture
    def store(self, make_store: MakeStore, tmp_path: Path) -> Iterator[WorkingStore]:
        """A new, empty store; the test's own."""
        store = open_target(make_store, tmp_path / "db")
        yield store
        store.close()

    def test_a_new_store_is_empty_and_at_the_origin(self, store: WorkingStore) -> None:
        assert store.version == ORIGIN
        assert store.schemas == ()
        assert store.value_table(COUNT).get(0, "a") is None
        assert store.map_table(PLACES).get(0, "a", "k") == (False, None)
        assert store.map_table(PLACES).entries(0, "a") == {}
        assert store.list_table(SEEN).elements(0, "a") == []
        assert [list(store.value_table(COUNT).items()), list(store.list_table(SEEN).items())] == [[], []]
        assert store.schemas == (COUNT, PLACES, SEEN)

    def test_values_are_put_and_deleted(self, store: WorkingStore) -> None:
        table = store.value_table(COUNT)
        store.apply([values(COUNT, (0, "a", 1), (3, "b", 2))], Link(1, "t1"))
        assert (table.get(0, "a"), table.get(3, "b"), table.get(3, "c")) == (1, 2, None)
        store.apply([values(COUNT, (0, "a", None), (3, "b", 5), (3, "never", None))], Link(2, "t2"))
        assert (table.get(0, "a"), table.get(3, "b"), table.get(3, "never")) == (None, 5, None)
        assert sorted(table.items()) == [(3, "b", 5)]
        assert store.version == Link(2, "t2")

    def test_map_entries_are_put_deleted_and_cleared(self, store: WorkingStore) -> None:
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

    def test_list_elements_keep_their_order_over_batches(self, store: WorkingStore) -> None:
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

    def test_an_append_without_ops_is_an_append(self, store: WorkingStore) -> None:
        store.apply([StateChanges(SEEN, [0, 0], ["a", "a"], None, None, ["x", "y"])], Link(1, "t"))
        assert store.list_table(SEEN).elements(0, "a") == ["x", "y"]

    def test_due_timers_come_in_order_over_key_groups(self, store: WorkingStore) -> None:
        rows = [(group, f"k{group}", Op.PUT, time_ms, (0, time_ms)) for group in range(8) for time_ms in (-3, 0, 3, 7)]
        store.apply([timers(*rows[::-1], (2, None, Op.PUT, 0, None))], Link(1, "t1"))
        timers_due = due(store, 3)
        assert timers_due == sorted(timers_due, key=lambda row: (row[1], row[2] or "null comes last"))
        assert len(timers_due) == 3 * 8 + 1
        assert due(store, -4) == []
        assert due(store, 7)[:25] == timers_due

    def test_timers_are_removed_by_what_names_them(self, store: WorkingStore) -> None:
        table = store.timer_table(TIMERS)
        store.apply(
            [timers((1, "a", Op.PUT, 5, (0, 5)), (1, "a", Op.PUT, 5, (0, 6)), (1, "b", Op.PUT, 5, (0, 5)))],
            Link(1, "t1"),
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

    def test_timers_that_come_before_the_ones_seen_are_found(self, store: WorkingStore) -> None:
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

    def test_what_tables_return_belongs_to_the_caller(self, store: WorkingStore) -> None:
        store.apply(all_kinds(), Link(1, "t1"))
        store.list_table(SEEN).elements(0, "a").clear()
        store.map_table(PLACES).entries(0, "a").clear()
        for _, _, held in list(store.list_table(SEEN).items()):
            held.clear()
        assert store.list_table(SEEN).elements(0, "a") == ["x", "y"]
        assert len(store.map_table(PLACES).entries(0, "a")) == 2

    def test_items_come_by_key_group(self, store: WorkingStore) -> None:
        groups = [5, 0, 7, 3, 0, 5]
        store.apply([values(COUNT, *((group, f"k{i}", i) for i, group in enumerate(groups)))], Link(1, "t1"))
        assert [group for group, _, _ in store.value_table(COUNT).items()] == sorted(groups)

    def test_only_accepted_key_groups_are_applied(self, store: WorkingStore) -> None:
        store.apply(all_kinds(), Link(1, "t1"), accepts=lambda group: group in {3, 5})
        assert store.version == Link(1, "t1")
        assert store.value_table(COUNT).get(0, "a") is None
        assert store.value_table(COUNT).get(3, "b") == -(2**63)
        assert store.list_table(SEEN).elements(0, "a") == []
        assert store.list_table(SEEN).elements(5, "d") == [""]
        assert list(store.map_table(PLACES).items()) == [(3, "b", "k", b"\x90")]
        assert due(store, 5) == [(3, -5, None, None), (3, 5, "b", (0, 5))]

    def test_key_groups_of_other_stores_are_skipped_if_they_are_not_accepted(self, store: WorkingStore) -> None:
        store.apply([values(COUNT, (100, "far", 1), (0, "a", 2))], Link(1, "t1"), accepts=range(8).__contains__)
        assert list(store.value_table(COUNT).items()) == [(0, "a", 2)]

    def test_a_key_group_outside_changes_nothing(self, store: WorkingStore) -> None:
        store.apply(all_kinds(), Link(1, "t1"))
        before = contents(store)
        with pytest.raises(InvariantError):
            store.apply([values(COUNT, (0, "a", 9)), values(SUM, (8, "z", (1, 1.0)))], Link(2, "t2"))
        assert contents(store) == before
        assert store.version == Link(1, "t1")
        with pytest.raises(InvariantError):
            store.value_table(COUNT).get(8, "z")

    def test_a_lower_version_is_refused(self, store: WorkingStore) -> None:
        store.apply(all_kinds(), Link(5, "t5"))
        with pytest.raises(InvariantError):
            store.apply([], Link(4, "t4"))
        store.apply([], Link(9, "t9"))
        assert store.version == Link(9, "t9")

    @pytest.mark.parametrize(
        ("other", "table"),
        [
            (changed_schema(COUNT, value_type="1:double"), "value_table"),
            (changed_schema(COUNT, kind="reducing"), "value_table"),
            (changed_schema(COUNT, kind="list"), "list_table"),
            (changed_schema(PLACES, map_key_type="1:long"), "map_table"),
            (changed_schema(PLACES, value_type="1:long"), "map_table"),
            (changed_schema(SEEN, value_type="1:binary"), "list_table"),
            (changed_schema(TIMERS, namespace_type=None), "timer_table"),
            (changed_schema(COUNT, kind="timers"), "timer_table"),
        ],
    )
    def test_another_schema_is_refused_by_name(self, store: WorkingStore, other: StateSchema, table: str) -> None:
        store.apply(all_kinds(), Link(1, "t1"))
        with pytest.raises(IncompatibleError) as raised:
            getattr(store, table)(other)
        assert other.name in raised.value.message
        assert raised.value.context["operator"] == "counter"

    def test_changes_of_another_schema_are_refused(self, store: WorkingStore) -> None:
        store.apply(all_kinds(), Link(1, "t1"))
        with pytest.raises(IncompatibleError):
            store.apply([values(changed_schema(COUNT, value_type="1:string"), (0, "a", "text"))], Link(2, "t2"))
        assert store.value_table(COUNT).get(0, "a") == 1

    def test_replay_folds_batches_of_different_seqs_at_once(self, store: WorkingStore) -> None:
        """Different key groups may be at different seqs; only the end has a version."""
        store.apply([values(COUNT, (0, "a", 1)), elements((1, "l", Op.APPEND, "x"))], Link(1, "t1"))
        only_0 = Batch([values(COUNT, (0, "a", 3), (1, "b", 99))], 3, accepts=lambda group: group == 0)
        first = [Batch([values(COUNT, (1, "b", 5)), elements((1, "l", Op.APPEND, "y"))], 4), only_0]
        store.fold(first, Link(6, "t6"), last=False)
        store.fold(
            [Batch([values(COUNT, (0, "a", 6)), elements((1, "l", Op.APPEND, "z"))], 6)], Link(6, "t6"), last=True
        )
        assert store.version == Link(6, "t6")
        assert sorted(store.value_table(COUNT).items()) == [(0, "a", 6), (1, "b", 5)]
        assert store.list_table(SEEN).elements(1, "l") == ["x", "y", "z"]

    def test_a_store_has_no_version_while_it_is_folded(self, store: WorkingStore) -> None:
        store.fold([Batch([values(COUNT, (0, "a", 1))], 2)], Link(5, "t5"), last=False)
        with pytest.raises(InvariantError):
            _ = store.version

    def test_prepare_changes_nothing_that_can_be_seen(self, store: WorkingStore) -> None:
        store.apply(all_kinds(), Link(1, "t1"))
        before = contents(store)
        prepared = [values(COUNT, (0, "a", 100)), elements((0, "a", Op.APPEND, "z"))]
        store.prepare(prepared, 2)
        assert (contents(store), store.version) == (before, Link(1, "t1"))
        store.apply(prepared, Link(2, "t2"))
        assert store.value_table(COUNT).get(0, "a") == 100
        assert store.list_table(SEEN).elements(0, "a") == ["x", "y", "z"]

    def test_other_changes_than_the_prepared_ones_may_be_applied(self, store: WorkingStore) -> None:
        store.apply(all_kinds(), Link(1, "t1"))
        store.prepare([values(COUNT, (0, "a", 100))], 2)
        store.apply([values(COUNT, (3, "b", 7))], Link(2, "t2"))
        assert (store.value_table(COUNT).get(0, "a"), store.value_table(COUNT).get(3, "b")) == (1, 7)

    def test_prepared_changes_that_were_not_confirmed_leave_no_trace(
        self, store: WorkingStore, make_store: MakeStore, tmp_path: Path
    ) -> None:
        store.apply(all_kinds(), Link(1, "t1"))
        before = contents(store)
        prepared = [values(COUNT, (0, "a", 100), (0, "new", 1), (3, "b", None), (3, "missing", None))]
        store.prepare(prepared, 2)
        store.prepare(prepared[:0], 2)
        assert contents(store) == before
        store.prepare(prepared, 2)
        store.write_snapshot(tmp_path / "snapshot")
        assert contents(open_snapshot("hashmap", make_store, tmp_path / "snapshot")) == before
        store.prepare(prepared, 2)
        store.fold([Batch([values(COUNT, (0, "a", 9))], 2)], Link(2, "t2"), last=True)
        table = store.value_table(COUNT)
        assert [table.get(*key) for key in ((0, "a"), (0, "new"), (3, "missing"))] == [9, None, None]

    def test_prefetched_values_are_those_of_the_store(self, store: WorkingStore) -> None:
        table = store.value_table(COUNT)
        store.apply([values(COUNT, *((i % 8, f"k{i}", i) for i in range(200)))], Link(1, "t1"))
        for seq in (2, 4):
            table.prefetch([i % 8 for i in range(250)], [f"k{i}" for i in range(250)])
            assert [table.get(i % 8, f"k{i}") for i in range(201)] == [*range(200), None]
            store.apply([values(COUNT, (0, "k0", None), (1, "k1", -1))], Link(seq, "t"))
            assert (table.get(0, "k0"), table.get(1, "k1"), table.get(2, "k2")) == (None, -1, 2)
            store.apply([values(COUNT, (0, "k0", 0), (1, "k1", 1))], Link(seq + 1, "t"))

    @pytest.mark.parametrize("reader", ["itself", "hashmap", "rocksdb"])
    def test_a_snapshot_holds_the_whole_state(
        self, store: WorkingStore, make_store: MakeStore, reader: str, tmp_path: Path
    ) -> None:
        """Every store writes the same format, so the backend may change at restart."""
        store.apply(all_kinds(), Link(1, "t1"))
        store.apply([elements((0, "a", Op.APPEND, "z")), values(COUNT, (3, "b", None))], Link(2, "t2"))
        store.write_snapshot(tmp_path / "snapshot")
        expected = contents(store)
        store.apply([values(COUNT, (0, "a", 77)), elements((5, "d", Op.CLEAR, None))], Link(3, "t3"))
        opened = open_snapshot(reader, make_store, tmp_path / "snapshot")
        assert contents(opened) == expected
        assert (opened.version, opened.schemas) == (Link(2, "t2"), store.schemas)
        opened.apply([elements((0, "a", Op.APPEND, "after"))], Link(3, "t3"))
        assert opened.list_table(SEEN).elements(0, "a") == ["x", "y", "z", "after"]
        opened.close()

    def test_a_snapshot_of_the_empty_store_is_the_empty_store(
        self, store: WorkingStore, make_store: MakeStore, tmp_path: Path
    ) -> None:
        store.value_table(COUNT)
        store.write_snapshot(tmp_path / "snapshot")
        opened = open_snapshot("itself", make_store, tmp_path / "snapshot")
        assert (opened.version, opened.schemas, contents(opened)) == (ORIGIN, (COUNT,), {"count": {}})
        opened.close()

    def test_a_snapshot_needs_a_directory_of_its_own(self, store: WorkingStore, tmp_path: Path) -> None:
        with pytest.raises(InvalidRequestError):
            store.write_snapshot(tmp_path)

    def test_it_gives_the_same_state_as_the_store_in_memory(self, store: WorkingStore) -> None:
        """`apply` depends on the changes alone (I5)."""
        in_memory = HashMapStore(operator=OPERATOR, key_type=KEY_TYPE, low=0, high=KEY_GROUPS)
        filters: list[Callable[[int], bool] | None] = [None, lambda group: group < 4, None]
        for seq, accepts in enumerate(filters, 1):
            store.apply(all_kinds(), Link(seq, f"t{seq}"), accepts)
            in_memory.apply(all_kinds(), Link(seq, f"t{seq}"), accepts)
        assert contents(store) == contents(in_memory)
        assert contents(store)["seen"][0, b"\xa1a"] == [b"\xa1x", b"\xa1y"] * 3

    def test_a_store_that_tells_its_size_knows_of_what_it_holds(self, store: WorkingStore) -> None:
        """For metrics: about, and None where it would have to be counted."""
        store.apply(all_kinds(), Link(1, "t1"))
        size = store.size_estimate()
        assert size is None or (size.rows or 0) >= 9
