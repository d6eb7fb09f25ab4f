"""Downloads many files at once: large ones in parts by ranged reads, small ones whole, all verified (I8).

From a storage on the same filesystem, a file that never changes is linked instead of copied. Memory is bounded (I10): a
request holds the bytes of one part, and `DownloadPolicy` limits the number of requests. A file is written in place; the
caller discards the directory when anything fails (I9: what is fetched is a cache).
"""

from __future__ import annotations

import os
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from varvite.storage.errors import CorruptDataError, InvalidRequestError
from varvite.storage.object_stores.local.errors import did_not_happen
from varvite.storage.transfer.options import DOWNLOAD_IN_FLIGHT, DOWNLOAD_THREADS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from varvite.storage.object_stores.contract import ObjectStore

PART_BYTES: Final = 8 << 20
"""Larger files are read in parts of this size: long enough for a request to be worth its round trip."""
_CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class DownloadPolicy:
    """The limits of one restore."""

    requests: int = DOWNLOAD_THREADS.default
    """Concurrent requests."""
    in_flight_bytes: int = DOWNLOAD_IN_FLIGHT.default
    """Bytes requested and not yet written; there are fewer requests, and smaller parts, if these would not fit."""

    def __post_init__(self) -> None:
        if self.requests < 1 or self.in_flight_bytes < 1:
            raise InvalidRequestError(f"{self} is no download policy: every limit must be above 0")

    @property
    def part_bytes(self) -> int:
        """The largest request for a part of a file, in bytes."""
        return max(1, min(PART_BYTES, self.in_flight_bytes))

    @property
    def concurrent_parts(self) -> int:
        """The number of concurrent requests for parts."""
        return max(1, min(self.requests, self.in_flight_bytes // self.part_bytes))


class FileDownload(NamedTuple):
    """An object and the local file that it becomes."""

    name: str
    path: Path
    size_bytes: int
    crc32: int
    never_changes: bool = False
    """Nobody writes to the file, so it may be a link to the stored object."""


def download(store: ObjectStore, files: Sequence[FileDownload], policy: DownloadPolicy) -> None:
    """Fetch files that do not exist yet into directories that do.

    Args:
        store: The store of the objects.
        files: Each is checked against its size and CRC-32.
        policy: The limits.

    Raises:
        MissingObjectError, CorruptDataError: names the object; no further request is begun, and the files are useless.
    """
    with ThreadPoolExecutor(policy.concurrent_parts, "varvite-download") as pool:
        try:
            linked = pool.map(partial(_link, store), files)
            absent = [file for file, is_linked in zip(files, linked, strict=True) if not is_linked]
            large = [_Parts(store, file, policy) for file in absent if file.size_bytes > policy.part_bytes]
            small = [file for file in absent if file.size_bytes <= policy.part_bytes]
            running = [pool.submit(parts.fetch, offset) for parts in large for offset in parts.offsets]
            running += [pool.submit(_fetch_whole, store, file) for file in small]
            for future in running:
                future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def file_crc32(path: Path) -> int:
    """The CRC-32 of a file."""
    crc = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            crc = zlib.crc32(chunk, crc)
    return crc


def _link(store: ObjectStore, file: FileDownload) -> bool:
    """Link the file if it never changes and the store can; False if it has to be fetched."""
    if not (file.never_changes and store.link_file(file.name, file.path)):
        return False
    _check_written(file)
    return True


def _fetch_whole(store: ObjectStore, file: FileDownload) -> None:
    data = store.get(file.name)
    if len(data) != file.size_bytes or zlib.crc32(data) != file.crc32:
        raise _damaged(file, len(data))
    try:
        file.path.write_bytes(data)
    except OSError as error:
        raise did_not_happen(error, f"writing {file.path}", file.name) from error


class _Parts:
    """The parts of one large file; the thread that writes the last part checks the whole file."""

    def __init__(self, store: ObjectStore, file: FileDownload, policy: DownloadPolicy) -> None:
        self._store = store
        self._file = file
        self.offsets = range(0, file.size_bytes, policy.part_bytes)
        self._missing = len(self.offsets)
        self._lock = threading.Lock()

    def fetch(self, offset: int) -> None:
        """Read the part at this offset and write it."""
        file = self._file
        data = self._store.get_range(file.name, offset, min(self.offsets.step, file.size_bytes - offset))
        try:
            _write_at(file.path, offset, data)
        except OSError as error:
            raise did_not_happen(error, f"writing {file.path}", file.name) from error
        with self._lock:
            self._missing -= 1
            is_last = not self._missing
        if is_last:
            _check_written(file)


def _write_at(path: Path, offset: int, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        rest = memoryview(data)
        while rest:
            written = os.pwrite(descriptor, rest, offset)
            rest, offset = rest[written:], offset + written
    finally:
        os.close(descriptor)


def _check_written(file: FileDownload) -> None:
    """Raises `CorruptDataError` if the local file is not the one that was uploaded."""
    try:
        size_bytes = file.path.stat().st_size
        is_whole = size_bytes == file.size_bytes and file_crc32(file.path) == file.crc32
    except OSError as error:
        raise did_not_happen(error, f"reading {file.path}", file.name) from error
    if not is_whole:
        raise _damaged(file, size_bytes)


def _damaged(file: FileDownload, size_bytes: int) -> CorruptDataError:
    return CorruptDataError(
        f"the file {file.path.name} has {size_bytes} bytes and another checksum than the {file.size_bytes} bytes that "
        "were uploaded; see `varvite verify JOB --repair`",
        object_name=file.name,
    )
