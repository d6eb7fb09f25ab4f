"""Writing past the page cache (Linux `O_DIRECT`), for large objects that are synced at once, and for downloads.

Such an object is on the disk before anybody reads it; to fill fresh pages of the kernel's cache with it first takes
longer than the disk does (measured with 2.8 MB: 6 to 9 of 14 ms in a virtual machine whose pages come from the host).
What cannot be written in this way is left to the caller.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import threading
from typing import Final

DIRECT_BYTES_MIN: Final = 256 << 10
"""Below this the page cache is as fast."""
_BLOCK_BYTES: Final = 4096
"""Direct writes begin and end at multiples of it, in memory and in the file."""
_PIECE_BYTES: Final = 4 << 20
"""Of memory that each thread which writes keeps. After each piece it may have to wait for others that run Python."""
_DIRECT: Final = getattr(os, "O_DIRECT", 0)
_buffers: Final = threading.local()


def prepare_direct_write() -> None:
    """Get the memory of this thread's direct writes, if it has none yet; it takes what a write of it takes."""
    _aligned()


def write_at(descriptor: int, data: memoryview, offset: int = 0, *, is_direct: bool) -> int:
    """Write all of `data` at `offset`, where the file has nothing yet; past the page cache if wanted and possible.

    Moves the descriptor's position. Returns how many bytes went past the page cache. Raises as `write_direct`.
    """
    direct_bytes = write_direct(descriptor, data, offset) if is_direct else 0
    os.lseek(descriptor, offset + direct_bytes, os.SEEK_SET)
    rest = data[direct_bytes:]
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    return direct_bytes


def write_direct(descriptor: int, data: memoryview, offset: int = 0) -> int:
    """Write the beginning of `data` at `offset`, where the file has nothing yet; the caller writes the rest.

    The descriptor's position stays. Nothing but the caller may write to it meanwhile.

    Returns:
        How many bytes are written: all but the last few at best, 0 where the file system cannot do this.

    Raises:
        OSError: The disk is full, or broken.
    """
    if not _DIRECT or offset % _BLOCK_BYTES:
        return 0
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | _DIRECT)
    except OSError:
        return 0
    try:
        return _write_blocks(descriptor, data[: len(data) - len(data) % _BLOCK_BYTES], offset)
    finally:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)


def _write_blocks(descriptor: int, data: memoryview, offset: int) -> int:
    buffer = _aligned()
    written = 0
    while written < len(data) and written % _BLOCK_BYTES == 0:
        piece = data[written : written + _PIECE_BYTES]
        buffer[: len(piece)] = piece
        try:
            written += os.pwrite(descriptor, buffer[: len(piece)], offset + written)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            break  # other alignment is wanted, or the file system takes the flag and not the write
    return written


def _aligned() -> memoryview:
    """Memory of this thread at an aligned address; kept, because fresh memory costs what is to be saved."""
    buffer: memoryview | None = getattr(_buffers, "view", None)
    if buffer is None:
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS  # the default is shared with forked processes
        flags = private | getattr(mmap, "MAP_POPULATE", 0)
        buffer = _buffers.view = memoryview(mmap.mmap(-1, _PIECE_BYTES, flags=flags))
    return buffer
