"""State descriptors have PyFlink's names, signatures and errors."""

from __future__ import annotations

from typing import Any

import pytest

from varvite.changelog.api.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
    schema_of,
)
from varvite.changelog.api.functions import AggregateFunction, ReduceFunction
from varvite.changelog.types.factory import Types
from varvite.storage.errors import InvalidRequestError
from varvite.storage.format.records import StateSchema


class Count(AggregateFunction[Any, int, str]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> str:
        return str(accumulator)

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


def test_descriptors_know_their_types() -> None:
    assert ValueStateDescriptor("v", "bigint").type_info == Types.LONG()
    assert ListStateDescriptor("l", "bigint").type_info == Types.LIST("bigint")
    assert MapStateDescriptor("m", "string", "bigint").type_info == Types.MAP("string", "bigint")
    assert ReducingStateDescriptor("r", max, Types.LONG()).type_info == Types.LONG()
    assert AggregatingStateDescriptor("a", Count(), "int").type_info == Types.INT()
    assert ValueStateDescriptor("v", "bigint").get_name() == "v"


@pytest.mark.parametrize(
    ("descriptor", "schema"),
    [
        (ValueStateDescriptor("v", "a int"), StateSchema(name="v", kind="value", value_type="1:row<a:int>")),
        (ListStateDescriptor("l", "bigint"), StateSchema(name="l", kind="list", value_type="1:long")),
        (
            MapStateDescriptor("m", "string", Types.LIST("int")),
            StateSchema(name="m", kind="map", value_type="1:list<int>", map_key_type="1:string"),
        ),
        (ReducingStateDescriptor("r", max, "int"), StateSchema(name="r", kind="reducing", value_type="1:int")),
        (
            AggregatingStateDescriptor("a", Count(), "int"),
            StateSchema(name="a", kind="aggregating", value_type="1:int"),
        ),
    ],
    ids=["value", "list", "map", "reducing", "aggregating"],
)
def test_schemas_say_all_that_replay_needs(descriptor: StateDescriptor, schema: StateSchema) -> None:
    assert schema_of(descriptor) == schema


def test_a_reduce_function_may_be_a_callable() -> None:
    assert ReducingStateDescriptor("r", lambda a, b: a - b, "int").get_reduce_function().reduce(5, 3) == 2
    function = ReducingStateDescriptor("r", max, "int").get_reduce_function()
    assert isinstance(function, ReduceFunction)
    assert ReducingStateDescriptor("r", function, "int").get_reduce_function() is function


def test_other_functions_are_refused_as_in_pyflink() -> None:
    with pytest.raises(TypeError, match="The input must be a ReduceFunction or a callable function!"):
        ReducingStateDescriptor("r", 5, "int")
    for wrong in (lambda: None, Count, max):
        with pytest.raises(TypeError, match="The input must be an AggregateFunction!"):
            AggregatingStateDescriptor("a", wrong, "int")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", None, 5])
def test_a_state_needs_a_name(name: Any) -> None:
    with pytest.raises(InvalidRequestError):
        ValueStateDescriptor(name, "int")


def test_map_keys_must_be_hashable() -> None:
    with pytest.raises(InvalidRequestError):
        MapStateDescriptor("m", Types.LIST("int"), "int")
