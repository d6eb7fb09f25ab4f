"""Values that composites and collections take, refuse and give back."""

from __future__ import annotations

import sys
from array import array
from collections import OrderedDict, deque
from typing import Any

import numpy as np
import pytest
from pyspark.sql import Row as SparkRow

from varvite.changelog.row import Row
from varvite.changelog.types.factory import Types, as_type
from varvite.storage.errors import CorruptDataError, IncompatibleError, InvalidRequestError

PERSON = Types.ROW_NAMED(["name", "age"], ["string", "int"])


@pytest.mark.parametrize(
    "given",
    [
        Row(name="Ann", age=5), Row(age=5, name="Ann"), Row("Ann", 5), ("Ann", 5), ["Ann", 5],
        {"age": 5, "name": "Ann"}, SparkRow(name="Ann", age=5), SparkRow("Ann", 5),
    ],
    ids=["in order", "other order", "no names", "tuple", "list", "dict", "Spark", "Spark without names"],
)  # fmt: skip
def test_a_row_is_taken_in_many_forms(given: Any) -> None:
    stored = PERSON.freeze(given)
    assert (stored, stored.name, stored["age"]) == (Row(name="Ann", age=5), "Ann", 5)


@pytest.mark.parametrize(
    "wrong", [Row(name="Ann"), Row(name="Ann", size=5), {"name": "Ann"}, {"name": "A", "age": 1, "x": 2}, "Ann", 5, ()],
    ids=repr,
)  # fmt: skip
def test_other_rows_are_refused(wrong: Any) -> None:
    with pytest.raises(InvalidRequestError):
        PERSON.freeze(wrong)


def test_the_error_names_the_field() -> None:
    with pytest.raises(InvalidRequestError, match="field age of row<name:string,age:int>"):
        PERSON.freeze(("Ann", 2**31))
    with pytest.raises(InvalidRequestError, match=r"field f1 .* field f0 of tuple<int>"):
        Types.TUPLE(["string", Types.TUPLE(["int"])]).freeze(("a", ("b",)))
    with pytest.raises(InvalidRequestError, match="element of list<int>"):
        Types.ROW([Types.LIST("int")]).freeze(([1, "2"],))


@pytest.mark.parametrize("arity", [1, 2, 3, 4, 7])
def test_composites_of_every_size(arity: int) -> None:
    kind = Types.TUPLE([Types.LONG()] * arity)
    stored = kind.freeze(tuple(range(arity)))
    assert stored == kind.from_wire(kind.to_wire(stored)) == tuple(range(arity))
    assert kind.freeze([None] * arity) == (None,) * arity
    with pytest.raises(InvalidRequestError):
        kind.freeze(tuple(range(arity + 1)))
    with pytest.raises(InvalidRequestError, match=f"field f{arity - 1}"):
        kind.freeze((*range(arity - 1), "x"))


def test_null_rows_are_not_rows_of_nulls() -> None:
    for kind in (Types.TUPLE(["int", "string"]), PERSON):
        stored = [kind.freeze((None, None)), None, kind.freeze(("x", 5) if kind is PERSON else (5, "x"))]
        assert kind.from_arrow(kind.to_arrow(stored)) == stored


def test_a_value_with_a_field_too_few_has_no_column() -> None:
    """`freeze` lets none pass; columns that are made across the rows would silently mix their fields."""
    with pytest.raises(ValueError, match="2 fields"):
        as_type(Types.TUPLE([Types.LONG(), Types.LONG()])).to_arrow([(1, 2), (3,), (4, 5)])


def test_a_composite_is_as_mutable_as_its_parts() -> None:
    inner = Types.TUPLE(["string", "date"])
    assert (inner.immutable, inner.hashable) == (True, True)
    outer = Types.ROW([inner, Types.LIST("int")])
    assert (outer.immutable, outer.hashable) == (False, False)
    given = [1]
    stored = outer.freeze((("a", None), given))
    given.append(2)
    assert tuple(outer.thaw(stored)) == (("a", None), [1])
    assert outer.thaw(stored).f1 == [1]
    assert (Types.TUPLE([Types.BIG_DEC()]).immutable, Types.TUPLE([Types.BIG_DEC()]).hashable) == (True, False)


@pytest.mark.parametrize(
    ("names", "types"),
    [([], []), (["a", "a"], ["int", "int"]), (["a"], ["int", "int"])],
    ids=["none", "twice", "count"],
)
def test_impossible_rows_are_refused(names: list[str], types: list[str]) -> None:
    with pytest.raises(InvalidRequestError):
        Types.ROW_NAMED(names, types)


@pytest.mark.parametrize(
    "given",
    [[1, 2], (1, 2), array("i", [1, 2]), np.array([1, 2]), deque([1, 2]), range(1, 3)],
    ids=["list", "tuple", "array", "numpy", "deque", "range"],
)  # fmt: skip
def test_lists_are_taken_from_every_sequence(given: Any) -> None:
    for kind in (Types.LIST("int"), Types.PRIMITIVE_ARRAY("int"), Types.BASIC_ARRAY("int"), Types.OBJECT_ARRAY("int")):
        assert kind.thaw(kind.freeze(given)) == [1, 2]


@pytest.mark.parametrize("wrong", ["12", b"12", {1: 2}, {1, 2}, 5, None, np.float64(1), iter([1])], ids=type)
def test_what_is_no_sequence_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidRequestError):
        Types.LIST("int").freeze(wrong)


def test_only_primitive_arrays_refuse_none() -> None:
    for kind in (Types.LIST("int"), Types.BASIC_ARRAY("int"), Types.OBJECT_ARRAY("int")):
        assert kind.thaw(kind.freeze([None, 1])) == [None, 1]
    with pytest.raises(InvalidRequestError):
        Types.PRIMITIVE_ARRAY("int").freeze([None, 1])


def test_arrays_have_the_element_types_of_pyflink() -> None:
    assert Types.PRIMITIVE_ARRAY(Types.BYTE()) == Types.BINARY()
    for wrong in (Types.STRING(), Types.BIG_INT(), Types.LIST("int")):
        with pytest.raises(TypeError, match="primitive array"):
            Types.PRIMITIVE_ARRAY(wrong)
    for wrong in (Types.BIG_INT(), Types.LIST("int")):
        with pytest.raises(TypeError, match="boxed primitive array"):
            Types.BASIC_ARRAY(wrong)


def test_maps_are_taken_from_every_mapping() -> None:
    kind = Types.MAP("string", "int")
    assert kind.thaw(kind.freeze(OrderedDict(b=None, a=1))) == {"a": 1, "b": None}
    for wrong in ([("a", 1)], {None: 1}, {1: 1}, {"a": "x"}, "ab"):
        with pytest.raises(InvalidRequestError):
            kind.freeze(wrong)


def test_map_keys_are_canonical() -> None:
    kind = Types.MAP(Types.TUPLE(["double", "string"]), "int")
    assert kind.freeze({(0.0, None): 1, (1.0, "a"): 2}) == kind.freeze({(1.0, "a"): 2, (-0.0, None): 1})
    for wrong in (Types.LIST("int"), Types.MAP("int", "int"), Types.PICKLED_BYTE_ARRAY(), Types.BIG_DEC()):
        with pytest.raises(InvalidRequestError, match="cannot be the key type"):
            Types.MAP(wrong, "int")


class Point:
    """Importable, so pickle is enough."""

    def __init__(self, x: int) -> None:
        self.x = x


def test_pickled_objects_come_back() -> None:
    kind = Types.PICKLED_BYTE_ARRAY()
    stored = kind.freeze(Point(5))
    assert kind.thaw(stored).x == 5
    assert kind.thaw(stored) is not kind.thaw(stored)


def test_objects_of_local_classes_are_pickled_with_their_class() -> None:
    class Local:
        x = 7

    kind = Types.PICKLED_BYTE_ARRAY()
    assert kind.thaw(kind.freeze(Local())).x == 7


def test_objects_of_a_script_are_pickled_with_their_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has another `__main__`, where the class is not."""

    class Script:
        x = 8

    Script.__module__, Script.__qualname__ = "__main__", "Script"
    main = sys.modules["__main__"]
    kind = Types.PICKLED_BYTE_ARRAY()
    monkeypatch.setattr(main, "Script", Script, raising=False)
    stored = kind.freeze([Script()])
    monkeypatch.delattr(main, "Script")
    assert kind.thaw(stored)[0].x == 8


def test_what_cannot_be_pickled_or_loaded_is_an_error() -> None:
    kind = Types.PICKLED_BYTE_ARRAY()
    with pytest.raises(InvalidRequestError, match="cannot be pickled"):
        kind.freeze(iter(x for x in ()))
    with pytest.raises(InvalidRequestError):
        kind.freeze(None)
    unknown = b"\xc4\x0bcno_such\nX\n"
    with pytest.raises(IncompatibleError, match="cannot be loaded"):
        kind.thaw(unknown)
    with pytest.raises(CorruptDataError):
        kind.thaw(b"\x05")


def test_types_are_taken_in_every_form_as_parts() -> None:
    assert Types.TUPLE(["bigint", Types.LONG, Types.LONG()]) == as_type(Types.TUPLE([Types.LONG()] * 3))
