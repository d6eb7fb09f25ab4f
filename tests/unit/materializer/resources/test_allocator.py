"""Settings of the C library's allocator."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import ctypes
from varvite.materializer.resources.allocator import give_back_large_blocks

def resident_kb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4

assert give_back_large_blocks()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]

def block():
    made = libc.malloc(8 << 20)
    libc.memset(made, 1, 8 << 20)
    return made

libc.free(block())  # from now on glibc would keep such blocks
before = resident_kb()
blocks = [block() for _ in range(9)]
for one in blocks[:-1]:
    libc.free(one)
print(resident_kb() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it does nothing elsewhere")
def test_large_blocks_go_back_although_one_behind_them_is_in_use() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 2 * (8 << 10)
