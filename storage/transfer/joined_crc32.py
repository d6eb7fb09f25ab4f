"""The CRC-32 of two pieces of data together, from the CRC-32 of each: what was read in parts is not read again.

A CRC is the remainder of the data as a polynomial over GF(2). To append `n` bytes multiplies what stands before them by
x^8n, so the whole's CRC is the first's times x^8n, plus the second's. Method and bit order are those of zlib's
`crc32_combine`, which Python does not offer.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_POLYNOMIAL: Final = 0xEDB88320
"""That of CRC-32, without its x^32; the highest bit is the coefficient of x^0."""
_ONE: Final = 1 << 31


def join_crc32(first: int, second: int, second_bytes: int) -> int:
    """The CRC-32 of data whose beginning has the CRC-32 `first` and whose last `second_bytes` bytes have `second`."""
    return _product(_power_of_x(8 * second_bytes), first) ^ second


@lru_cache(maxsize=64)
def _power_of_x(exponent: int) -> int:
    """The power of x, modulo the polynomial."""
    result, square = _ONE, _ONE >> 1
    while exponent:
        if exponent & 1:
            result = _product(square, result)
        square = _product(square, square)
        exponent >>= 1
    return result


def _product(a: int, b: int) -> int:
    """The product of two polynomials, modulo the polynomial."""
    product, coefficient = 0, _ONE
    while coefficient:
        if a & coefficient:
            product ^= b
        b = b >> 1 ^ _POLYNOMIAL if b & 1 else b >> 1
        coefficient >>= 1
    return product
