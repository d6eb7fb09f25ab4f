"""The layout of keyed state in RocksDB: keys and values as bytes (docs/reference/formats/rocksdb.md). Pure.

```
cell of a value-like state   key group (2) | state id (2) | wire(key)
entry of a map state         key group (2) | state id (2) | wire(key) | wire(map key)
element of a list state      key group (2) | state id (2) | wire(key) | seq (8) | position (4)
timer                        key group (2) | state id (2) | time (8) | wire(key) | wire(namespace): `timer_form`
metadata                     FF FF | FF FF | name (ASCII)

value                        header (1) | time stamp (8, if bit 7 of the header) | wire(value)
```

Numbers are big endian, so that key groups are contiguous and list elements are in order. No wire form is a prefix of
another, so the entries of one key are exactly the rows that begin with its prefix. Bits 0 to 6 of the header are the
schema version of the value, modulo 128. A value without wire bytes is a null map value: present, but None; timers have
such values.

Metadata sorts after all data, and a store always has some: a scan that runs off the end has met damage (I8).
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

from varvite.changelog.schema.history import VERSION_NUMBER_MAX
from varvite.changelog.types.wire import end_of
from varvite.storage.errors import CorruptDataError, InvariantError

PREFIX_BYTES: Final = 4
KEY_GROUP_END: Final = 0xFFFF
"""Key groups are below this."""
STATE_ID_END: Final = 0xFFFF
"""State ids are below this."""
METADATA: Final = b"\xff\xff\xff\xff"
TIME_STAMPED: Final = 0x80
SEQ_MAX: Final = (1 << 64) - 1
POSITION_MAX: Final = (1 << 32) - 1

_PREFIX: Final = struct.Struct(">HH")
_ELEMENT: Final = struct.Struct(">QI")
_TIME_STAMP: Final = struct.Struct(">q")
ELEMENT_BYTES: Final = _ELEMENT.size

element: Final = _ELEMENT.pack
"""(seq, position) of a list element as the 12 bytes that end its key; position counts from 0 within the batch."""


def prefix(key_group: int, state_id: int) -> bytes:
    """The bytes that begin every row of a state in a key group."""
    if not (0 <= key_group < KEY_GROUP_END and 0 <= state_id < STATE_ID_END):
        raise InvariantError(f"key group {key_group} or state id {state_id} is not in [0, {KEY_GROUP_END})")
    return _PREFIX.pack(key_group, state_id)


def key_group_start(key_group: int) -> bytes:
    """The lowest key that rows of this key group can have; the end (exclusive) of the key group before it."""
    return key_group.to_bytes(2, "big")


def successor(start: bytes) -> bytes:
    """The lowest key above every key that begins with `start`, which is not all FF."""
    head = start.rstrip(b"\xff")
    if not head:
        raise InvariantError("nothing sorts after a key of FF bytes")
    return head[:-1] + bytes((head[-1] + 1,))


def metadata_key(name: str) -> bytes:
    """The key of a metadata record."""
    return METADATA + name.encode("ascii")


class MapRow(NamedTuple):
    """The parts of a map entry's key, wire forms both."""

    key: bytes
    map_key: bytes


def split_map_key(key: bytes) -> MapRow:
    """Cut the key of a map entry. Raises `CorruptDataError` if it does not begin with two wire forms."""
    end = end_of(key, PREFIX_BYTES)
    if end >= len(key):
        raise CorruptDataError(f"the row {key.hex()} of a map state has no map key")
    return MapRow(key[PREFIX_BYTES:end], key[end:])


def version_number(schema_version: int) -> int:
    """The number of a schema version in values; `varvite.changelog.schema.history` keeps those in use distinct."""
    return schema_version & VERSION_NUMBER_MAX


def header(schema_version: int, *, stamped: bool = False) -> bytes:
    """The first byte of values of this schema version, with or without a time stamp after it."""
    number = version_number(schema_version)
    return bytes((number | TIME_STAMPED if stamped else number,))


def value(schema_version: int, wire: bytes, time_stamp_ms: int | None = None) -> bytes:
    """A stored value; an empty `wire` is a null map value."""
    if time_stamp_ms is None:
        return header(schema_version) + wire
    return header(schema_version, stamped=True) + _TIME_STAMP.pack(time_stamp_ms) + wire


class StoredValue(NamedTuple):
    """The parts of a stored value."""

    version_number: int
    time_stamp_ms: int | None
    wire: bytes
    """Empty for a null map value."""


def split_value(data: bytes) -> StoredValue:
    """Cut a stored value. Raises `CorruptDataError` if it is too short."""
    if not data:
        raise CorruptDataError("a stored value has no header byte")
    first = data[0]
    if not first & TIME_STAMPED:
        return StoredValue(first, None, data[1:])
    if len(data) < 1 + _TIME_STAMP.size:
        raise CorruptDataError("a stored value ends within its time stamp")
    stamp: Any = _TIME_STAMP.unpack_from(data, 1)[0]
    return StoredValue(first & VERSION_NUMBER_MAX, stamp, data[1 + _TIME_STAMP.size :])
