"""Many wire forms of one type at once: one call of the decoder instead of one per value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from varve.changelog.types.wire import WireType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from varve.changelog.types.contract import TypeInformation


def bulk_reader(value_type: TypeInformation) -> Callable[[Sequence[bytes]], list[Any]]:
    """A function from wire forms to stored forms, in order; raises `CorruptDataError` as `from_wire` does."""
    from_wire = value_type.from_wire
    if not value_type.immutable:
        return list  # the wire form is the stored form
    if not isinstance(value_type, WireType):
        return lambda wires: [from_wire(wire) for wire in wires]
    load_all, decode = value_type.load_all, msgspec.msgpack.Decoder(list[value_type.wire_schema]).decode
    as_is = value_type.loads_itself

    def read(wires: Sequence[bytes]) -> list[Any]:
        # Wire forms delimit themselves: one after the other, after the head of an array, they are an array.
        array = b"".join([b"\xdd", len(wires).to_bytes(4, "big"), *wires])
        try:
            plain: list[Any] = decode(array)
            return plain if as_is else load_all(plain)
        except (msgspec.MsgspecError, ValueError, OverflowError, ArithmeticError) as error:
            raise value_type.corrupt(error) from error

    return read
