"""Downloads: in parts, bounded, verified."""

from __future__ import annotations

import errno
import os
import random
import threading
import zlib
from pathlib import Path
from typing import Any, Final

import pytest

from varvite.storage.errors import CorruptDataError, DidNotHappenError, InvalidRequestError, MissingObjectError
from varvite.storage.object_stores.memory import MemoryStore
from varvite.storage.transfer.download import PART_BYTES, DownloadPolicy, FileDownload, download

SMALL_PARTS = DownloadPolicy(requests=4, in_flight_bytes=1000)


class Watched(MemoryStore):
    """Knows what was read, and how much at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[str, int]] = []
        self._now_bytes = 0
        self.most_bytes = 0
        self._watch = threading.Lock()

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        with self._watch:
            self.reads.append((name, length))
            self._now_bytes += length
            self.most_bytes = max(self.most_bytes, self._now_bytes)
        try:
            return super().get_range(name, offset, length)
        finally:
            with self._watch:
                self._now_bytes -= length


def body(size_bytes: int) -> bytes:
    return bytes(i * i % 251 for i in range(size_bytes))


def wanted(store: MemoryStore, directory: Path, *sizes: int) -> list[FileDownload]:
    found: list[FileDownload] = []
    for i, size_bytes in enumerate(sizes):
        store.put(f"files/{i}", body(size_bytes))
        found.append(FileDownload(f"files/{i}", directory / f"{i}", size_bytes, zlib.crc32(body(size_bytes))))
    return found


@pytest.mark.parametrize("sizes", [(), (0,), (1,), (999, 1000, 1001), (5000, 0, 1, 12_345), (1000,) * 20])
def test_files_arrive_whole(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    store = Watched()
    files = wanted(store, tmp_path, *sizes)
    download(store, files, SMALL_PARTS)
    assert [file.path.read_bytes() for file in files] == [body(size_bytes) for size_bytes in sizes]
    assert store.most_bytes <= SMALL_PARTS.in_flight_bytes
    assert all(length <= SMALL_PARTS.part_bytes for _, length in store.reads)


def test_the_parts_of_one_file_are_read_at_the_same_time(tmp_path: Path) -> None:
    together = threading.Barrier(3, timeout=30)

    class Meeting(MemoryStore):
        def get_range(self, name: str, offset: int, length: int) -> bytes:
            together.wait()
            return super().get_range(name, offset, length)

    store = Meeting()
    policy = DownloadPolicy(requests=3, in_flight_bytes=3 * PART_BYTES)
    size_bytes = 2 * PART_BYTES + 1
    data = bytes(size_bytes)
    store.put("large", data)
    download(store, [FileDownload("large", tmp_path / "large", size_bytes, zlib.crc32(data))], policy)
    assert (tmp_path / "large").read_bytes() == data


@pytest.mark.parametrize("size_bytes", [500, 5000])
@pytest.mark.parametrize("damage", ["flip", "cut", "gone", "crc"])
def test_damage_is_named(tmp_path: Path, size_bytes: int, damage: str) -> None:
    store = MemoryStore()
    files = wanted(store, tmp_path, 700, size_bytes, 3000)
    data = body(size_bytes)
    if damage == "gone":
        store.delete(["files/1"])
    elif damage == "crc":
        files[1] = files[1]._replace(crc32=files[1].crc32 ^ 1)
    else:
        store.put("files/1", data[:-1] if damage == "cut" else bytes((data[0] ^ 1, *data[1:])))
    with pytest.raises(MissingObjectError if damage == "gone" else CorruptDataError) as caught:
        download(store, files, SMALL_PARTS)
    assert caught.value.context["object_name"] == "files/1"


def test_a_disk_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    store = MemoryStore()
    for size_bytes in (10, 5000):
        (file,) = wanted(store, tmp_path / "missing", size_bytes)
        with pytest.raises(Exception, match="missing"):
            download(store, [file], SMALL_PARTS)


LARGE_BYTES: Final = 3 * PART_BYTES + 5_001


@pytest.mark.parametrize("part_bytes", [PART_BYTES, (1 << 20) + 100, 1 << 20])
def test_a_large_file_is_whole(tmp_path: Path, part_bytes: int) -> None:
    store = MemoryStore()
    data = random.Random(part_bytes).randbytes(LARGE_BYTES)
    store.put("large", data)
    file = FileDownload("large", tmp_path / "large", len(data), zlib.crc32(data))
    download(store, [file], DownloadPolicy(1 if part_bytes < PART_BYTES else 4, 4 * part_bytes))
    assert file.path.read_bytes() == data


def test_damage_in_any_part_is_named(tmp_path: Path) -> None:
    store = MemoryStore()
    data = bytearray(LARGE_BYTES)
    file = FileDownload("large", tmp_path / "large", len(data), zlib.crc32(data))
    for at in (0, PART_BYTES, LARGE_BYTES - 1):
        data[at] ^= 1
        store.put("large", bytes(data))
        with pytest.raises(CorruptDataError) as caught:
            download(store, [file], DownloadPolicy())
        assert caught.value.context["object_name"] == "large"
        data[at] ^= 1


def test_parts_that_are_whole_and_change_places_are_damage(tmp_path: Path) -> None:
    parts = [bytes([value]) * 1000 for value in (1, 2, 3)]
    store = MemoryStore()
    store.put("large", b"".join(reversed(parts)))
    file = FileDownload("large", tmp_path / "large", 3000, zlib.crc32(b"".join(parts)))
    with pytest.raises(CorruptDataError):
        download(store, [file], SMALL_PARTS)


@pytest.mark.parametrize("is_short", [True, False])
def test_a_disk_that_is_full_or_takes_a_part_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_short: bool
) -> None:
    write = os.pwrite

    def full(descriptor: int, data: memoryview, at: int) -> int:
        if is_short:
            return write(descriptor, data[:1_000_003], at)
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    store = MemoryStore()
    data = random.Random(1).randbytes(LARGE_BYTES)
    store.put("large", data)
    file = FileDownload("large", tmp_path / "large", LARGE_BYTES, zlib.crc32(data))
    if is_short:
        download(store, [file], DownloadPolicy())
        assert file.path.read_bytes() == data
        return
    with pytest.raises(DidNotHappenError, match="no space left"):
        download(store, [file], DownloadPolicy())


@pytest.mark.parametrize("limits", [{"requests": 0}, {"in_flight_bytes": 0}])
def test_limits_are_above_0(limits: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        DownloadPolicy(**limits)


@pytest.mark.parametrize(
    ("requests", "in_flight_bytes"), [(1, 1), (8, 1), (8, 64 << 20), (100, 64 << 20), (2, 1 << 40)]
)
def test_all_parts_together_fit(requests: int, in_flight_bytes: int) -> None:
    policy = DownloadPolicy(requests, in_flight_bytes)
    assert policy.concurrent_parts * policy.part_bytes <= in_flight_bytes
    assert 1 <= policy.concurrent_parts <= requests
