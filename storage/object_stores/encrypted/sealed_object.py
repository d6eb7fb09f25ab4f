r"""The format of an encrypted object: a header, and chunks that are encrypted and authenticated separately. Pure.

So ranges of an object can be read.

```
offset  size  field
0       6     magic b"varve\0"
6       4     kind b"CIPH"
10      2     format version, 1, big endian as all numbers
12      1     algorithm: 1 = AES-256-GCM under a key derived by HKDF-SHA256
13      1     length of the key's id in bytes
14      2     0
16      4     chunk size in bytes
20      8     size of the plain object in bytes
28      16    salt, random for each object
44      8     check value of the key
52      64    id of the key, ASCII, filled up with zeros
116     4     CRC-32 of bytes [0, 116)
120     ...   chunks: the plain chunk encrypted, then its tag of 16 bytes
```

The object's key is HKDF-SHA256(secret, salt, info), where info is the header and the object's binding (its identity).
So a key encrypts one object only, and the chunk's index can be the nonce. Chunks that are changed, swapped, truncated
or moved to another name fail to authenticate. An object has at least one chunk, which may be empty.

Invariants: I8 (what is read is verified; a mismatch is `CorruptDataError` with the object's name).
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

from varvite.storage.errors import CorruptDataError, IncompatibleError
from varvite.storage.format.frame import MAGIC
from varvite.storage.object_stores.encrypted.keys import CHECK_BYTES, KEY_BYTES, KEY_ID_BYTES_MAX, derive

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from varvite.storage.object_stores.encrypted.keys import EncryptionKey

KIND: Final = b"CIPH"
VERSION: Final = 1
ALGORITHM: Final = 1
CHUNK_BYTES: Final = 64 << 10
"""The chunk size of new objects. A read of a range decrypts at most two chunks more than the range."""
CHUNK_BYTES_MAX: Final = 16 << 20
"""A header with a larger size is refused: a reader would need as much memory."""
TAG_BYTES: Final = 16
SALT_BYTES: Final = 16
_HEADER: Final = struct.Struct(f">6s4sHBBHIQ{SALT_BYTES}s{CHECK_BYTES}s{KEY_ID_BYTES_MAX}s")
_CRC: Final = struct.Struct(">I")
HEADER_BYTES: Final = _HEADER.size + _CRC.size


class SealedHeader(NamedTuple):
    """The header before the chunks."""

    chunk_bytes: int
    plain_bytes: int
    salt: bytes
    key_check: bytes
    key_id: str
    encoded: bytes

    @property
    def chunks(self) -> int:
        """The number of chunks."""
        return max(1, -(-self.plain_bytes // self.chunk_bytes))

    @property
    def sealed_bytes(self) -> int:
        """The size of the encrypted object."""
        return HEADER_BYTES + self.plain_bytes + self.chunks * TAG_BYTES

    def chunk_offset(self, index: int) -> int:
        """The offset of a chunk in the object; the object's end for the index after the last."""
        return min(HEADER_BYTES + index * (self.chunk_bytes + TAG_BYTES), self.sealed_bytes)


def sealed_bytes(plain_bytes: int, chunk_bytes: int = CHUNK_BYTES) -> int:
    """The size of the encrypted form of an object of `plain_bytes` bytes."""
    return HEADER_BYTES + plain_bytes + max(1, -(-plain_bytes // chunk_bytes)) * TAG_BYTES


def plain_bytes(sealed: int, chunk_bytes: int = CHUNK_BYTES) -> int:
    """The plain size of an encrypted object of `sealed` bytes; 0 if no encrypted object has this size."""
    body = sealed - HEADER_BYTES
    return max(0, body - -(-body // (chunk_bytes + TAG_BYTES)) * TAG_BYTES)


def new_header(key: EncryptionKey, salt: bytes, plain_size_bytes: int, chunk_bytes: int = CHUNK_BYTES) -> SealedHeader:
    """The header of a new object; `salt` is 16 random bytes that no other object has."""
    packed = _HEADER.pack(
        MAGIC,
        KIND,
        VERSION,
        ALGORITHM,
        len(key.key_id),
        0,
        chunk_bytes,
        plain_size_bytes,
        salt,
        key.check,
        key.key_id.encode("ascii"),
    )
    encoded = packed + _CRC.pack(zlib.crc32(packed))
    return SealedHeader(chunk_bytes, plain_size_bytes, salt, key.check, key.key_id, encoded)


def is_sealed(data: bytes) -> bool:
    """True for the beginning of an encrypted object."""
    return data.startswith(MAGIC + KIND)


def read_header(data: bytes | memoryview, name: str) -> SealedHeader:
    """The header at the beginning of an object.

    Raises:
        CorruptDataError: it is no header, or damaged.
        IncompatibleError: its version or algorithm is unknown.
    """
    encoded = bytes(data[:HEADER_BYTES])
    if not is_sealed(encoded):
        raise CorruptDataError(
            "the object is not encrypted, although its job is; somebody else wrote it", object_name=name
        )
    if len(encoded) < HEADER_BYTES or zlib.crc32(encoded[: _HEADER.size]) != _CRC.unpack(encoded[_HEADER.size :])[0]:
        raise _damaged(name)
    fields = _HEADER.unpack(encoded[: _HEADER.size])
    version, algorithm, id_bytes, zero, chunk_bytes, size, salt, check, padded = fields[2:]
    if (version, algorithm, zero) != (VERSION, ALGORITHM, 0):
        raise IncompatibleError(
            f"it is encrypted with version {version}, algorithm {algorithm}; use a newer varvite", object_name=name
        )
    if not 1 <= chunk_bytes <= CHUNK_BYTES_MAX or not padded[:id_bytes].isascii():
        raise _damaged(name)
    return SealedHeader(chunk_bytes, size, salt, check, padded[:id_bytes].decode("ascii"), encoded)


class ObjectCipher:
    """Encrypts or decrypts the chunks of one object."""

    def __init__(self, header: SealedHeader, key: EncryptionKey, binding: bytes, name: str) -> None:
        """`binding` identifies the object among all that use the key; `name` is for errors."""
        self.header = header
        self._name = name
        self._cipher = _aes_gcm(
            derive(key.secret, b"varve object\0" + header.encoded + binding, KEY_BYTES, header.salt)
        )

    def seal(self, data: bytes | memoryview) -> bytes:
        """Encrypt the whole object."""
        view, size = memoryview(data), self.header.chunk_bytes
        chunks = (self.seal_chunk(i, view[i * size : (i + 1) * size]) for i in range(self.header.chunks))
        return b"".join((self.header.encoded, *chunks))

    def seal_chunk(self, index: int, chunk: bytes | memoryview) -> bytes:
        """Encrypt a chunk; never two for the same index."""
        return self._cipher.encrypt(_nonce(index), chunk, None)

    def open_chunks(self, data: bytes | memoryview, first: int, count: int) -> Iterator[bytes]:
        """Decrypt the chunks `[first, first + count)` from their consecutive encrypted bytes.

        Raises `CorruptDataError` for the first chunk that does not authenticate.
        """
        view, start = memoryview(data), self.header.chunk_offset(first)
        for index in range(first, first + count):
            begin, end = self.header.chunk_offset(index) - start, self.header.chunk_offset(index + 1) - start
            yield self.open_chunk(index, view[begin:end])

    def open_chunk(self, index: int, chunk: bytes | memoryview) -> bytes:
        """Decrypt a chunk. Raises `CorruptDataError`."""
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher.decrypt(_nonce(index), chunk, None)
        except (InvalidTag, ValueError):  # ValueError: shorter than a tag
            raise _damaged(self._name) from None

    def open(self, data: bytes | memoryview) -> bytes:
        """Decrypt the whole object. Raises `CorruptDataError`."""
        if len(data) != self.header.sealed_bytes:
            raise _damaged(self._name)
        return b"".join(self.open_chunks(memoryview(data)[HEADER_BYTES:], 0, self.header.chunks))

    def open_file(self, source: BinaryIO, target: BinaryIO) -> None:
        """Decrypt a file that is positioned behind its header. Raises `CorruptDataError`."""
        for index in range(self.header.chunks):
            length = self.header.chunk_offset(index + 1) - self.header.chunk_offset(index)
            target.write(self.open_chunk(index, source.read(length)))
        if source.read(1):
            raise _damaged(self._name)

    def seal_file(self, source: BinaryIO, target: BinaryIO) -> None:
        """Encrypt a file of the header's size, header included. Raises `CorruptDataError` if it has another size."""
        target.write(self.header.encoded)
        left = self.header.plain_bytes
        for index in range(self.header.chunks):
            chunk = source.read(self.header.chunk_bytes)
            left -= len(chunk)
            target.write(self.seal_chunk(index, chunk))
        if left or source.read(1):
            raise CorruptDataError("the file changed while it was uploaded; write a new one", object_name=self._name)


def _aes_gcm(key: bytes) -> AESGCM:
    # Imported here: only encryption needs the package.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def _nonce(index: int) -> bytes:
    return index.to_bytes(12, "big")


def _damaged(name: str) -> CorruptDataError:
    return CorruptDataError(
        "the encrypted object is damaged, truncated, or not the one that was written under this name; see "
        "`varvite verify JOB --repair`",
        object_name=name,
    )
