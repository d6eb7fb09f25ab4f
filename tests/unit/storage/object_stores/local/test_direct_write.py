"""Writing past the page cache, on whatever file system the tests run."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from varvite.storage.object_stores.local import direct_write
from varvite.storage.object_stores.local.direct_write import DIRECT_BYTES_MIN
from varvite.storage.object_stores.local.store import LocalStore

if TYPE_CHECKING:
    from pathlib import Path

SIZES = [DIRECT_BYTES_MIN + more for more in (-1, 0, 1, 4095, 4096)] + [(4 << 20) - 1, (4 << 20) + 1, (9 << 20) + 77]


def body(size: int) -> bytes:
    return random.Random(size).randbytes(size)


@pytest.mark.parametrize("size", SIZES)
def test_an_object_of_any_size_is_what_was_put(tmp_path: Path, size: int) -> None:
    store = LocalStore(tmp_path)
    assert store.put_if_absent("a", body(size))
    assert store.get("a") == body(size)
    store.put("a", body(size)[::-1])
    assert store.get("a") == body(size)[::-1]


@pytest.mark.skipif(not hasattr(os, "O_DIRECT"), reason="this system has no direct writes")
def test_all_but_the_last_bytes_go_directly_where_the_file_system_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: written.append(len(data)) or write(fd, data, at))
    LocalStore(tmp_path).put("a", body((4 << 20) + 5000))
    assert written in ([4 << 20, 4096], [4 << 20], [])


@pytest.mark.parametrize("failing_call", [1, 2])
def test_a_file_system_that_takes_the_flag_and_not_the_write_gets_the_rest_as_usual(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing_call: int
) -> None:
    calls = [0]
    write = os.pwrite

    def refusing(fd: int, data: memoryview, at: int) -> int:
        calls[0] += 1
        if calls[0] >= failing_call:
            raise OSError(errno.EINVAL, "no")
        return write(fd, data, at)

    monkeypatch.setattr(os, "pwrite", refusing)
    store = LocalStore(tmp_path)
    store.put("a", body(9 << 20))
    assert store.get("a") == body(9 << 20)


def test_a_short_direct_write_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: write(fd, data[:5000], at))
    store = LocalStore(tmp_path)
    store.put("a", body(300_001))
    assert store.get("a") == body(300_001)


def test_a_file_system_without_direct_writes_is_written_as_usual(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_write, "_DIRECT", 0)
    store = LocalStore(tmp_path)
    store.put("a", body(300_001))
    assert store.get("a") == body(300_001)


FORKED: Final = """
import os
from varvite.storage.object_stores.local.direct_write import _aligned_buffer

buffer = _aligned_buffer()
buffer[:4] = b"mine"
child = os.fork()
if not child:
    _aligned_buffer()[:4] = b"his "
    os._exit(0)
os.waitpid(child, 0)
print(bytes(buffer[:4]).decode())
"""


def test_forked_processes_do_not_share_the_buffer() -> None:
    assert subprocess.run([sys.executable, "-c", FORKED], check=True, capture_output=True, text=True).stdout == "mine\n"


def test_a_full_disk_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    if not hasattr(os, "O_DIRECT"):
        pytest.skip("this system has no direct writes")
    with pytest.raises(Exception, match="no space left"):
        LocalStore(tmp_path).put("a", body(300_001))
