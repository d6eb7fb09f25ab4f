"""The key group of a key, without Spark: `KEY_HASH` for keys that are one string or whole number, with `xxhash`.

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


def key_group_of_text(key_type: str, text: str, max_parallelism: int) -> int | None:
    """The key group of a key that is given as text.

    Args:
        key_type: The type of the operator's keys, without its version: `string`.
        text: The key as tables show it.
        max_parallelism: The number of key groups.

    Returns None for a type that this module does not hash, if the text is no such key, or without the extra `tools`.
    """
    encode = _ENCODERS.get(key_type)
    data = None if encode is None else encode(text)
    digest = None if data is None else xxhash64(data)
    return None if digest is None else digest % max_parallelism


def xxhash64(data: bytes) -> int | None:
    """XXH64 as Spark computes it: a signed number of 64 bits; None if the library is not installed."""
    try:
        import xxhash
    except ImportError:
        return None
    digest = xxhash.xxh64_intdigest(data, SEED)
    return digest - (1 << 64) if digest >> 63 else digest


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
