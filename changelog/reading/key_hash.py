"""The key group of a key, without Spark: `KEY_HASH` for keys that are one string or whole number.

`xxhash64` of Spark is XXH64 with seed 42, over the UTF-8 bytes of a string, or the 4 or 8 bytes of a number. Other keys
(fractions, decimals, several columns) are left to Spark. If a key is not in the key group that this module computes,
the caller must look in all others: state may have been written under other key groups, as by a test harness.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

SEED: Final = 42
_MASK: Final = (1 << 64) - 1
_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5
_STRIPE_BYTES: Final = 32


def key_group_of_text(key_type: str, text: str, max_parallelism: int) -> int | None:
    """The key group of a key that is given as text.

    Args:
        key_type: The type of the operator's keys, without its version: `string`.
        text: The key as tables show it.
        max_parallelism: The number of key groups.

    Returns None for a type that this module does not hash, or if the text is no such key.
    """
    encode = _ENCODERS.get(key_type)
    data = None if encode is None else encode(text)
    return None if data is None else xxhash64(data) % max_parallelism


def xxhash64(data: bytes, seed: int = SEED) -> int:
    """XXH64 as Spark computes it: a signed number of 64 bits."""
    whole = len(data) - len(data) % _STRIPE_BYTES
    if whole:
        lanes = [(seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed, (seed - _P1) & _MASK]
        for stripe in struct.iter_unpack("<4Q", data[:whole]):
            lanes = [_round(lane, word) for lane, word in zip(lanes, stripe, strict=True)]
        digest = sum(_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            digest = ((digest ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        digest = (seed + _P5) & _MASK
    digest = _tail((digest + len(data)) & _MASK, data[whole:])
    digest = ((digest ^ (digest >> 33)) * _P2) & _MASK
    digest = ((digest ^ (digest >> 29)) * _P3) & _MASK
    digest ^= digest >> 32
    return digest - (1 << 64) if digest >> 63 else digest


def _tail(digest: int, rest: bytes) -> int:
    """Mix in the last bytes, fewer than a stripe."""
    longs = len(rest) - len(rest) % 8
    for (word,) in struct.iter_unpack("<Q", rest[:longs]):
        digest = (_rotated(digest ^ _round(0, word), 27) * _P1 + _P4) & _MASK
    if len(rest) - longs >= 4:  # noqa: PLR2004 - bytes of a word
        (word,) = struct.unpack_from("<I", rest, longs)
        digest = (_rotated(digest ^ (word * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
        longs += 4
    for byte in rest[longs:]:
        digest = (_rotated(digest ^ (byte * _P5 & _MASK), 11) * _P1) & _MASK
    return digest


def _round(lane: int, word: int) -> int:
    return (_rotated((lane + word * _P2) & _MASK, 31) * _P1) & _MASK


def _rotated(number: int, bits: int) -> int:
    return ((number << bits) | (number >> (64 - bits))) & _MASK


def _number(form: str) -> Callable[[str], bytes | None]:
    def encode(text: str) -> bytes | None:
        try:
            number = int(text)
            return struct.pack(form, number) if str(number) == text else None
        except (ValueError, struct.error):
            return None

    return encode


def _string(text: str) -> bytes | None:
    try:
        return text.encode()
    except UnicodeEncodeError:  # a byte of a command line that is not UTF-8
        return None


_ENCODERS: Final[dict[str, Callable[[str], bytes | None]]] = {
    "string": _string,
    "int": _number("<i"),
    "long": _number("<q"),
}
