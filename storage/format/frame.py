r"""One container for every object that varvite writes: magic, kind, version, checksums, a JSON header and a blob.

```
offset  size  field
0       6     magic b"varve\0"
6       4     kind, four ASCII letters: what the object is
10      2     format version of the kind, big endian
12      4     header length in bytes, big endian
16      8     blob length in bytes, big endian
24      4     CRC-32 of the header
28      4     CRC-32 of the blob
32      4     CRC-32 of bytes [0, 32)
36      n     header: JSON, UTF-8
36+n    m     blob
```

Invariants: I8 (what is read is verified; a mismatch is `CorruptDataError` with the object's name).
"""

from __future__ import annotations

import io
import struct
import zlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from varvite.storage.errors import CorruptDataError, IncompatibleError
from varvite.storage.format.inspection import inspected

if TYPE_CHECKING:
    from collections.abc import Iterable

MAGIC: Final = b"varve\0"
_PREFIX: Final = struct.Struct(">6s4sHIQII")
_CRC: Final = struct.Struct(">I")
PREFIX_BYTES: Final = _PREFIX.size + _CRC.size


class Frame(NamedTuple):
    """A verified frame."""

    version: int
    header: bytes
    blob: memoryview


def frame(kind: bytes, version: int, header: bytes, blob: bytes = b"") -> bytes:
    """Put a header and a blob into the container."""
    prefix = _PREFIX.pack(MAGIC, kind, version, len(header), len(blob), zlib.crc32(header), zlib.crc32(blob))
    return b"".join((prefix, _CRC.pack(zlib.crc32(prefix)), header, blob))


def frame_pieces(kind: bytes, version: int, header: bytes, pieces: Iterable[bytes]) -> bytes:
    """As `frame`, for a blob that comes in pieces, of which only one is in memory beside the frame."""
    body = io.BytesIO()  # unlike a bytearray it gives its bytes away without a copy
    body.write(bytes(PREFIX_BYTES) + header)
    crc32 = 0
    for piece in pieces:
        crc32 = zlib.crc32(piece, crc32)
        body.write(piece)
    length = body.tell() - PREFIX_BYTES - len(header)
    prefix = _PREFIX.pack(MAGIC, kind, version, len(header), length, zlib.crc32(header), crc32)
    body.seek(0)
    body.write(prefix + _CRC.pack(zlib.crc32(prefix)))
    return body.getvalue()


def blob_offset(header: bytes) -> int:
    """The offset of the blob in the framed object."""
    return PREFIX_BYTES + len(header)


def frame_length(data: bytes | memoryview, name: str) -> int:
    """Length in bytes of the frame at the beginning of `data`, after which other frames may follow."""
    return _read_prefix(data, name).length


def unframe(
    kind: bytes, version_max: int, data: bytes | memoryview, name: str, *, blob_is_verified: bool = False
) -> Frame:
    """Verify and open a frame that fills `data` exactly.

    Args:
        kind: The expected kind.
        version_max: The newest version of the format that is read.
        data: The frame.
        name: The object it came from, for errors.
        blob_is_verified: The bytes were checked against the reference to them, so the blob, which may be large, is not
            checked again.

    Raises:
        CorruptDataError: not a frame, another kind, truncated, or a checksum does not match.
        IncompatibleError: written in a format version above `version_max`.
    """
    prefix = _read_prefix(data, name)
    if prefix.kind != kind:
        raise CorruptDataError(f"expected an object of kind {kind!r}, found {prefix.kind!r}", object_name=name)
    if prefix.version > version_max:
        raise IncompatibleError(
            f"format version {prefix.version} is newer than {version_max}, the newest that this varvite reads; "
            "upgrade varvite",
            object_name=name,
        )
    if prefix.length != len(data):
        raise CorruptDataError(f"object has {len(data)} bytes, its frame says {prefix.length}", object_name=name)
    view = memoryview(data)
    header = bytes(view[PREFIX_BYTES : PREFIX_BYTES + prefix.header_length])
    blob = view[PREFIX_BYTES + prefix.header_length :]
    if zlib.crc32(header) != prefix.header_crc or not (blob_is_verified or zlib.crc32(blob) == prefix.blob_crc):
        raise CorruptDataError("checksum mismatch; see `varvite verify JOB --repair`", object_name=name)
    return Frame(prefix.version, header, blob)


def decode_json(data: bytes | memoryview, record_type: Any, what: str, name: str) -> Any:
    """A value of a msgspec type from JSON that a checksum may vouch for, but that anybody may have written.

    Args:
        data: The JSON.
        record_type: Type of the value.
        what: Subject of the error, such as "the pack's header".
        name: The object it came from, for errors.

    Raises:
        CorruptDataError: it is not JSON, or not of that type.
    """
    try:
        decoded: Any = msgspec.json.decode(data, type=inspected(record_type))
    except UNPARSABLE as error:
        raise CorruptDataError(f"{what} does not parse: {error}", object_name=name) from error
    return decoded


UNPARSABLE: Final = (msgspec.MsgspecError, ValueError, ArithmeticError, RecursionError)
"""Errors for bytes that do not decode: those of msgspec, which has none of its own for invalid UTF-8 and deep nesting,
and those of the values that are made of them."""


class _Prefix(NamedTuple):
    kind: bytes
    version: int
    header_length: int
    blob_length: int
    header_crc: int
    blob_crc: int

    @property
    def length(self) -> int:
        return PREFIX_BYTES + self.header_length + self.blob_length


def _read_prefix(data: bytes | memoryview, name: str) -> _Prefix:
    view = memoryview(data)
    if len(view) < PREFIX_BYTES:
        raise CorruptDataError(f"object has only {len(view)} bytes: truncated", object_name=name)
    if bytes(view[: len(MAGIC)]) != MAGIC:
        raise CorruptDataError("not a varvite object (wrong magic)", object_name=name)
    if _CRC.unpack_from(view, _PREFIX.size)[0] != zlib.crc32(view[: _PREFIX.size]):
        raise CorruptDataError("checksum mismatch in the frame's prefix", object_name=name)
    return _Prefix(*_PREFIX.unpack_from(view)[1:])
