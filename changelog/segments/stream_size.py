"""Size of an Arrow IPC stream once it is decompressed, read from its metadata before anything is decompressed.

A stream of a few kilobytes may say that it holds gigabytes. Each compressed buffer begins with its size, but Arrow
allocates that much before anybody can look. So the places of the buffers are read here, from the FlatBuffers metadata
of the record batch (Arrow's `format/Message.fbs`); Arrow's reader verifies all the rest.

Invariants: I8 (metadata that does not parse is `CorruptDataError`), I10.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import pyarrow as pa

from varvite.storage.errors import CorruptDataError

_ipc: Final[Any] = pa.ipc
_OFFSET: Final = struct.Struct("<I")
_TABLE: Final = struct.Struct("<i")
_ENTRY: Final = struct.Struct("<H")
_BUFFER: Final = struct.Struct("<qq")
_SIZE: Final = struct.Struct("<q")
# Fields of the tables, by place.
_HEADER: Final = 2
_BUFFERS: Final = 2
_COMPRESSION: Final = 3


def decoded_bytes(data: memoryview) -> int:
    """Bytes of all buffers of the stream's record batches after decompression.

    Raises `CorruptDataError` for metadata that does not parse, and for dictionaries, of which no stream of ours has
    any.
    """
    try:
        return sum(map(_message_bytes, _ipc.MessageReader.open_stream(pa.py_buffer(data))))
    except (pa.ArrowException, OSError, struct.error) as error:
        raise CorruptDataError(f"the stream's metadata does not parse: {error}") from error


def _message_bytes(message: Any) -> int:
    if message.type == "schema":
        return 0
    if message.type != "record batch":
        raise CorruptDataError(f"the stream has a {message.type}")
    metadata, body = memoryview(message.metadata), message.body
    batch = _field(metadata, _OFFSET.unpack_from(metadata)[0], _HEADER)
    buffers = None if batch is None else _field(metadata, batch, _BUFFERS)
    if batch is None or buffers is None or _field(metadata, batch, _COMPRESSION) is None:
        return 0 if body is None else body.size  # as it is in the stream
    count = _OFFSET.unpack_from(metadata, buffers)[0]
    first = buffers + _OFFSET.size
    entries = metadata[first : first + count * _BUFFER.size]
    return sum(_buffer_bytes(body, offset, length) for offset, length in _BUFFER.iter_unpack(entries))


def _buffer_bytes(body: Any, offset: int, length: int) -> int:
    """Size of a buffer, which stands before its compressed bytes; -1: it is not compressed."""
    if not length:
        return 0
    if offset < 0 or body is None:
        raise CorruptDataError("a buffer of the stream is outside of it")
    size: int = _SIZE.unpack_from(memoryview(body), offset)[0]
    return length if size < 0 else size


def _field(metadata: memoryview, table: int, number: int) -> int | None:
    """Place of the table or vector that a field of a FlatBuffers table refers to; None if the field is not set."""
    entries = table - _TABLE.unpack_from(metadata, table)[0]
    place = entries + _ENTRY.size * (2 + number)
    if entries < 0 or place + _ENTRY.size > entries + _ENTRY.unpack_from(metadata, entries)[0]:
        return None
    offset = _ENTRY.unpack_from(metadata, place)[0]
    return None if not offset else table + offset + _OFFSET.unpack_from(metadata, table + offset)[0]
