"""Wire form of keys: that of their type, and MessagePack's nil for the null key, which is a key like any other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from varvite.changelog.types.wire import NIL, PlainType
from varvite.changelog.types.wire_columns import bulk_reader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from varvite.changelog.types.contract import TypeInformation


def key_writer(key_type: TypeInformation) -> Callable[[Any], bytes]:
    """A function from the stored form of a key, or None, to its wire form."""
    to_wire = key_type.to_wire
    if isinstance(key_type, PlainType):
        return to_wire  # it writes None as nil by itself
    return lambda key: NIL if key is None else to_wire(key)


def key_reader(key_type: TypeInformation) -> Callable[[bytes], Any]:
    """A function from the wire form of a key to its stored form; raises `CorruptDataError`."""
    from_wire = key_type.from_wire
    return lambda data: None if data == NIL else from_wire(data)


def keys_reader(key_type: TypeInformation) -> Callable[[Sequence[bytes]], list[Any]]:
    """The same for many keys at once; raises `CorruptDataError`."""
    read, read_all = key_reader(key_type), bulk_reader(key_type)
    return lambda wires: [read(wire) for wire in wires] if NIL in wires else read_all(wires)
