"""The CRC-32 of joined data is zlib's CRC-32 of it."""

from __future__ import annotations

import random
import zlib

import pytest

from varvite.storage.transfer.download import join_crc32


@pytest.mark.parametrize("second_bytes", [0, 1, 2, 7, 8, 4095, 4096, 100_001, 1 << 20])
@pytest.mark.parametrize("first_bytes", [0, 1, 1000])
def test_two_pieces(first_bytes: int, second_bytes: int) -> None:
    source = random.Random(first_bytes * 31 + second_bytes)
    first, second = source.randbytes(first_bytes), source.randbytes(second_bytes)
    assert join_crc32(zlib.crc32(first), zlib.crc32(second), second_bytes) == zlib.crc32(first + second)


def test_pieces_longer_than_memory() -> None:
    # 2^40 zero bytes: doubling the length again and again must be the same as saying it at once.
    one = zlib.crc32(bytes(1024))
    doubled, length = one, 1024
    for _ in range(30):
        doubled, length = join_crc32(doubled, doubled, length), 2 * length
    halves = join_crc32(doubled, doubled, length)
    assert halves == join_crc32(join_crc32(doubled, one, 1024), _rest(one, length - 1024), length - 1024)


def _rest(one: int, length: int) -> int:
    """The CRC-32 of so many zero bytes, a multiple of 1024, from pieces that are powers of two."""
    crc, piece, size = 0, one, 1024
    while length:
        if length & size:
            crc, length = join_crc32(crc, piece, size), length - size
        piece, size = join_crc32(piece, piece, size), 2 * size
    return crc


def test_many_pieces_in_turn() -> None:
    source = random.Random(5)
    pieces = [source.randbytes(source.randrange(300)) for _ in range(200)]
    crc = 0
    for piece in pieces:
        crc = join_crc32(crc, zlib.crc32(piece), len(piece))
    assert crc == zlib.crc32(b"".join(pieces))
