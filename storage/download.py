"""Downloading many files at once: large ones in parts by ranged reads, small ones whole, all verified (I8).

From a storage on the same filesystem, a file that never changes is linked instead of copied. Memory is bounded (I10): a
request holds the bytes of one part, and `DownloadPolicy` says how many there are. A file is written in place; who calls
throws the directory away when anything fails (I9: what is fetched is a cache).
"""

from __future__ import annotations

import os
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from varve.storage.errors import CorruptDataError, InvalidRequestError
from varve.storage.local_errors import happened_not

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from varve.storage.object_store import ObjectStore

PART_BYTES: Final = 8 << 20
"""Larger files are read in parts of this size: long enough for a request to be worth its round trip."""
_CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class DownloadPolicy:
    """The limits of one restore."""

    requests: int = 8
    """Requests at the same time."""
    in_flight_bytes: int = 64 << 20
    """Bytes asked for and not yet written; there are fewer requests, and smaller parts, if these would not fit."""

    def __post_init__(self) -> None:
        if self.requests < 1 or self.in_flight_bytes < 1:
            raise InvalidRequestError(f"{self} is no download policy: every limit must be above 0")

    @property
    def part_bytes(self) -> int:
        """Most bytes of one request for a file's part."""
        return max(1, min(PART_BYTES, self.in_flight_bytes))

    @property
    def parts_at_once(self) -> int:
        """Requests for parts at the same time."""
        return max(1, min(self.requests, self.in_flight_bytes // self.part_bytes))


class WantedFile(NamedTuple):
    """An object and the local file that it becomes."""

    name: str
    path: Path
    size_bytes: int
    crc32: int
    never_changes: bool = False
    """Nobody will write to it, so it may be the stored object itself."""


def download(store: ObjectStore, wanted: Sequence[WantedFile], policy: DownloadPolicy) -> None:
    """Fetch these files; their directories exist, they do not.

    Args:
        store: Where the objects are.
        wanted: Each is checked against its size and CRC-32.
        policy: How much at the same time.

    Raises:
        MissingObjectError, CorruptDataError: names the object; nothing more is begun, and the files are of no use.
    """
    with ThreadPoolExecutor(policy.parts_at_once, "varve-download") as pool:
        try:
            linked = pool.map(partial(_link, store), wanted)
            absent = [file for file, is_there in zip(wanted, linked, strict=True) if not is_there]
            running = [pool.submit(step) for file in absent for step in _steps(store, file, policy.part_bytes)]
            for one in running:
                one.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def file_crc32(path: Path) -> int:
    """The CRC-32 of a file."""
    crc = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            crc = zlib.crc32(chunk, crc)
    return crc


def _link(store: ObjectStore, file: WantedFile) -> bool:
    """Whether the file is there now."""
    if not (file.never_changes and store.link_file(file.name, file.path)):
        return False
    try:
        size_bytes = file.path.stat().st_size
        if size_bytes != file.size_bytes or file_crc32(file.path) != file.crc32:
            raise _damaged(file, size_bytes)
    except OSError as error:
        raise happened_not(error, f"reading {file.path}", file.name) from error
    return True


def _steps(store: ObjectStore, file: WantedFile, part_bytes: int) -> Iterator[Callable[[], None]]:
    """What has to be done for a file; any of it at the same time."""
    if file.size_bytes <= part_bytes:
        yield lambda: _fetch_whole(store, file)
        return
    parts = _Parts(store, file, part_bytes)
    for offset in range(0, file.size_bytes, part_bytes):
        yield lambda at=offset: parts.fetch(at)


def _fetch_whole(store: ObjectStore, file: WantedFile) -> None:
    data = store.get(file.name)
    if len(data) != file.size_bytes or zlib.crc32(data) != file.crc32:
        raise _damaged(file, len(data))
    try:
        file.path.write_bytes(data)
    except OSError as error:
        raise happened_not(error, f"writing {file.path}", file.name) from error


class _Parts:
    """The parts of one large file; whoever writes the last one checks the whole."""

    def __init__(self, store: ObjectStore, file: WantedFile, part_bytes: int) -> None:
        self._store = store
        self._file = file
        self._part_bytes = part_bytes
        self._missing = -(-file.size_bytes // part_bytes)
        self._lock = threading.Lock()

    def fetch(self, offset: int) -> None:
        file = self._file
        data = self._store.get_range(file.name, offset, min(self._part_bytes, file.size_bytes - offset))
        try:
            self._write(offset, data)
            with self._lock:
                self._missing -= 1
                is_last = self._missing == 0
            if is_last and file_crc32(file.path) != file.crc32:
                raise _damaged(file, file.size_bytes)
        except OSError as error:
            raise happened_not(error, f"writing {file.path}", file.name) from error

    def _write(self, offset: int, data: bytes) -> None:
        descriptor = os.open(self._file.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            view = memoryview(data)
            while view:
                written = os.pwrite(descriptor, view, offset)
                view, offset = view[written:], offset + written
        finally:
            os.close(descriptor)


def _damaged(file: WantedFile, size_bytes: int) -> CorruptDataError:
    return CorruptDataError(
        f"the file {file.path.name} has {size_bytes} bytes and another checksum than the {file.size_bytes} bytes that "
        "were uploaded; see `varve verify JOB --repair`",
        object_name=file.name,
    )
