"""Ranges, conversions and refusals of the basic types."""

from __future__ import annotations

import enum
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from varvite.changelog.types.basic import NAN
from varvite.changelog.types.factory import Types, as_type
from varvite.storage.errors import InvalidRequestError


@pytest.mark.parametrize(("kind", "bits"), [("tinyint", 8), ("smallint", 16), ("int", 32), ("bigint", 64)])
def test_integers_have_the_range_of_their_bits(kind: str, bits: int) -> None:
    type_ = as_type(kind)
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    assert [type_.freeze(low), type_.freeze(high)] == [low, high]
    for outside in (low - 1, high + 1):
        with pytest.raises(InvalidRequestError, match=f"{bits} bits"):
            type_.freeze(outside)


@pytest.mark.parametrize("number", [np.int8(5), np.uint64(5), np.int64(5)])
def test_numpy_integers_become_ints(number: Any) -> None:
    assert type(Types.LONG().freeze(number)) is int
    assert type(Types.BIG_INT().freeze(number)) is int
    assert Types.DOUBLE().freeze(number) == 5.0


@pytest.mark.parametrize("wrong", [True, np.bool_(True), 1.0, "1", None, np.array([1]), np.array([1, 2]), object()])
def test_what_is_no_int_is_refused(wrong: Any) -> None:
    for kind in (Types.LONG(), Types.BIG_INT()):
        with pytest.raises(InvalidRequestError, match="an int is needed"):
            kind.freeze(wrong)


@pytest.mark.parametrize("kind", [Types.DOUBLE(), Types.FLOAT()])
def test_zeros_are_one_zero_and_nans_are_one_nan(kind: Any) -> None:
    assert math.copysign(1, kind.freeze(-0.0)) == 1.0
    for nan in (math.nan, float("-nan"), np.float64("nan"), np.float32("nan")):
        assert kind.freeze(nan) is NAN
    wire = kind.to_wire(NAN)
    assert kind.from_wire(wire) is NAN
    assert kind.from_arrow(kind.to_arrow([1.5, math.nan]))[1] is NAN
    assert kind.from_arrow(kind.to_arrow([1.5, None, math.nan]))[2] is NAN
    pair = Types.TUPLE([kind, "string"])
    assert pair.from_wire(pair.to_wire((NAN, "x")))[0] is NAN
    both = Types.TUPLE([kind, "date"])
    assert both.from_wire(both.to_wire((NAN, None)))[0] is NAN


@pytest.mark.parametrize(
    "strings",
    [
        [],
        [""],
        ["", "", ""],
        ["a", "", "bcd"],
        ["", "a", ""],
        ["a", "straße", "\U0001f40d"],
        [None, "a", None],
        ["x" * 5000, "y"],
        ["\0"],
        ["a\0b", "c"],
        ["", "\0", "a\0"],
    ],
)
def test_strings_become_the_column_that_arrow_makes_of_them(strings: list[str | None]) -> None:
    column = Types.STRING().to_arrow(strings)
    column.validate(full=True)
    assert column == pa.array(strings, pa.string())
    assert Types.STRING().from_arrow(column) == strings


def test_float_is_rounded_to_32_bits() -> None:
    assert Types.FLOAT().freeze(0.1) == float(np.float32(0.1))
    assert Types.FLOAT().freeze(math.inf) == math.inf
    with pytest.raises(InvalidRequestError, match="32 bits"):
        Types.FLOAT().freeze(1e39)


@pytest.mark.parametrize("kind", [Types.DOUBLE(), Types.FLOAT()])
def test_an_int_becomes_a_float(kind: Any) -> None:
    assert (type(kind.freeze(1)), kind.freeze(1)) == (float, 1.0)


@pytest.mark.parametrize("wrong", [True, "1.0", None, 10**400, 1j])
def test_what_is_no_float_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidRequestError):
        Types.DOUBLE().freeze(wrong)


def test_numpy_floats_become_floats() -> None:
    assert type(Types.DOUBLE().freeze(np.float32(0.5))) is float
    assert type(Types.DOUBLE().freeze(np.float64(0.5))) is float


def test_booleans_are_booleans_only() -> None:
    assert Types.BOOLEAN().freeze(np.bool_(False)) is False
    for wrong in (0, 1, "true", None):
        with pytest.raises(InvalidRequestError, match="a bool is needed"):
            Types.BOOLEAN().freeze(wrong)


class Color(enum.StrEnum):
    RED = "red"


def test_strings_of_other_classes_become_str() -> None:
    for text in (Color.RED, np.str_("red")):
        assert Types.STRING().freeze(text) == "red"
        assert type(Types.STRING().freeze(text)) is str


@pytest.mark.parametrize("wrong", [b"x", 1, None, "\ud800", "a\udfffb"])
def test_what_is_no_text_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidRequestError):
        Types.STRING().freeze(wrong)


def test_a_char_is_one_character() -> None:
    assert Types.CHAR().freeze("é") == "é"
    for wrong in ("", "ab"):
        with pytest.raises(InvalidRequestError, match="one character"):
            Types.CHAR().freeze(wrong)


def test_binary_takes_every_buffer_of_bytes() -> None:
    given = bytearray(b"ab")
    stored = Types.BINARY().freeze(given)
    given[0] = 0
    assert stored == Types.BINARY().freeze(memoryview(b"ab")) == b"ab"
    with pytest.raises(InvalidRequestError):
        Types.BINARY().freeze("ab")


def test_the_error_names_the_type_and_shortens_the_value() -> None:
    with pytest.raises(InvalidRequestError) as raised:
        Types.LONG().freeze("x" * 1000)
    assert "of type str" in raised.value.message
    assert "type long" in raised.value.message
    assert len(raised.value.message) < 250
