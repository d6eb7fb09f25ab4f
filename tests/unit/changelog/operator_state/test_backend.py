from __future__ import annotations

from typing import Any

import pytest

from varvite.changelog.api.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from varvite.changelog.api.operator_state import BroadcastState, OperatorStateStore, ReadOnlyBroadcastState
from varvite.changelog.api.time_spans import Time
from varvite.changelog.api.ttl_config import StateTtlConfig
from varvite.changelog.operator_state.backend import OperatorStateBackend
from varvite.changelog.operator_state.image import IMAGE_BYTES_MAX, Image, encode_image
from varvite.changelog.operator_state.section import StateSection, section_of
from varvite.changelog.types.factory import Types
from varvite.storage.errors import CorruptDataError, IncompatibleError, InvalidRequestError

RULES = MapStateDescriptor("rules", Types.STRING(), Types.LIST(Types.LONG()))
ITEMS = ListStateDescriptor("items", Types.LONG())
LISTS = ListStateDescriptor("lists", Types.LIST(Types.LONG()))


def restored(backend: OperatorStateBackend) -> OperatorStateBackend:
    """Result of a restore of the backend's state."""
    return OperatorStateBackend("op", backend.sections())


@pytest.fixture
def backend() -> OperatorStateBackend:
    return OperatorStateBackend("op")


class TestBroadcastState:
    def test_it_has_pyflinks_methods(self, backend: OperatorStateBackend) -> None:
        assert isinstance(backend, OperatorStateStore)
        state = backend.get_broadcast_state(RULES)
        assert isinstance(state, BroadcastState)
        assert (state.is_empty(), state.get("a"), state["a"], "a" in state) == (True, None, None, False)
        state.put("b", [1])
        state["a"] = [2, 3]
        state.put_all({"c": [], "d": None})
        del state["missing"]
        state.remove("c")
        assert state.items() == [("b", [1]), ("a", [2, 3]), ("d", None)]
        assert (list(state), state.keys()) == (["b", "a", "d"], ["b", "a", "d"])
        assert (state.values(), state.is_empty()) == ([[1], [2, 3], None], False)
        assert (state.contains("d"), state.get("d"), state.contains("c")) == (True, None, False)
        del state["a"]
        assert "a" not in state
        state.clear()
        assert state.is_empty()

    def test_the_read_only_handle_shows_changes_and_makes_none(self, backend: OperatorStateBackend) -> None:
        state, read_only = backend.get_broadcast_state(RULES), backend.get_read_only_broadcast_state(RULES)
        state["a"] = [1]
        assert read_only.items() == [("a", [1])]
        assert isinstance(read_only, ReadOnlyBroadcastState)
        assert not isinstance(read_only, BroadcastState)
        with pytest.raises(InvalidRequestError, match="may only be read"):
            read_only.clear()
        assert state.items() == [("a", [1])]

    def test_what_it_returns_does_not_alias_state(self, backend: OperatorStateBackend) -> None:
        state = backend.get_broadcast_state(RULES)
        given = [1]
        state["a"] = given
        given.append(2)
        for found in (state["a"], state.values()[0], state.items()[0][1]):
            assert found == [1]
            assert found is not None
            found.append(3)
        keys: Any = state.keys()
        keys.clear()
        assert state.items() == [("a", [1])]

    def test_a_wrong_key_or_value_changes_nothing_and_names_the_state(self, backend: OperatorStateBackend) -> None:
        state: Any = backend.get_broadcast_state(RULES)
        state["a"] = [1]
        before = backend.sections()
        for wrong in (
            lambda: state.put(None, [1]),
            lambda: state.put("b", "text"),
            lambda: state.put_all({"b": [1], "c": ["x"]}),
            lambda: state.put_all([("b", [1])]),
            lambda: state.get(None),
            lambda: state.put(7, [1]),
        ):
            with pytest.raises(InvalidRequestError, match="state 'rules'") as caught:
                wrong()
            assert caught.value.context["operator"] == "op"
        assert backend.sections() == before

    def test_changing_it_while_one_goes_over_it_is_allowed(self, backend: OperatorStateBackend) -> None:
        state = backend.get_broadcast_state(RULES)
        state.put_all({"a": [1], "b": [2]})
        for key in state:
            del state[key]
        assert state.is_empty()


class TestListState:
    @pytest.mark.parametrize("get", ["get_list_state", "get_union_list_state"])
    def test_it_has_the_methods_of_keyed_list_state(self, backend: OperatorStateBackend, get: str) -> None:
        state = getattr(backend, get)(ITEMS)
        assert state.get() == []
        state.add(1)
        state.add_all([2, 3])
        state.add_all([])
        assert (state.get(), list(state)) == ([1, 2, 3], [1, 2, 3])
        state.get().append(9)
        state.update((4,))
        assert state.get() == [4]
        state.clear()
        assert state.get() == []

    def test_elements_do_not_alias_state(self, backend: OperatorStateBackend) -> None:
        state = backend.get_list_state(LISTS)
        given = [1]
        state.add(given)
        given.append(2)
        state.get()[0].append(3)
        assert state.get() == [[1]]

    @pytest.mark.parametrize("wrong", [[1, None], [1, "x"], "12", 7, None])
    def test_wrong_elements_change_nothing_and_name_the_state(self, backend: OperatorStateBackend, wrong: Any) -> None:
        state = backend.get_list_state(ITEMS)
        state.add(1)
        for call in (state.add_all, state.update):
            with pytest.raises(InvalidRequestError, match="state 'items'"):
                call(wrong)
        with pytest.raises(InvalidRequestError, match="state 'items'"):
            state.add(None)  # type: ignore[arg-type]
        assert state.get() == [1]


class TestNames:
    def test_a_state_asked_for_again_is_the_same_state(self, backend: OperatorStateBackend) -> None:
        backend.get_list_state(ITEMS).add(1)
        assert backend.get_list_state(ITEMS).get() == [1]

    def test_registered_names_are_told_restored_ones_too(self, backend: OperatorStateBackend) -> None:
        backend.get_list_state(ITEMS).add(1)
        backend.get_union_list_state(LISTS)
        backend.get_broadcast_state(RULES)["a"] = [1]
        assert backend.get_registered_state_names() == {"items", "lists"}
        assert backend.get_registered_broadcast_state_names() == {"rules"}
        backend.set_raw_streams([b"raw"], [])
        assert restored(backend).get_registered_state_names() == {"items"}, "an empty state leaves nothing"
        assert restored(backend).get_registered_broadcast_state_names() == {"rules"}

    def test_a_name_is_of_one_state(self, backend: OperatorStateBackend) -> None:
        backend.get_list_state(ITEMS)
        for other in (
            lambda: backend.get_union_list_state(ITEMS),
            lambda: backend.get_list_state(ListStateDescriptor("items", Types.STRING())),
            lambda: backend.get_broadcast_state(MapStateDescriptor("items", Types.LONG(), Types.LONG())),
        ):
            with pytest.raises(InvalidRequestError, match="'items' exists already"):
                other()

    def test_only_the_right_descriptors_without_ttl_are_taken(self, backend: OperatorStateBackend) -> None:
        wrong: Any = ValueStateDescriptor("v", Types.LONG())
        for get in (backend.get_list_state, backend.get_union_list_state, backend.get_broadcast_state):
            with pytest.raises(InvalidRequestError, match="is not a"):
                get(wrong)
        expiring = ListStateDescriptor("e", Types.LONG())
        expiring.enable_time_to_live(StateTtlConfig.new_builder(Time.seconds(1)).build())
        with pytest.raises(InvalidRequestError, match="time to live"):
            backend.get_list_state(expiring)


class TestRestoring:
    def test_every_state_comes_back(self, backend: OperatorStateBackend) -> None:
        backend.get_list_state(ITEMS).update([1, 2])
        backend.get_union_list_state(LISTS).update([[3]])
        backend.get_broadcast_state(RULES).put_all({"z": [1], "a": None})
        backend.set_raw_streams([b"x", b""], [(3, b"three")])
        again = restored(backend)
        assert again.sections() == backend.sections()
        assert again.get_broadcast_state(RULES).items() == [("z", [1]), ("a", None)]
        assert (again.get_list_state(ITEMS).get(), again.get_union_list_state(LISTS).get()) == ([1, 2], [[3]])
        assert (again.raw_operator_streams, again.raw_keyed_streams) == ([b"x", b""], [(3, b"three")])
        assert again.sections() == backend.sections(), "asking changes nothing"

    def test_what_nobody_asks_for_stays(self, backend: OperatorStateBackend) -> None:
        backend.get_list_state(ITEMS).update([1, 2])
        again = restored(backend)
        again.get_list_state(LISTS).add([5])
        assert restored(again).get_list_state(ITEMS).get() == [1, 2]

    def test_a_state_without_rows_leaves_nothing(self, backend: OperatorStateBackend) -> None:
        backend.get_list_state(ITEMS).update([1])
        backend.set_raw_streams([b"x"], [(1, b"y")])
        again = restored(backend)
        again.get_list_state(ITEMS).clear()
        again.set_raw_streams([], [])
        assert again.sections() == ()

    def test_a_change_after_a_checkpoint_is_in_the_next_one(self, backend: OperatorStateBackend) -> None:
        state, rules = backend.get_list_state(ITEMS), backend.get_broadcast_state(RULES)
        state.add(1)
        rules["a"] = [1]
        first = backend.sections()
        assert backend.sections() == first
        for step in (lambda: state.add(2), lambda: rules.put("a", [2]), lambda: rules.remove("a"), state.clear):
            step()
            assert backend.sections() != first
            first = backend.sections()

    def test_another_kind_is_an_error_that_names_both(self, backend: OperatorStateBackend) -> None:
        backend.get_list_state(ITEMS).add(1)
        with pytest.raises(IncompatibleError, match=r"'items' is stored as list of 1:long.*union-list"):
            restored(backend).get_union_list_state(ITEMS)

    def test_types_change_as_those_of_keyed_state_do(self, backend: OperatorStateBackend) -> None:
        backend.get_list_state(ListStateDescriptor("n", "int")).update([1, 2])
        backend.get_broadcast_state(MapStateDescriptor("m", "string", "a int")).put_all({"x": (1,), "y": None})
        again = restored(backend)
        assert again.get_list_state(ListStateDescriptor("n", "bigint")).get() == [1, 2]
        wider = MapStateDescriptor("m", "string", "a bigint, b string", defaults={"b": "new"})
        assert [(k, v and tuple(v)) for k, v in again.get_broadcast_state(wider).items()] == [
            ("x", (1, "new")), ("y", None),
        ]  # fmt: skip
        types = {section.name: section.value_type for section in again.sections()}
        assert types == {"n": "1:long", "m": "1:row<a:long,b:string>"}
        with pytest.raises(IncompatibleError, match="migrate="):
            restored(backend).get_list_state(ListStateDescriptor("n", "string"))
        migrated = ListStateDescriptor("n", "string", migrate=str)
        assert restored(backend).get_list_state(migrated).get() == ["1", "2"]

    def test_parts_of_different_types_become_one_state(self) -> None:
        old, new = OperatorStateBackend("op"), OperatorStateBackend("op")
        old.get_list_state(ListStateDescriptor("n", "int")).add(1)
        new.get_list_state(ListStateDescriptor("n", "bigint")).add(2**40)
        both = OperatorStateBackend("op", [*old.sections(), *new.sections()])
        assert both.sections() == (*old.sections(), *new.sections())
        assert both.get_list_state(ListStateDescriptor("n", "bigint")).get() == [1, 2**40]
        assert [(s.value_type, s.rows) for s in both.sections()] == [("1:long", 2)]

    def test_a_state_that_nobody_asks_for_is_kept_as_its_share(self, backend: OperatorStateBackend) -> None:
        for name in ("asked", "ignored", "nothing"):
            backend.get_union_list_state(ListStateDescriptor(name, "bigint")).update([1, 2, 3])
        whole = backend.sections()
        share = {s.name: [s.with_rows(s.decoded()[:1])] for s in whole}
        shares: Any = {**share, "nothing": []}
        again = OperatorStateBackend("op", whole, shares)
        asked = again.get_union_list_state(ListStateDescriptor("asked", "bigint"))
        assert asked.get() == [1, 2, 3]
        assert [(s.name, s.rows) for s in again.sections()] == [("asked", 3), ("ignored", 1)]
        again.settle()
        assert [(s.name, s.rows) for s in again.sections()] == [("asked", 3), ("ignored", 1)]
        assert again.get_union_list_state(ListStateDescriptor("ignored", "bigint")).get() == [1]
        assert again.get_union_list_state(ListStateDescriptor("nothing", "bigint")).get() == []
        assert asked.get() == [1, 2, 3]

    @pytest.mark.parametrize(("rows", "data"), [(1, b"\xc1"), (1, b"\x93\x01\x02\x03"), (2, b"\x91\xc4\x01\x01")])
    def test_rows_that_do_not_parse_are_corrupt_data(self, rows: int, data: bytes) -> None:
        section = StateSection(name="items", kind="list", value_type="1:long", rows=rows, data=data)
        with pytest.raises(CorruptDataError, match="'items'"):
            OperatorStateBackend("op", [section]).get_list_state(ITEMS)


def test_an_image_has_a_limit_that_names_the_largest_states() -> None:
    section = section_of("big", "raw-operator", [b"x" * IMAGE_BYTES_MAX])
    assert section is not None
    with pytest.raises(InvalidRequestError, match=r"'big': \d+.*keyed state") as caught:
        encode_image(Image("job", "op", (section,)))
    assert caught.value.context["operator"] == "op"
