"""Where a MessagePack value ends: what cuts two wire forms that stand one after the other. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from varve.storage.errors import CorruptDataError


class _Head(NamedTuple):
    """What a value's first byte says of what follows it.

    A number of `number_bytes`; `payload_bytes` plus number times `bytes_each` bytes; `values` plus number times
    `values_each` values.
    """

    number_bytes: int = 0
    payload_bytes: int = 0
    bytes_each: int = 0
    values: int = 0
    values_each: int = 0


_HEADS: Final[dict[int, _Head]] = {
    **{first: _Head() for first in (*range(0x80), *range(0xE0, 0x100), 0xC0, 0xC2, 0xC3)},  # small ints, nil, bools
    **{0x80 + n: _Head(values=2 * n) for n in range(16)},  # fixmap
    **{0x90 + n: _Head(values=n) for n in range(16)},  # fixarray
    **{0xA0 + n: _Head(payload_bytes=n) for n in range(32)},  # fixstr
    **{first: _Head(number_bytes=n, bytes_each=1) for first, n in ((0xC4, 1), (0xC5, 2), (0xC6, 4))},  # bin
    **{first: _Head(number_bytes=n, bytes_each=1) for first, n in ((0xD9, 1), (0xDA, 2), (0xDB, 4))},  # str
    # ext: the type byte follows the length.
    **{first: _Head(number_bytes=n, payload_bytes=1, bytes_each=1) for first, n in ((0xC7, 1), (0xC8, 2), (0xC9, 4))},
    **{first: _Head(payload_bytes=n) for first, n in ((0xCA, 4), (0xCB, 8))},  # float
    **{first: _Head(payload_bytes=1 << i) for i, first in enumerate((0xCC, 0xCD, 0xCE, 0xCF))},  # uint
    **{first: _Head(payload_bytes=1 << i) for i, first in enumerate((0xD0, 0xD1, 0xD2, 0xD3))},  # int
    **{0xD4 + i: _Head(payload_bytes=1 + (1 << i)) for i in range(5)},  # fixext
    **{first: _Head(number_bytes=n, values_each=1) for first, n in ((0xDC, 2), (0xDD, 4))},  # array
    **{first: _Head(number_bytes=n, values_each=2) for first, n in ((0xDE, 2), (0xDF, 4))},  # map
}


def end_of(data: bytes, start: int) -> int:
    """The offset just after the MessagePack value that begins at `start`.

    Raises `CorruptDataError` if there is no whole value.
    """
    pending, at = 1, start
    while pending:
        head = _HEADS.get(data[at]) if at < len(data) else None
        if head is None:
            raise CorruptDataError(f"not a whole MessagePack value: {data[start:].hex()}")
        number = int.from_bytes(data[at + 1 : at + 1 + head.number_bytes], "big")
        at += 1 + head.number_bytes + head.payload_bytes + number * head.bytes_each
        pending += head.values + number * head.values_each - 1
    if at > len(data):
        raise CorruptDataError(f"a MessagePack value is cut off: {data[start:].hex()}")
    return at
