"""`StampedType`: values with a time stamp, the stored type of a state with TTL.

Stored form: `(stamp in ms, stored form of the value)`; the value may be None, a null map value. The type occurs only at
the top of a type string (`1:stamped<long>`), and never for keys. Unlike that of other types its wire form is not one
MessagePack value: it is the stamp, 8 bytes big endian, and the value's wire form, as they follow the header of a stored
value (docs/reference/formats/rocksdb.md).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa

from varvite.changelog.types.contract import TypeInformation
from varvite.changelog.types.wire import TYPE_STRING_VERSION, WireType
from varvite.changelog.types.wire_columns import joined, parts_or_else, stamp_wires
from varvite.storage.errors import CorruptDataError, InvariantError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Stamped: TypeAlias = tuple[int, Any]
"""(stamp, stored form of the value)."""

STAMP_MIN: Final = -(1 << 63)
"""Of a value that was written before the state had TTL."""
STAMP_MAX: Final = (1 << 63) - 1
NAME: Final = "stamped"
STAMP: Final = struct.Struct(">q")
_STRUCTS: Final[Any] = pa.StructArray


class StampedType(TypeInformation):
    """Values of another type with a time stamp."""

    immutable = True
    hashable = False

    def __init__(self, inner: WireType) -> None:
        self.inner = inner
        fields = (pa.field("stamp", pa.int64()), pa.field("value", inner.arrow_type))
        self._fields = fields
        self._arrow_type = pa.struct(fields)

    @property
    def arrow_type(self) -> pa.DataType:
        return self._arrow_type

    def type_string(self) -> str:
        return f"{TYPE_STRING_VERSION}:{NAME}<{self.inner.notation()}>"

    def freeze(self, value: Stamped) -> Stamped:
        """The value itself: its stamping has frozen it."""
        return value

    def thaw(self, stored: Stamped) -> Stamped:
        return stored

    def to_wire(self, stored: Stamped) -> bytes:
        stamp, value = stored
        return STAMP.pack(stamp) if value is None else STAMP.pack(stamp) + self.inner.to_wire(value)

    def from_wire(self, data: bytes) -> Stamped:
        if len(data) < STAMP.size:
            raise CorruptDataError("a stored value ends within its time stamp")
        stamp: Any = STAMP.unpack_from(data)[0]
        wire = data[STAMP.size :]
        return stamp, self.inner.from_wire(wire) if wire else None

    def to_arrow(self, stored: Sequence[Any]) -> pa.Array[Any]:
        missing = [row is None for row in stored]
        rows = [(None, None) if row is None else row for row in stored]
        stamps: Any = pa.array([stamp for stamp, _ in rows], pa.int64())
        values: Any = self.inner.to_arrow([value for _, value in rows])
        mask: Any = pa.array(missing, pa.bool_()) if any(missing) else None
        return _STRUCTS.from_arrays([stamps, values], fields=list(self._fields), mask=mask)

    def from_arrow(self, column: pa.Array[Any]) -> list[Any]:
        return self._rows(column, self.inner.from_arrow)

    def wire_ready(self, column: pa.Array[Any]) -> list[Any]:
        return self._rows(column, self.inner.wire_ready)

    def wire_column(self, column: pa.Array[Any]) -> pa.Array[Any]:
        return joined(self.wire_parts(column))  # null where the stamp is

    def wire_parts(self, column: pa.Array[Any]) -> list[Any]:
        struct_column: Any = column
        stamps, values = struct_column.flatten()
        return [stamp_wires(stamps), *parts_or_else(self.inner, values, b"")]

    @staticmethod
    def _rows(column: pa.Array[Any], of_values: Callable[[pa.Array[Any]], list[Any]]) -> list[Any]:
        struct_column: Any = column
        stamps, values = struct_column.flatten()
        rows = list(zip(stamps.to_pylist(), of_values(values), strict=True))
        return [None if row[0] is None else row for row in rows] if stamps.null_count else rows

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StampedType) and self.inner == other.inner

    def __hash__(self) -> int:
        return hash((NAME, self.inner))

    def __repr__(self) -> str:
        return f"{NAME}<{self.inner.notation()}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.inner,)


def plain_type_string(type_string: str) -> str:
    """The type string without the stamp, if there is one."""
    version, _, notation = type_string.partition(":")
    start = f"{NAME}<"
    return f"{version}:{notation[len(start) : -1]}" if notation.startswith(start) else type_string


def unstamped(kind: TypeInformation) -> WireType:
    """The type without the stamp; any other type itself."""
    inner = kind.inner if isinstance(kind, StampedType) else kind
    if not isinstance(inner, WireType):
        raise InvariantError(f"{kind} is no type of stored values")
    return inner


def is_stamped(type_string: str) -> bool:
    """Do values of this type carry a stamp?"""
    return type_string.partition(":")[2].startswith(f"{NAME}<")
