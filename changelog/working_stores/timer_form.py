"""One timer as bytes: its order, its name and its stored form (docs/reference/formats/rocksdb.md). Pure.

```
timer   time (8, big endian, sign flipped) | wire(key) | wire(namespace), nothing if the state has no namespaces
```

The order of these bytes is the order in which timers fire: by time, then by key and namespace, so that it depends
neither on the backend nor on the order of registration (I5). Equal timers have equal bytes.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from varvite.changelog.types.key_wire import key_reader, key_writer
from varvite.changelog.types.wire import end_of
from varvite.storage.errors import CorruptDataError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from varvite.changelog.types.contract import TypeInformation

TIME_MIN_MS: Final = -(1 << 63)
TIME_MAX_MS: Final = (1 << 63) - 1
"""Inclusive, as Flink's."""
_TIME: Final = struct.Struct(">Q")
_SIGN: Final = 1 << 63
TIME_BYTES: Final = _TIME.size


class Timer(NamedTuple):
    """The name of a timer within its state; equal to a plain tuple of the same values."""

    time_ms: int
    """Milliseconds since 1970, may be negative."""
    key: Any
    """Stored form; None is the null key."""
    namespace: Any
    """Stored form; None if the state has no namespaces, or for the null namespace."""


def due_end(until_ms: int) -> bytes | None:
    """The bytes above those of every timer with `time_ms <= until_ms`, and of no other; None: all are due.

    Of any whole number: a watermark may have been committed before it was held within 64 bits.
    """
    return None if until_ms >= TIME_MAX_MS else _TIME.pack(max(until_ms + 1 + _SIGN, 0))


def held_ms(time_ms: int) -> int:
    """A time within the 64 bits of times."""
    return min(max(time_ms, TIME_MIN_MS), TIME_MAX_MS)


class TimerForm:
    """Turns timers of one state into bytes and back.

    Args:
        key_type: Type of the operator's keys.
        namespace_type: Type of the namespaces; None if the state has none.
    """

    __slots__ = ("_read_key", "_read_namespace", "_write_key", "_write_namespace")

    def __init__(self, key_type: TypeInformation, namespace_type: TypeInformation | None) -> None:
        self._write_key = key_writer(key_type)
        self._read_key = key_reader(key_type)
        self._write_namespace: Callable[[Any], bytes] = key_writer(namespace_type) if namespace_type else _no_bytes
        self._read_namespace = key_reader(namespace_type) if namespace_type else None

    def pack(self, time_ms: int, key: Any, namespace: Any) -> bytes:
        """The timer's bytes."""
        return _TIME.pack(time_ms + _SIGN) + self._write_key(key) + self._write_namespace(namespace)

    def unpack(self, packed: bytes) -> Timer:
        """The timer of these bytes. Raises `CorruptDataError`."""
        if len(packed) <= TIME_BYTES:
            raise CorruptDataError(f"the row {packed.hex()} of a timer state has no key")
        time_ms = int.from_bytes(packed[:TIME_BYTES], "big") - _SIGN
        if self._read_namespace is None:
            return Timer(time_ms, self._read_key(packed[TIME_BYTES:]), None)
        end = end_of(packed, TIME_BYTES)
        if end >= len(packed):
            raise CorruptDataError(f"the row {packed.hex()} of a timer state has no namespace")
        return Timer(time_ms, self._read_key(packed[TIME_BYTES:end]), self._read_namespace(packed[end:]))


def _no_bytes(_: Any) -> bytes:
    return b""
