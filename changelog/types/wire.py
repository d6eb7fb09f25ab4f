"""`WireType`: the base of all types of varvite, immutable and mutable ones.

A subclass converts a value to its *plain* form (the input of MessagePack) and back; this module makes the four forms of
`TypeInformation` from that. An immutable type keeps the canonical Python object as its stored form, a mutable
one keeps the wire bytes. Inside composites every element may be None, which is MessagePack's nil.

Canonical: for hashable types equal values have equal wire bytes, whatever process or store made them (I5). MessagePack
is self-delimiting, so no wire form is a prefix of another.
"""

from __future__ import annotations

import reprlib
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from varvite.changelog.types.contract import TypeInformation
from varvite.storage.errors import CorruptDataError, InvalidRequestError
from varvite.storage.format.frame import UNPARSABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

TYPE_STRING_VERSION: Final = 1
_SHORT_REPR: Final = reprlib.Repr()
_SHORT_REPR.maxstring = _SHORT_REPR.maxother = 80

encode: Final = msgspec.msgpack.Encoder().encode
NIL: Final = b"\xc0"
"""Wire form of None."""


class WireType(TypeInformation):
    """A type with a plain form. Subclasses are `ImmutableType` and `MutableType`."""

    packs_itself: bool = False
    """True: the stored form is the plain form."""
    loads_itself: bool = False
    """True: the plain form, once decoded, is the value."""

    @abstractmethod
    def notation(self) -> str:
        """The type string without its version."""

    @property
    @abstractmethod
    def wire_schema(self) -> Any:
        """Annotation from which msgspec makes the decoder of the plain form."""

    @abstractmethod
    def dump(self, value: Any) -> Any:
        """Plain form of a user's value (not None). Raises `InvalidRequestError`."""

    @abstractmethod
    def load(self, plain: Any) -> Any:
        """The user's value of a decoded plain form (not None); fresh if mutable."""

    def load_all(self, plain: Sequence[Any]) -> list[Any]:
        """The users' values of many decoded plain forms."""
        return [self.load(value) for value in plain]

    @abstractmethod
    def arguments(self) -> tuple[Any, ...]:
        """Constructor arguments that make an equal type."""

    def type_string(self) -> str:
        return f"{TYPE_STRING_VERSION}:{self.notation()}"

    def reject(self, value: Any, why: str) -> InvalidRequestError:
        """The error for a value that is not of this type."""
        kind = type(value).__name__
        return InvalidRequestError(
            f"{_SHORT_REPR.repr(value)} (of type {kind}) is not a value of type {self.notation()}: {why}"
        )

    def corrupt(self, error: Exception) -> CorruptDataError:
        """The error for bytes that are not a wire form of this type."""
        return CorruptDataError(f"stored bytes are not a value of type {self.notation()}: {error}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WireType) and self.notation() == other.notation()

    def __hash__(self) -> int:
        return hash(self.notation())

    def __repr__(self) -> str:
        return self.notation()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.arguments()


class ImmutableType(WireType):
    """A type whose canonical values are kept as they are."""

    immutable = True
    hashable = True
    canonical_test: str | None = None
    """An expression that is true only if the value `{0}` is canonical (`canonical_freezer`); None: there is none."""

    def __init__(self) -> None:
        self._decode = msgspec.msgpack.Decoder(self.wire_schema).decode

    def arguments(self) -> tuple[Any, ...]:
        return ()

    def pack(self, stored: Any) -> Any:
        """Plain form of a stored form."""
        return stored

    def dump(self, value: Any) -> Any:
        return self.pack(self.freeze(value))

    def load(self, plain: Any) -> Any:
        return plain

    def thaw(self, stored: Any) -> Any:
        return stored

    def to_wire(self, stored: Any) -> bytes:
        return encode(self.pack(stored))

    def from_wire(self, data: bytes) -> Any:
        try:
            return self.load(self._decode(data))
        except UNPARSABLE as error:
            raise self.corrupt(error) from error


class PlainType(ImmutableType):
    """An immutable type whose values are their own MessagePack form."""

    packs_itself = True
    loads_itself = True

    def to_wire(self, stored: Any) -> bytes:
        return encode(stored)

    def from_wire(self, data: bytes) -> Any:
        try:
            return self._decode(data)
        except UNPARSABLE as error:
            raise self.corrupt(error) from error


class MutableType(WireType):
    """A type whose values are kept as wire bytes, so that changing an object never changes state."""

    immutable = False
    hashable = False

    def __init__(self) -> None:
        self._decode = msgspec.msgpack.Decoder(self.wire_schema).decode

    def arguments(self) -> tuple[Any, ...]:
        return ()

    def freeze(self, value: Any) -> bytes:
        return encode(self.dump(value))

    def thaw(self, stored: bytes) -> Any:
        try:
            return self.load(self._decode(stored))
        except UNPARSABLE as error:
            raise self.corrupt(error) from error

    def to_wire(self, stored: bytes) -> bytes:
        return stored

    def from_wire(self, data: bytes) -> bytes:
        return data

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.binary()

    def to_arrow(self, stored: Sequence[Any]) -> pa.Array[Any]:
        return pa.array(stored, self.arrow_type)

    def from_arrow(self, column: pa.Array[Any]) -> list[Any]:
        return column.to_pylist()

    def wire_column(self, column: pa.Array[Any]) -> pa.Array[Any]:
        return column


class _Head(NamedTuple):
    """The parts of a MessagePack value after its first byte, as that byte tells.

    A number of `number_bytes`; `payload_bytes` plus number times `bytes_each` bytes; `values` plus number times
    `values_each` values.
    """

    number_bytes: int = 0
    payload_bytes: int = 0
    bytes_each: int = 0
    values: int = 0
    values_each: int = 0


_HEADS: Final[dict[int, _Head]] = {
    **{first: _Head() for first in (*range(0x80), *range(0xE0, 0x100), 0xC0, 0xC2, 0xC3)},  # small ints, nil, bools
    **{0x80 + n: _Head(values=2 * n) for n in range(16)},  # fixmap
    **{0x90 + n: _Head(values=n) for n in range(16)},  # fixarray
    **{0xA0 + n: _Head(payload_bytes=n) for n in range(32)},  # fixstr
    **{first: _Head(number_bytes=n, bytes_each=1) for first, n in ((0xC4, 1), (0xC5, 2), (0xC6, 4))},  # bin
    **{first: _Head(number_bytes=n, bytes_each=1) for first, n in ((0xD9, 1), (0xDA, 2), (0xDB, 4))},  # str
    # ext: the type byte follows the length.
    **{first: _Head(number_bytes=n, payload_bytes=1, bytes_each=1) for first, n in ((0xC7, 1), (0xC8, 2), (0xC9, 4))},
    **{first: _Head(payload_bytes=n) for first, n in ((0xCA, 4), (0xCB, 8))},  # float
    **{first: _Head(payload_bytes=1 << i) for i, first in enumerate((0xCC, 0xCD, 0xCE, 0xCF))},  # uint
    **{first: _Head(payload_bytes=1 << i) for i, first in enumerate((0xD0, 0xD1, 0xD2, 0xD3))},  # int
    **{0xD4 + i: _Head(payload_bytes=1 + (1 << i)) for i in range(5)},  # fixext
    **{first: _Head(number_bytes=n, values_each=1) for first, n in ((0xDC, 2), (0xDD, 4))},  # array
    **{first: _Head(number_bytes=n, values_each=2) for first, n in ((0xDE, 2), (0xDF, 4))},  # map
}


def end_of(data: bytes, start: int) -> int:
    """The offset just after the MessagePack value that begins at `start`; nothing is decoded.

    It splits rows of timers and map entries, whose keys are wire forms one after the other: msgspec decodes whole
    buffers only. It costs some 50 lines, and 0.6 µs for a string, 2 µs for a tuple of two numbers.

    Raises `CorruptDataError` if there is no whole value.
    """
    pending, at = 1, start
    while pending:
        head = _HEADS.get(data[at]) if at < len(data) else None
        if head is None:
            raise CorruptDataError(f"not a whole MessagePack value: {data[start:].hex()}")
        number = int.from_bytes(data[at + 1 : at + 1 + head.number_bytes], "big")
        at += 1 + head.number_bytes + head.payload_bytes + number * head.bytes_each
        pending += head.values + number * head.values_each - 1
    if at > len(data):
        raise CorruptDataError(f"a MessagePack value is cut off: {data[start:].hex()}")
    return at
