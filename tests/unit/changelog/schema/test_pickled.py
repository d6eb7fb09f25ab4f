"""Generic types, and their refusal where a job allows none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from varvite.changelog.api.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor, schema_of
from varvite.changelog.keyed.backend import KeyedStateBackend
from varvite.changelog.operator_state.backend import OperatorStateBackend
from varvite.changelog.schema.pickled import is_generic, refuse_stored
from varvite.changelog.types.factory import Types, as_type, parse_type_string
from varvite.changelog.working_stores.hashmap.store import HashMapStore
from varvite.storage.errors import IncompatibleError, InvalidRequestError
from varvite.storage.format.records import StateSchema, ValueVersion

PICKLED = Types.PICKLED_BYTE_ARRAY()
GENERIC = [
    PICKLED,
    Types.LIST(PICKLED),
    Types.OBJECT_ARRAY(PICKLED),
    Types.MAP(Types.STRING(), Types.LIST(PICKLED)),
    Types.TUPLE([Types.LONG(), PICKLED]),
    Types.ROW_NAMED(["a", "b"], [Types.STRING(), Types.TUPLE([PICKLED])]),
]
PLAIN = [
    Types.LONG(),
    Types.BINARY(),
    Types.BIG_DEC(),
    Types.MAP(Types.STRING(), Types.LIST(Types.DOUBLE())),
    Types.ROW_NAMED(["pickled"], [Types.STRING()]),
]


@pytest.mark.parametrize("kind", GENERIC, ids=str)
def test_a_type_with_a_pickled_part_is_generic(kind: Any) -> None:
    assert is_generic(as_type(kind))
    stamped = parse_type_string(f"1:stamped<{as_type(kind).notation()}>")
    assert is_generic(stamped)


@pytest.mark.parametrize("kind", PLAIN, ids=str)
def test_any_other_type_is_not(kind: Any) -> None:
    assert not is_generic(as_type(kind))


@pytest.mark.parametrize("kind", GENERIC, ids=str)
def test_a_stored_state_is_refused_by_its_newest_type_and_by_those_that_values_may_still_have(kind: Any) -> None:
    plain = StateSchema(name="total", kind="value", value_type="1:long")
    refuse_stored([plain], "op")
    now = msgspec.structs.replace(plain, value_type=as_type(kind).type_string())
    before = msgspec.structs.replace(plain, version=1, earlier=(ValueVersion(value_type=now.value_type),))
    for schema in (now, before):
        with pytest.raises(
            IncompatibleError, match=r"'total' is stored as .*pickled.* pipeline.generic-types is false"
        ):
            refuse_stored([plain, schema], "op")


def keyed(store: Any, *, generic_types: bool) -> KeyedStateBackend:
    return KeyedStateBackend(store, Types.STRING(), "op", generic_types=generic_types)


def test_a_keyed_state_is_refused_as_it_is_declared_and_as_it_is_stored() -> None:
    store = HashMapStore(operator="op", key_type="1:string", low=0, high=4)
    backend = keyed(store, generic_types=False)
    for refused in (
        ValueStateDescriptor("kept", PICKLED),
        ListStateDescriptor("kept", Types.TUPLE([PICKLED])),
        MapStateDescriptor("kept", Types.LONG(), PICKLED),
    ):
        get = {"value": backend.get_state, "list": backend.get_list_state, "map": backend.get_map_state}[refused.kind]
        with pytest.raises(InvalidRequestError, match=r"'kept' is declared as .*pickled"):
            get(refused)
    backend.get_state(ValueStateDescriptor("total", Types.LONG()))
    keyed(store, generic_types=True).get_state(ValueStateDescriptor("kept", PICKLED))
    with pytest.raises(IncompatibleError, match="'kept' is stored as 1:pickled"):
        KeyedStateBackend(
            store,
            Types.STRING(),
            "op",
            [schema_of(ValueStateDescriptor("kept", PICKLED))],
            generic_types=False,
        )


def test_a_non_keyed_state_is_refused_likewise() -> None:
    backend = OperatorStateBackend("op", generic_types=False)
    with pytest.raises(InvalidRequestError, match="'items' is declared"):
        backend.get_list_state(ListStateDescriptor("items", PICKLED))
    with pytest.raises(InvalidRequestError, match="'rules' is declared"):
        backend.get_broadcast_state(MapStateDescriptor("rules", Types.STRING(), PICKLED))
    allowed = OperatorStateBackend("op")
    allowed.get_union_list_state(ListStateDescriptor("items", PICKLED)).add({1})
    allowed.set_raw_streams([b"a stream of the user's"], [])
    with pytest.raises(IncompatibleError, match="'items' is stored as 1:pickled"):
        OperatorStateBackend("op", allowed.sections(), generic_types=False)
    allowed.get_union_list_state(ListStateDescriptor("items", PICKLED)).clear()
    assert OperatorStateBackend("op", allowed.sections(), generic_types=False).raw_operator_streams
