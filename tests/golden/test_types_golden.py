"""Wire forms of version 1 stay what they are, for ever: byte for byte, because keys are compared as bytes.

`python -m tests.golden.test_types_golden` writes the file anew; that is only right while nothing has been released.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from varvite.changelog.row import Row
from varvite.changelog.types.factory import parse_type_string

FILE = Path(__file__).parent / "data" / "types-v1.json"
CASES: list[tuple[str, Any]] = [
    ("1:boolean", True),
    ("1:byte", -128),
    ("1:short", 32767),
    ("1:int", -1),
    ("1:long", 0),
    ("1:long", 127),
    ("1:long", 128),
    ("1:long", -(2**63)),
    ("1:long", 2**63 - 1),
    ("1:float", 0.1),
    ("1:double", -0.0),
    ("1:double", math.nan),
    ("1:double", -math.inf),
    ("1:double", 0.1),
    ("1:string", ""),
    ("1:string", "é" * 20),
    ("1:char", "ж"),
    ("1:binary", b"\x00\xff"),
    ("1:big_int", 0),
    ("1:big_int", -128),
    ("1:big_int", 2**64),
    ("1:decimal(10,2)", Decimal("-1.5")),
    ("1:decimal(38,0)", Decimal(10**37)),
    ("1:big_dec", Decimal("1.50")),
    ("1:big_dec", Decimal("1E+30")),
    ("1:instant", datetime(2013, 1, 1, 5, 17, 0, 1, tzinfo=UTC)),
    ("1:instant", datetime(1969, 12, 31, tzinfo=UTC)),
    ("1:sql_timestamp", datetime(9999, 12, 31, 23, 59, 59, 999999)),  # noqa: DTZ001 - the type takes naive values
    ("1:sql_date", date(1, 1, 1)),
    ("1:sql_time", time(23, 59, 59, 999999)),
    ("1:tuple<long,double>", (1, None)),
    ("1:row<a:string,`b c`:tuple<sql_date>>", ("x", (date(2000, 1, 1),))),
    ("1:row<a:list<int>>", ([1, None],)),
    ("1:list<string>", ["b", "a", None]),
    ("1:object_array<map<string,int>>", [{"b": 1, "a": None}]),
    ("1:basic_array<long>", [1, None]),
    ("1:primitive_array<float>", [0.5]),
    ("1:map<long,string>", {2: "two", -1: "minus", 300: ""}),
    ("1:map<tuple<string,int>,double>", {("b", 1): 1.0, ("a", 2): 2.0, (None, 3): 3.0}),
    ("1:dynamic_key", True),
    ("1:dynamic_key", 1),
    ("1:dynamic_key", 1.0),
    ("1:dynamic_key", -0.0),
    ("1:dynamic_key", "1"),
    ("1:dynamic_key", b"1"),
    ("1:dynamic_key", -(2**70)),
    ("1:dynamic_key", ("a", None, (2**63, math.nan))),
    ("1:dynamic_key", (date(2013, 1, 1), time(1, 2, 3), datetime(2013, 1, 1, 5, 17))),  # noqa: DTZ001 - the wall clock
    ("1:dynamic_key", datetime(2013, 1, 1, 5, 17, 0, 1, tzinfo=UTC)),
    ("1:dynamic_key", timedelta(days=-1, microseconds=1)),
    ("1:dynamic_key", (Decimal("-1.500"), Decimal("0.00"), Decimal("1E+30"), Decimal("-Infinity"))),
    ("1:dynamic_key", Row(id=1, name="a")),
    ("1:dynamic_key", Row(1, Row(None))),
]


def _wires() -> list[dict[str, str]]:
    kinds = [(text, parse_type_string(text), value) for text, value in CASES]
    return [{"type": text, "wire": kind.to_wire(kind.freeze(value)).hex()} for text, kind, value in kinds]


@pytest.mark.parametrize("place", range(len(CASES)), ids=lambda place: f"{place} {CASES[place][0]}")
def test_a_wire_form_is_what_it_was(place: int) -> None:
    golden = json.loads(FILE.read_text())[place]
    text, value = CASES[place]
    kind = parse_type_string(text)
    wire = bytes.fromhex(golden["wire"])
    assert (text, kind.to_wire(kind.freeze(value))) == (golden["type"], wire)
    assert [kind.from_wire(wire)] == [kind.freeze(value)]
    assert kind.type_string() == text


def test_every_golden_wire_form_is_checked() -> None:
    assert len(json.loads(FILE.read_text())) == len(CASES)


if __name__ == "__main__":
    FILE.write_text(json.dumps(_wires(), indent=1) + "\n")
