"""Reading files into the page cache while others work: what was written past it (`write_times`) is cold.

Without it the first batches after a restore would wait for the disk at each key that they read.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from io import FileIO

_log: Final = logging.getLogger(__name__)
FILES_MAX: Final = 128
"""Each is open until it is read: the caller may rename or remove it meanwhile."""
_PIECE_BYTES: Final = 1 << 20
_LOWEST_PRIORITY: Final = 19
_MEMORY: Final = "proc/meminfo"
_LIMITS: Final = ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Of a container, cgroup v2 and v1; "max" if there is none."""


def warm_page_cache(paths: Iterable[Path], bytes_max: int) -> threading.Thread | None:
    """Begin to read files, with the lowest priority; the thread ends by itself and keeps no process alive.

    Args:
        paths: Those that cannot be read are left out, and those after the first `FILES_MAX`.
        bytes_max: No more than this is read: what comes later would drive out what came first.

    Returns:
        The thread; None if there is nothing to read.
    """
    files: list[FileIO] = []
    for path in paths:
        if len(files) == FILES_MAX or bytes_max <= 0:
            break
        try:
            files.append(path.open("rb", buffering=0))
        except OSError as error:
            _log.debug("%s is not read into the page cache: %s", path, error)
    if not files:
        return None
    thread = threading.Thread(target=_read_all, args=(files, bytes_max), name="varvite-warm", daemon=True)
    thread.start()
    return thread


def available_bytes(root: Path = Path("/")) -> int:
    """The memory that the page cache may still take, as Linux estimates it, and at most the container's.

    0 where nothing tells. `root` is where `proc` and `sys` are.
    """
    memory = next(
        (int(line.split()[1]) << 10 for line in _lines(root / _MEMORY) if line.startswith("MemAvailable:")), 0
    )
    limits = [int(line) for path in _LIMITS for line in _lines(root / path)[:1] if line.isdecimal()]
    return min([memory, *limits])


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").splitlines()
    except OSError:
        return []


def _read_all(files: Sequence[FileIO], bytes_max: int) -> None:
    if sys.platform == "linux":  # elsewhere it would hold for the process
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST_PRIORITY)
    buffer = bytearray(_PIECE_BYTES)
    left = bytes_max
    for file in files:
        with file:
            try:
                while left > 0 and (read := read_piece(file, buffer)):
                    left -= read
            except OSError as error:
                _log.debug("%s is not read into the page cache: %s", file.name, error)


def read_piece(file: FileIO, buffer: bytearray) -> int:
    """How many bytes were read; 0 at the end."""
    return file.readinto(buffer) or 0
