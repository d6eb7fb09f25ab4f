"""Ties a process's life to that of the one that forked it: PR_SET_PDEATHSIG on Linux, else by asking for the parent.

A state worker must not outlive its parent: the next parent would fork a second process for the same partition.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15
_libc: Final = ctypes.CDLL(None) if sys.platform.startswith("linux") else None


def die_with_parent(parent: int) -> bool:
    """Have this process killed when its parent, of that process id, ends; ends it at once if that has happened.

    Returns:
        False where the system cannot do it: the caller must ask `orphaned` now and then.
    """
    supported = _libc is not None and _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0
    if orphaned(parent):  # the parent ended between the fork and the line above
        os._exit(1)
    return supported


def orphaned(parent: int) -> bool:
    """Whether the process that forked this one has ended."""
    return os.getppid() != parent


def set_process_name(name: str) -> None:
    """Name that `ps` and `top` show, 15 bytes at most; nothing happens where the system has no such thing."""
    if _libc is not None:
        _libc.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def thread_count() -> int:
    """Operating system threads of this process; 1 where that cannot be told."""
    return len(list(Path("/proc/self/task").iterdir())) if _libc is not None else 1
