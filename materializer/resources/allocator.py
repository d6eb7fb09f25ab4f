"""Lets the C library give large blocks back to the system as soon as they are free.

glibc raises the size from which on it does so up to 32 MB as a process frees such blocks. The parts of a log that a
materializer reads ahead then stay in its heaps, half of which are holes (measured: 464 MB for 750 MB of log, 327 MB
with a fixed limit).

Invariants: I10 (what a materializer takes does not grow with the state).
"""

from __future__ import annotations

import ctypes
import sys
from typing import Final

GIVEN_BACK_FROM_BYTES: Final = 256 << 10
_M_MMAP_THRESHOLD: Final = -3


def give_back_large_blocks() -> bool:
    """For this process, from now on; False, and nothing happens, where the C library has no such thing."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and mallopt(_M_MMAP_THRESHOLD, GIVEN_BACK_FROM_BYTES) == 1
