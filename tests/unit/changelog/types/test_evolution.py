"""Changes of a value type that keep stored values readable, and the values after them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest

from tests.jobs.plain_rows import as_tuples
from varvite.changelog.types.evolution import Converter, Incompatible, Same, Step, evolve, frozen_defaults
from varvite.changelog.types.text import parse_type_string
from varvite.changelog.types.wire import encode
from varvite.storage.errors import InvalidRequestError


def converted(old: str, new: str, value: Any, defaults: dict[str, Any] | None = None) -> Any:
    """A value of the old type as the user gets it with the new one."""
    before, after = parse_type_string(f"1:{old}"), parse_type_string(f"1:{new}")
    decision = evolve(before, after, Step(frozen_defaults(after, defaults or {})))
    assert isinstance(decision, Converter), decision
    plain = msgspec.msgpack.decode(before.to_wire(before.freeze(value)), type=before.wire_schema)
    return after.thaw(after.from_wire(encode(decision.convert(plain))))


NUMBERS = [
    ("byte", "short", -128, -128),
    ("byte", "int", 7, 7),
    ("short", "long", 300, 300),
    ("int", "long", -(2**31), -(2**31)),
    ("long", "big_int", -(2**63), -(2**63)),
    ("int", "big_dec", 5, Decimal(5)),
    ("byte", "float", -3, -3.0),
    ("short", "float", 32767, 32767.0),
    ("short", "double", 3, 3.0),
    ("int", "double", 2**31 - 1, 2.0**31 - 1),
    ("float", "double", 0.1, 0.10000000149011612),
    ("byte", "decimal(5,2)", -128, Decimal("-128.00")),
    ("short", "decimal(5,0)", 32767, Decimal(32767)),
    ("int", "decimal(12,2)", -(2**31), Decimal("-2147483648.00")),
    ("long", "decimal(19,0)", 2**63 - 1, Decimal(2**63 - 1)),
    ("decimal(5,2)", "decimal(5,2)", Decimal("1.50"), Decimal("1.50")),
    ("decimal(5,2)", "decimal(8,4)", Decimal("-999.99"), Decimal("-999.9900")),
    ("decimal(5,0)", "decimal(7,2)", Decimal(12345), Decimal("12345.00")),
    ("decimal(38,8)", "big_dec", Decimal("0.00000001"), Decimal("0.00000001")),
    ("big_int", "big_dec", 2**100, Decimal(2**100)),
    ("char", "string", "é", "é"),
]


@pytest.mark.parametrize(("old", "new", "value", "expected"), NUMBERS)
def test_a_value_is_widened(old: str, new: str, value: Any, expected: Any) -> None:
    if old == new:
        assert isinstance(evolve(parse_type_string(f"1:{old}"), parse_type_string(f"1:{new}")), Same)
        return
    found = converted(old, new, value)
    assert (type(found), found, str(found)) == (type(expected), expected, str(expected))
    assert as_tuples(converted(f"row<a:{old}>", f"row<a:{new},b:int>", {"a": value})) == (expected, None)
    assert converted(f"list<{old}>", f"list<{new}>", [value, None]) == [expected, None]
    assert converted(f"map<string,{old}>", f"map<string,{new}>", {"k": value, "n": None}) == {"k": expected, "n": None}
    assert converted(f"tuple<string,{old}>", f"tuple<string,{new}>", ("x", value)) == ("x", expected)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("long", "int"), ("int", "short"), ("long", "double"), ("int", "float"), ("long", "float"), ("double", "float"),
        ("float", "long"), ("int", "string"), ("string", "int"), ("string", "char"), ("string", "binary"),
        ("binary", "string"), ("boolean", "int"), ("int", "boolean"), ("sql_date", "sql_timestamp"),
        ("sql_date", "instant"), ("sql_timestamp", "instant"), ("instant", "long"), ("long", "instant"),
        ("byte", "decimal(3,1)"), ("long", "decimal(18,0)"), ("decimal(5,2)", "decimal(6,4)"),
        ("decimal(5,2)", "decimal(5,1)"), ("decimal(5,2)", "double"), ("double", "decimal(10,2)"),
        ("big_dec", "big_int"),
        ("big_int", "long"), ("pickled", "string"), ("row<a:int>", "int"), ("row<a:int>", "tuple<int>"),
        ("tuple<int>", "row<f0:int>"), ("list<int>", "object_array<int>"), ("list<int>", "map<int,int>"),
        ("primitive_array<int>", "list<int>"), ("int", "list<int>"),
    ],
)  # fmt: skip
def test_other_types_are_incompatible(old: str, new: str) -> None:
    for wrap in ("{}", "list<{}>", "map<string,{}>", "tuple<{}>"):
        before, after = (parse_type_string(f"1:{wrap.format(kind)}") for kind in (old, new))
        decision = evolve(before, after)
        assert isinstance(decision, Incompatible)
        assert f"{old} cannot become {new}" in decision.reason


def test_fields_are_matched_by_name() -> None:
    old = "row<id:int,name:string,gone:list<int>,`odd name`:byte>"
    new = "row<`odd name`:short,added:string,name:string,id:long>"
    value = {"id": 1, "name": None, "gone": [1], "odd name": 2}
    assert as_tuples(converted(old, new, value)) == (2, None, None, 1)
    assert as_tuples(converted(old, new, value, {"added": "x"})) == (2, "x", None, 1)
    assert as_tuples(converted("row<a:int,b:int>", "row<b:int>", {"a": 1, "b": 2})) == (2,)
    assert as_tuples(converted("row<a:int,b:int>", "row<b:int,a:int>", {"a": 1, "b": 2})) == (2, 1)


def test_fields_inside_of_rows_lists_maps_and_tuples_are_matched_by_name() -> None:
    old = "row<a:list<map<string,tuple<row<x:int,y:int>>>>>"
    new = "row<a:list<map<string,tuple<row<z:double,y:long>>>>>"
    value = {"a": [{"k": ((1, 2),), "n": (None,)}, None]}
    assert as_tuples(converted(old, new, value)) == ([{"k": ((None, 2),), "n": (None,)}, None],)
    assert as_tuples(converted(old, new, value, {"a.0.z": 0.5})) == ([{"k": ((0.5, 2),), "n": (None,)}, None],)


def test_a_default_may_be_of_any_type_and_belongs_to_each_value() -> None:
    old, new = "row<a:int>", "row<a:int,more:list<row<b:decimal(5,2)>>>"
    defaults = {"more": [{"b": Decimal(1)}]}
    first, second = (converted(old, new, {"a": n}, defaults) for n in (1, 2))
    assert as_tuples((first, second)) == ((1, [(Decimal("1.00"),)]), (2, [(Decimal("1.00"),)]))
    assert first[1] is not second[1]


def test_what_was_added_is_told() -> None:
    decision = evolve(
        parse_type_string("1:row<a:int,in:row<x:int>>"), parse_type_string("1:row<in:row<x:int,y:int>,`b c`:int,a:int>")
    )
    assert isinstance(decision, Converter)
    assert decision.added == ("in.y", "`b c`")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("row<a:int>", "row<b:int>", "row<b:int> has no field of row<a:int>"),
        ("row<a:int,in:row<x:int>>", "row<a:int,in:row<y:int>>", "field in: row<y:int> has no field of row<x:int>"),
        ("row<a:row<b:long>>", "row<a:row<b:int>>", "field a.b: long cannot become int"),
        ("tuple<int,long>", "tuple<int,int>", "field 1: long cannot become int"),
        ("tuple<int>", "tuple<int,int>", "a tuple of 1 fields cannot become one of 2"),
        ("map<int,int>", "map<long,int>", "the keys of a map cannot change from int to long"),
        ("row<m:map<int,int>>", "row<m:map<string,int>>", "field m: the keys of a map cannot change"),
        ("list<row<a:long>>", "list<row<a:int>>", "field a: long cannot become int"),
    ],
)
def test_the_reason_says_where(old: str, new: str, reason: str) -> None:
    decision = evolve(parse_type_string(f"1:{old}"), parse_type_string(f"1:{new}"))
    assert isinstance(decision, Incompatible)
    assert reason in decision.reason


@pytest.mark.parametrize(
    ("kind", "path", "value", "message"),
    [
        ("row<a:int>", "b", 1, r"has no field 'b'; it has \['a'\]"),
        ("row<a:int>", "a", "x", "default of field a: 'x'"),
        ("long", "a", 1, "has no field 'a'"),
        ("row<a:list<row<b:int>>>", "b", 1, r"\['a', 'a.b'\]"),
    ],
)
def test_a_default_that_does_not_fit_is_refused(kind: str, path: str, value: Any, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        frozen_defaults(parse_type_string(f"1:{kind}"), {path: value})


def test_a_null_default_is_none() -> None:
    assert frozen_defaults(parse_type_string("1:row<a:int>"), {"a": None}) == {}
