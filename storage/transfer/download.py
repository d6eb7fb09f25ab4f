"""Downloading many files at once: large ones in parts by ranged reads, small ones whole, all verified (I8).

From a storage on the same filesystem, a file that never changes is linked instead of copied. Memory is bounded (I10): a
request holds the bytes of one part, and `DownloadPolicy` says how many there are; with direct I/O each has a buffer of
4 MiB besides. A file is written in place; who calls throws the directory away when anything fails (I9: what is fetched
is a cache).
"""

from __future__ import annotations

import os
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, NamedTuple

from varvite.storage.errors import CorruptDataError, InvalidRequestError
from varvite.storage.object_stores.local.direct_write import prepare_direct_write, write_at
from varvite.storage.object_stores.local.errors import happened_not
from varvite.storage.transfer.page_cache import available_bytes, warm_page_cache
from varvite.storage.transfer.write_times import PartTime, WriteTimes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from varvite.storage.object_stores.contract import ObjectStore

_POLYNOMIAL: Final = 0xEDB88320
"""That of CRC-32, without its x^32; the highest bit is the coefficient of x^0."""
_ONE: Final = 1 << 31


def join_crc32(first: int, second: int, second_bytes: int) -> int:
    """The CRC-32 of data whose beginning has the CRC-32 `first` and whose last `second_bytes` bytes have `second`."""
    return _product(_power_of_x(8 * second_bytes), first) ^ second


@lru_cache(maxsize=64)
def _power_of_x(exponent: int) -> int:
    """The power of x, modulo the polynomial."""
    result, square = _ONE, _ONE >> 1
    while exponent:
        if exponent & 1:
            result = _product(square, result)
        square = _product(square, square)
        exponent >>= 1
    return result


def _product(a: int, b: int) -> int:
    """The product of two polynomials, modulo the polynomial."""
    product, coefficient = 0, _ONE
    while coefficient:
        if a & coefficient:
            product ^= b
        b = b >> 1 ^ _POLYNOMIAL if b & 1 else b >> 1
        coefficient >>= 1
    return product


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
    direct_io: bool = False
    """Files of several parts may be written past the page cache, where that is found to be faster, and are then read
    into it in the background: for state that is used key by key. What is read once, from end to end, is not."""

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
    times = WriteTimes() if policy.direct_io else None
    with ThreadPoolExecutor(policy.parts_at_once, "varvite-download") as pool:
        try:
            linked = pool.map(partial(_link, store), wanted)
            absent = [file for file, is_there in zip(wanted, linked, strict=True) if not is_there]
            large = [_Parts(store, file, policy, times) for file in absent if file.size_bytes > policy.part_bytes]
            small = [file for file in absent if file.size_bytes <= policy.part_bytes]
            running = [pool.submit(parts.fetch, offset) for parts in large for offset in parts.offsets]
            running += [pool.submit(_fetch_whole, store, file) for file in small]
            for one in running:
                one.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    if cold := [parts.path for parts in large if parts.went_direct]:
        warm_page_cache(cold, available_bytes() // 2)


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

    def __init__(self, store: ObjectStore, file: WantedFile, policy: DownloadPolicy, times: WriteTimes | None) -> None:
        self._store = store
        self._file = file
        self._times = times
        self.path = file.path
        self.offsets = range(0, file.size_bytes, policy.part_bytes)
        self.went_direct = False
        """Whether the file is not wholly in the page cache."""
        self._crc32: dict[int, int] = {}
        """By offset."""
        self._lock = threading.Lock()

    def fetch(self, offset: int) -> None:
        """Read and write the part there."""
        file, length = self._file, self._length(offset)
        begin_s = time.perf_counter()
        data = self._store.get_range(file.name, offset, length)
        crc = zlib.crc32(data)
        try:
            self._write(offset, data, time.perf_counter() - begin_s)
        except OSError as error:
            raise happened_not(error, f"writing {file.path}", file.name) from error
        with self._lock:
            self._crc32[offset] = crc
            is_last = len(self._crc32) == len(self.offsets)
        if is_last and self._whole_crc32() != file.crc32:
            raise _damaged(file, file.size_bytes)

    def _length(self, offset: int) -> int:
        return min(self.offsets.step, self._file.size_bytes - offset)

    def _whole_crc32(self) -> int:
        crc = 0
        for offset in self.offsets:
            crc = join_crc32(crc, self._crc32[offset], self._length(offset))
        return crc

    def _write(self, offset: int, data: bytes, read_s: float) -> None:
        is_direct = self._times is not None and self._times.is_direct_next()
        if is_direct:
            prepare_direct_write()  # once per thread, so it says nothing of this way
        begin_s, begin_cpu_s = time.perf_counter(), time.thread_time()
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if write_at(descriptor, memoryview(data), offset, is_direct=is_direct):
                self.went_direct = True
        finally:
            os.close(descriptor)
        if self._times is not None:
            write_s, cpu_s = time.perf_counter() - begin_s, time.thread_time() - begin_cpu_s
            self._times.add(PartTime(1, len(data), read_s, write_s, cpu_s), is_direct=is_direct)


def _damaged(file: WantedFile, size_bytes: int) -> CorruptDataError:
    return CorruptDataError(
        f"the file {file.path.name} has {size_bytes} bytes and another checksum than the {file.size_bytes} bytes that "
        "were uploaded; see `varvite verify JOB --repair`",
        object_name=file.name,
    )
