"""Booleans, integers, floating-point numbers, strings and bytes.

Canonical forms: an integer type takes Python and numpy integers, never bool. A floating-point type takes real numbers;
-0.0 becomes 0.0 and every NaN becomes one NaN object, so that such keys meet in hashmap and RocksDB alike. Strings are
valid Unicode (no lone surrogates).
"""

from __future__ import annotations

import math
import operator
import struct
from abc import abstractmethod
from array import array
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from varvite.changelog.types.wire import ImmutableType, PlainType
from varvite.changelog.types.wire_columns import (
    binary_parts,
    boolean_wires,
    float_wires,
    integer_wires,
    joined,
    text_parts,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

NAN: Final = float("nan")
_FLOAT: Final = struct.Struct("<f")
_ARRAY_CODES: Final = {8: "b", 16: "h", 32: "i", 64: "q"}
"""Bits of an integer → code of `array`."""
_OFFSET_MAX: Final = (1 << 31) - 1
"""Bytes that a column of strings may hold."""


def as_integer(value: Any) -> int | None:
    """An int of an int or a numpy integer; None for anything else, bool included."""
    if isinstance(value, (bool, np.bool_)):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def numbers(column: pa.Array[Any]) -> list[Any]:
    """A numeric column as Python numbers."""
    if column.null_count:
        return column.to_pylist()
    return column.to_numpy(zero_copy_only=False).tolist()


class IntegerType(PlainType):
    """Base of the integers of 8 to 64 bits."""

    name: str
    bits: int

    def __init__(self) -> None:
        super().__init__()
        bound = 1 << (self.bits - 1)
        self.canonical_test = f"type({{0}}) is int and {-bound} <= {{0}} < {bound}"

    def notation(self) -> str:
        return self.name

    @property
    def wire_schema(self) -> Any:
        return int

    @property
    def arrow_type(self) -> pa.DataType:
        return {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[self.bits]

    def freeze(self, value: Any) -> int:
        if type(value) is int and value.bit_length() < self.bits:
            return value
        return self._freeze_other(value)

    def _freeze_other(self, value: Any) -> int:
        """Slow path: numpy integers, the smallest number, and everything that is wrong."""
        number = as_integer(value)
        if number is None:
            raise self.reject(value, "an int is needed")
        if not -(1 << (self.bits - 1)) <= number < 1 << (self.bits - 1):
            raise self.reject(value, f"it does not fit into {self.bits} bits")
        return number

    def to_arrow(self, stored: Sequence[Any]) -> pa.Array[Any]:
        try:  # faster than Arrow's converter, above all where the numbers lie scattered in memory
            data = array(_ARRAY_CODES[self.bits], stored)
        except (TypeError, OverflowError):  # null, or an error that Arrow explains better
            return pa.array(stored, self.arrow_type)
        typed: Any = pa.Array
        return typed.from_buffers(self.arrow_type, len(data), [None, pa.py_buffer(data)])

    def from_arrow(self, column: pa.Array[Any]) -> list[Any]:
        return numbers(column)

    def wire_column(self, column: pa.Array[Any]) -> pa.Array[Any]:
        return integer_wires(column)


class ByteType(IntegerType):
    """Integers of 8 bits."""

    name = "byte"
    bits = 8


class ShortType(IntegerType):
    """Integers of 16 bits."""

    name = "short"
    bits = 16


class IntType(IntegerType):
    """Integers of 32 bits."""

    name = "int"
    bits = 32


class LongType(IntegerType):
    """Integers of 64 bits."""

    name = "long"
    bits = 64


class BooleanType(PlainType):
    """True and False."""

    canonical_test = "({0} is True or {0} is False)"

    def notation(self) -> str:
        return "boolean"

    @property
    def wire_schema(self) -> Any:
        return bool

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.bool_()

    def freeze(self, value: Any) -> bool:
        if value is True or value is False:
            return value
        boolean: Any = value
        if isinstance(value, np.bool_):
            return bool(boolean)
        raise self.reject(value, "a bool is needed")

    def to_arrow(self, stored: Sequence[Any]) -> pa.Array[Any]:
        return pa.array(stored, pa.bool_())

    def from_arrow(self, column: pa.Array[Any]) -> list[Any]:
        return column.to_pylist()

    def wire_column(self, column: pa.Array[Any]) -> pa.Array[Any]:
        return boolean_wires(column)


class FloatingType(ImmutableType):
    """Base of DOUBLE and FLOAT."""

    packs_itself = True

    @property
    def wire_schema(self) -> Any:
        return float

    @abstractmethod
    def freeze(self, value: Any) -> float: ...

    def _number(self, value: Any) -> float:
        """Slow path: a float of any real number but bool."""
        number: Any = value
        if not isinstance(value, (float, np.floating)):
            number = as_integer(value)
        if number is None:
            raise self.reject(value, "a float is needed")
        try:
            return float(number)
        except OverflowError:
            raise self.reject(value, "it is too large") from None

    def load(self, plain: float) -> float:
        return plain if plain == plain else NAN  # noqa: PLR0124 - only NaN differs from itself

    def to_arrow(self, stored: Sequence[Any]) -> pa.Array[Any]:
        return pa.array(stored, self.arrow_type, from_pandas=False)

    def from_arrow(self, column: pa.Array[Any]) -> list[Any]:
        values = numbers(column)
        if not column.null_count and not np.isnan(column.to_numpy(zero_copy_only=False)).any():
            return values
        return [NAN if value is not None and value != value else value for value in values]  # noqa: PLR0124

    def wire_column(self, column: pa.Array[Any]) -> pa.Array[Any]:
        return float_wires(column)


class DoubleType(FloatingType):
    """Floating-point numbers of 64 bits."""

    canonical_test = "type({0}) is float and {0} and {0} == {0}"  # zeros may be negative

    def notation(self) -> str:
        return "double"

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.float64()

    def freeze(self, value: Any) -> float:
        if type(value) is not float:
            value = self._number(value)
        if value == value:  # noqa: PLR0124 - only NaN differs from itself
            return value + 0.0
        return NAN


class FloatType(FloatingType):
    """Floating-point numbers that are rounded to 32 bits; Python floats as values."""

    def notation(self) -> str:
        return "float"

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.float32()

    def freeze(self, value: Any) -> float:
        number = value if type(value) is float else self._number(value)
        if math.isnan(number):
            return NAN
        try:
            return _FLOAT.unpack(_FLOAT.pack(number))[0] + 0.0
        except OverflowError:
            raise self.reject(value, "it is too large for 32 bits") from None


class StringType(PlainType):
    """Strings."""

    canonical_test = "type({0}) is str and {0}.isascii()"

    def notation(self) -> str:
        return "string"

    @property
    def wire_schema(self) -> Any:
        return str

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.string()

    def freeze(self, value: Any) -> str:
        if type(value) is str and value.isascii():
            return value
        if not isinstance(value, str):
            raise self.reject(value, "a str is needed")
        text = str.__str__(value)
        try:
            text.encode()
        except UnicodeEncodeError:
            raise self.reject(value, "it holds lone surrogates, which are not valid Unicode") from None
        return text

    def to_arrow(self, stored: Sequence[Any]) -> pa.Array[Any]:
        # Half the time of Arrow's converter, where the strings lie scattered in memory: each is visited once, and a NUL
        # marks its end.
        try:
            joined = "\0".join(stored)
        except TypeError:  # null
            return pa.array(stored, pa.string())
        if not joined.isascii() or len(joined) > _OFFSET_MAX:
            return pa.array(stored, pa.string())
        data = joined.encode()
        ends: Any = np.flatnonzero(np.frombuffer(data, np.uint8) == 0)
        if len(ends) != len(stored) - 1:  # some string has a NUL in it, or there is no string
            return pa.array(stored, pa.string())
        offsets: Any = np.zeros(len(stored) + 1, np.int32)
        offsets[1:-1] = ends - np.arange(len(ends))
        offsets[-1] = len(data) - len(ends)
        typed: Any = pa.StringArray
        return typed.from_buffers(len(stored), pa.py_buffer(offsets), pa.py_buffer(data.translate(None, b"\0")))

    def from_arrow(self, column: pa.Array[Any]) -> list[Any]:
        return column.to_pylist()

    def wire_column(self, column: pa.Array[Any]) -> pa.Array[Any]:
        return joined(self.wire_parts(column))

    def wire_parts(self, column: pa.Array[Any]) -> list[Any]:
        return text_parts(column)


class CharType(StringType):
    """Strings of one character."""

    canonical_test = None

    def notation(self) -> str:
        return "char"

    def freeze(self, value: Any) -> str:
        text = super().freeze(value)
        if len(text) != 1:
            raise self.reject(value, "a str of one character is needed")
        return text


class BinaryType(PlainType):
    """Bytes."""

    canonical_test = "type({0}) is bytes"

    def notation(self) -> str:
        return "binary"

    @property
    def wire_schema(self) -> Any:
        return bytes

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.binary()

    def freeze(self, value: Any) -> bytes:
        if type(value) is bytes:
            return value
        buffer: Any = value
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(buffer)
        raise self.reject(value, "bytes are needed")

    def to_arrow(self, stored: Sequence[Any]) -> pa.Array[Any]:
        return pa.array(stored, pa.binary())

    def from_arrow(self, column: pa.Array[Any]) -> list[Any]:
        return column.to_pylist()

    def wire_column(self, column: pa.Array[Any]) -> pa.Array[Any]:
        return joined(self.wire_parts(column))

    def wire_parts(self, column: pa.Array[Any]) -> list[Any]:
        return binary_parts(column)
