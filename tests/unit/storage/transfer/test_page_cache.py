"""Warming the page cache: what is read, how much of it, and who waits for it."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from varvite.storage.transfer import page_cache
from varvite.storage.transfer.page_cache import FILES_MAX, available_bytes, warm_page_cache

if TYPE_CHECKING:
    from collections.abc import Sequence

MB = 1 << 20


def files(directory: Path, *sizes: int) -> list[Path]:
    made = [directory / f"{i}" for i in range(len(sizes))]
    for path, size_bytes in zip(made, sizes, strict=True):
        path.write_bytes(bytes(size_bytes))
    return made


def read_bytes(paths: Sequence[Path], bytes_max: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How much the thread reads."""
    sizes: list[int] = []
    readinto = page_cache.read_piece
    monkeypatch.setattr(page_cache, "read_piece", lambda *given: sizes.append(n := readinto(*given)) or n)
    thread = warm_page_cache(paths, bytes_max)
    if thread is not None:
        thread.join(30)
        assert not thread.is_alive()
    return sum(sizes)


def test_all_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_bytes(files(tmp_path, 3 * MB + 1, 0, 5), 1 << 40, monkeypatch) == 3 * MB + 6


def test_no_more_is_read_than_was_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_bytes(files(tmp_path, 3 * MB, 3 * MB), 2 * MB, monkeypatch) == 2 * MB


def test_where_there_is_no_memory_nothing_is_read(tmp_path: Path) -> None:
    assert warm_page_cache(files(tmp_path, 1), 0) is None
    assert warm_page_cache([], 1 << 40) is None


def test_a_file_that_is_gone_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_bytes([tmp_path / "none", *files(tmp_path, 7)], 1 << 40, monkeypatch) == 7


def test_a_file_that_cannot_be_read_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "directory"
    directory.mkdir()
    first, second = files(tmp_path, 3, 4)
    piece = page_cache.read_piece

    def broken(file: io.FileIO, buffer: bytearray) -> int:
        if file.name == str(first):
            raise OSError(5, "input/output error")
        return piece(file, buffer)

    monkeypatch.setattr(page_cache, "read_piece", broken)
    assert read_bytes([directory, first, second], 1 << 40, monkeypatch) == 4


def open_files() -> int:
    """Of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are counted in /proc")
def test_few_files_are_open_and_none_stay_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = open_files()
    paths = files(tmp_path, *[1] * (FILES_MAX + 20))
    assert read_bytes(paths, 1 << 40, monkeypatch) == FILES_MAX
    assert open_files() == before


@pytest.mark.skipif(sys.platform != "linux", reason="the priority of a thread")
def test_only_the_thread_has_the_lowest_priority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    found: list[int] = []
    piece = page_cache.read_piece
    monkeypatch.setattr(
        page_cache, "read_piece", lambda *given: found.append(os.getpriority(os.PRIO_PROCESS, 0)) or piece(*given)
    )
    read_bytes(files(tmp_path, 1), 1 << 40, monkeypatch)
    assert set(found) == {19}
    assert os.getpriority(os.PRIO_PROCESS, 0) == own


@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="Linux says what is available")
def test_available_memory() -> None:
    assert MB < available_bytes() < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 0),
        ({"proc/meminfo": "MemTotal: 9 kB\n"}, 0),
        ({"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:    4000 kB\n"}, 4_096_000),
        ({"proc/meminfo": "MemAvailable: 4000 kB\n", "sys/fs/cgroup/memory.max": "max\n"}, 4_096_000),
        ({"proc/meminfo": "MemAvailable: 4000 kB\n", "sys/fs/cgroup/memory.max": "1000000\n"}, 1_000_000),
        (
            {"proc/meminfo": "MemAvailable: 4000 kB\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "7000\n"},
            7000,
        ),
    ],
    ids=["no Linux", "an old kernel", "no container", "no limit", "cgroup v2", "cgroup v1"],
)
def test_a_container_has_no_more_memory_than_its_own(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert available_bytes(tmp_path) == expected
