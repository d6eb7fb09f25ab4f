"""A small filesystem of a test's own, which can be full or read-only: a tmpfs.

Mounting needs the right to; where a test has not got it, it is skipped, visibly. What an `OSError` of each kind means
is tested without it, in `tests/unit/storage/object_stores/local/test_store.py`.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

_FILLER = "filler"
_CHUNK = bytes(4096)


class SmallDisk:
    """A mounted filesystem."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self) -> None:
        """Not a page is free after this."""
        with (self.path / _FILLER).open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(_CHUNK)
            except OSError:
                return

    def free(self) -> None:
        """Frees the space that `fill` took."""
        (self.path / _FILLER).unlink(missing_ok=True)

    def make_read_only(self) -> None:
        """Nothing can be written; fails while a file is open for writing."""
        _run("mount", "-o", "remount,ro", str(self.path))

    def make_writable(self) -> None:
        """As at the beginning."""
        _run("mount", "-o", "remount,rw", str(self.path))


@contextmanager
def small_disk(path: Path, size_bytes: int = 32 << 20) -> Generator[SmallDisk]:
    """A new filesystem at `path`, which is gone afterwards; skips the test where mounting is not allowed."""
    path.mkdir()
    if os.geteuid() != 0 or not _mounted(path, size_bytes):
        pytest.skip("mounting a small filesystem is not allowed here; full and read-only disks were not tested")
    try:
        yield SmallDisk(path)
    finally:
        _run("umount", "--lazy", str(path))


def _mounted(path: Path, size_bytes: int) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "varvite-test", str(path)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
