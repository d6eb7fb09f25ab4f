"""Stateful operators are made from nodes alone, without streams or an environment."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import types as t

from varvite.changelog.types.factory import Types, as_type
from varvite.spark_integration.elements.types import RowElements, pickled_elements
from varvite.spark_integration.functions.connected import CoMapFunction, KeyedCoMap
from varvite.spark_integration.functions.keyed import KeyedProcessFunction
from varvite.spark_integration.messages.protocol import KEY_COLUMN
from varvite.spark_integration.plan.keyed import connected_operator, keyed_operator, set_uid, stream_key
from varvite.spark_integration.plan.transformations import DataFrameSource, GraphSettings
from varvite.storage.errors import InvalidRequestError

ROWS = RowElements(t.StructType([t.StructField("k", t.StringType()), t.StructField("x", t.DoubleType())]))
ANY = pickled_elements()


class Function(KeyedProcessFunction[Any, Any, Any]):
    """Yields nothing."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        return None


class Both(CoMapFunction[Any, Any, Any]):
    """Elements as they are."""

    def map1(self, value: Any) -> Any:
        return value

    def map2(self, value: Any) -> Any:
        return value


def source() -> DataFrameSource:
    frame: Any = None
    return DataFrameSource(elements=ROWS, dataframe=frame, event_time=None)


def test_keys_of_columns_and_of_functions() -> None:
    columns = stream_key(source(), ("k",))
    assert (columns.columns, columns.function, columns.key_type) == (("k",), None, as_type(Types.STRING()))
    typed = stream_key(source(), (lambda row: len(row.k), Types.LONG()))
    assert typed.columns == (KEY_COLUMN,)
    assert typed.function is not None
    for key, key_type, problem in (
        (("x",), None, "cannot be a key"),
        (("k",), Types.LONG(), "columns have their own types"),
        ((3,), None, "names of columns or a function"),
    ):
        with pytest.raises(InvalidRequestError, match=problem):
            stream_key(source(), key, key_type)


def test_an_operator_has_the_key_of_its_input() -> None:
    before = source()
    key = stream_key(before, (lambda row: len(row.k), Types.LONG()))
    node = keyed_operator(before, key, "process", Function(), ANY)
    assert (node.kind, node.inputs, node.key) == ("process", (before,), key.function)
    assert node.plan.key_columns == (KEY_COLUMN,)
    assert node.plan.key_type == key.key_type.type_string()


def test_connected_streams_need_keys_of_one_type() -> None:
    inputs = source(), source()
    strings, longs = stream_key(inputs[0], ("k",)), stream_key(inputs[1], (len, Types.LONG()))
    node = connected_operator(inputs, (strings, strings), "co_map", KeyedCoMap(Both()), ANY, None)
    assert node.connected == (strings, strings)
    assert not node.plan.has_timers
    with pytest.raises(InvalidRequestError, match="different types"):
        connected_operator(inputs, (strings, longs), "co_map", KeyedCoMap(Both()), ANY, None)
    with pytest.raises(InvalidRequestError, match="has keys and the other has none"):
        connected_operator(inputs, (strings, None), "co_map", KeyedCoMap(Both()), ANY, None)


def test_a_uid_that_is_taken_is_not_set() -> None:
    settings, before = GraphSettings(), source()
    first = keyed_operator(before, stream_key(before, ("k",)), "process", Function(), ROWS, uid="a")
    second = keyed_operator(first, stream_key(first, ("k",)), "process", Function(), ROWS, uid="b")
    set_uid(settings, first, "a")
    with pytest.raises(InvalidRequestError, match="two operators have the uid 'a'"):
        set_uid(settings, second, "a")
    assert settings.of(second).uid is None
    set_uid(settings, second, "b")
    assert settings.of(second).uid == "b"
