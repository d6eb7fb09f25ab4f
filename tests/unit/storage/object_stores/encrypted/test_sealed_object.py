"""The form of encrypted objects: nothing but what was written opens, and nothing of it shows."""

from __future__ import annotations

import struct
import zlib

import pytest

from varvite.storage.errors import CorruptDataError, IncompatibleError
from varvite.storage.object_stores.encrypted.keys import EncryptionKey
from varvite.storage.object_stores.encrypted.sealed_object import (
    HEADER_BYTES,
    ObjectCipher,
    is_sealed,
    new_header,
    plain_bytes,
    read_header,
    sealed_bytes,
)

KEY = EncryptionKey("k1", bytes(range(32)))
SALT = bytes(16)
CHUNK = 16
PLAIN = b"forty-one bytes, which makes three chunks"


def sealed(plain: bytes = PLAIN, *, salt: bytes = SALT, binding: bytes = b"a", key: EncryptionKey = KEY) -> bytes:
    return ObjectCipher(new_header(key, salt, len(plain), CHUNK), key, binding, "name").seal(plain)


def opened(data: bytes, *, binding: bytes = b"a", key: EncryptionKey = KEY) -> bytes:
    return ObjectCipher(read_header(data, "name"), key, binding, "name").open(data)


def with_header(data: bytes, offset: int, new: bytes) -> bytes:
    """As somebody forges it who can compute a CRC."""
    head = data[:offset] + new + data[offset + len(new) : HEADER_BYTES - 4]
    return head + struct.pack(">I", zlib.crc32(head)) + data[HEADER_BYTES:]


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 100])
def test_what_was_sealed_is_opened_and_has_the_size_that_is_told(size: int) -> None:
    plain = bytes(range(size))
    data = sealed(plain)
    assert opened(data) == plain
    assert len(data) == sealed_bytes(size, CHUNK) == read_header(data, "name").sealed_bytes
    assert plain_bytes(len(data), CHUNK) == size
    assert is_sealed(data)


def test_nothing_of_the_object_shows_and_equal_objects_look_different() -> None:
    assert PLAIN[:8] not in sealed()
    other = sealed(salt=b"another salt ...")
    assert other[HEADER_BYTES : HEADER_BYTES + 16] != sealed()[HEADER_BYTES : HEADER_BYTES + 16]


def test_any_byte_that_changes_is_noticed() -> None:
    data = sealed()
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1
        with pytest.raises(CorruptDataError):
            opened(bytes(changed))


def test_an_object_that_is_cut_off_or_longer_is_noticed() -> None:
    data = sealed()
    for end in range(len(data)):
        with pytest.raises(CorruptDataError):
            opened(data[:end])
    with pytest.raises(CorruptDataError):
        opened(data + b"x")


def test_a_forged_header_opens_nothing() -> None:
    """Cutting a chunk off, and saying so in the header, makes another key of it."""
    shorter = with_header(sealed(), 20, struct.pack(">Q", 2 * CHUNK))[: HEADER_BYTES + 2 * (CHUNK + 16)]
    assert read_header(shorter, "name").sealed_bytes == len(shorter)
    with pytest.raises(CorruptDataError, match="damaged"):
        opened(shorter)
    with pytest.raises(CorruptDataError, match="damaged"):
        opened(with_header(sealed(), 28, b"another salt ..."))


def test_chunks_cannot_change_places() -> None:
    data = sealed()
    first, second = (data[HEADER_BYTES + i * (CHUNK + 16) :][: CHUNK + 16] for i in (0, 1))
    with pytest.raises(CorruptDataError):
        opened(data[:HEADER_BYTES] + second + first + data[HEADER_BYTES + 2 * (CHUNK + 16) :])


def test_an_object_is_bound_to_its_name_and_its_key() -> None:
    with pytest.raises(CorruptDataError):
        opened(sealed(), binding=b"b")
    with pytest.raises(CorruptDataError):
        opened(sealed(), key=EncryptionKey("k1", bytes(32)))


def test_what_is_not_encrypted_is_said_to_be_so() -> None:
    with pytest.raises(CorruptDataError, match="not encrypted"):
        read_header(b"varve\0SEGM and so on" * 20, "name")


@pytest.mark.parametrize(("offset", "new"), [(10, b"\0\2"), (12, b"\2"), (14, b"\0\1")])
def test_a_later_form_is_refused_with_a_reason(offset: int, new: bytes) -> None:
    with pytest.raises(IncompatibleError, match="newer varvite"):
        read_header(with_header(sealed(), offset, new), "name")


@pytest.mark.parametrize("chunk_bytes", [0, 1 << 31])
def test_a_header_cannot_make_a_reader_take_all_memory(chunk_bytes: int) -> None:
    with pytest.raises(CorruptDataError):
        read_header(with_header(sealed(), 16, struct.pack(">I", chunk_bytes)), "name")
