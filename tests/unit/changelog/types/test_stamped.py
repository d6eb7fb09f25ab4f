"""Values with a time stamp: their forms, and where they may stand."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from varvite.changelog.types.factory import as_type, parse_type_string
from varvite.changelog.types.stamped import STAMP_MIN, StampedType, is_stamped, plain_type_string
from varvite.changelog.working_stores.rocksdb.keys import split_value
from varvite.storage.errors import CorruptDataError, IncompatibleError

VALUES: list[tuple[str, Any]] = [
    ("bigint", 7), ("string", ""), ("array<bigint>", [1, None]), ("a string, b double", ("x", None)),
    ("decimal(10,2)", None),
]  # fmt: skip


@pytest.mark.parametrize(("ddl", "value"), VALUES)
@pytest.mark.parametrize("stamp", [STAMP_MIN, -1, 0, 2**63 - 1])
def test_all_forms_come_back(ddl: str, value: Any, stamp: int) -> None:
    inner = as_type(ddl)
    kind = StampedType(inner)
    stored = (stamp, None if value is None else inner.freeze(value))
    assert kind.freeze(stored) is stored
    assert kind.thaw(stored) is stored
    assert kind.from_wire(kind.to_wire(stored)) == stored
    column = kind.to_arrow([stored, None, stored])
    assert column.type == kind.arrow_type
    assert kind.from_arrow(column) == [stored, None, stored]
    assert kind.from_arrow(column[1:]) == [None, stored]
    assert kind.from_arrow(kind.to_arrow([stored])) == [stored]
    assert [kind.to_wire(one) for one in kind.wire_ready(kind.to_arrow([stored]))] == [kind.to_wire(stored)]
    assert kind.wire_ready(column)[1] is None


def test_the_wire_form_is_what_follows_the_header_of_a_stored_value() -> None:
    kind = StampedType(as_type("bigint"))
    parts = split_value(b"\x83" + kind.to_wire((12, 5)))
    assert parts == (3, 12, as_type("bigint").to_wire(5))
    with pytest.raises(CorruptDataError):
        kind.from_wire(b"1234567")


def test_its_type_string() -> None:
    kind = parse_type_string("1:stamped<row<a:long,`b c`:list<string>>>")
    assert isinstance(kind, StampedType)
    assert kind.type_string() == "1:stamped<row<a:long,`b c`:list<string>>>"
    assert kind == pickle.loads(pickle.dumps(kind))
    assert hash(kind) == hash(parse_type_string(kind.type_string()))
    assert kind != kind.inner
    assert is_stamped(kind.type_string())
    assert not is_stamped(kind.inner.type_string())
    assert (
        plain_type_string(kind.type_string()) == kind.inner.type_string() == plain_type_string("1:" + repr(kind.inner))
    )


@pytest.mark.parametrize(
    "text", ["1:list<stamped<long>>", "1:stamped<stamped<long>>", "1:stamped<long", "1:stamped<long,long>", "1:stamped"]
)
def test_a_stamp_stands_at_the_top_only(text: str) -> None:
    with pytest.raises((CorruptDataError, IncompatibleError)):
        parse_type_string(text)
