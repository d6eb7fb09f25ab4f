"""The files of a RocksDB snapshot: telling what they are after writing, and fetching them for a restore.

A snapshot is `CURRENT`, one `MANIFEST-*`, `rocksdict-config.json` and SST files; all but the SST files are small. An
SST file never changes, and a later snapshot of the same store has it under the same name while it is part of the state.
Two stores may use one name for different files: only name, size and CRC together say that a file is the same.

Invariants: I8 (size and CRC of each fetched file are checked), I9 (a fetch that fails leaves nothing behind).
"""

from __future__ import annotations

import shutil
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, NamedTuple

from varve.storage.errors import CorruptDataError, InvalidRequestError
from varve.storage.local_errors import happened_not

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from varve.storage.object_store import ObjectStore
    from varve.storage.records import SnapshotFile

FETCH_THREADS: Final = 4
_CHUNK_BYTES: Final = 1 << 20
# Not part of the state: the lock, the info log, RocksDB's own record of its options (we open with ours).
_LEFT_OUT: Final = ("LOCK", "LOG", "IDENTITY", "OPTIONS-")


class LocalFile(NamedTuple):
    """A file of a snapshot on local disk."""

    file: str
    path: Path
    size_bytes: int
    crc32: int


class FileChecksums:
    """CRCs of files that are hard links of each other are computed once; for the snapshots of one store."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, int, int], int] = {}

    def crc32(self, path: Path) -> int:
        """The CRC-32 of a file that never changes."""
        status = path.stat()
        identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if identity not in self._known:
            self._known[identity] = file_crc32(path)
        return self._known[identity]


def file_crc32(path: Path) -> int:
    """The CRC-32 of a file."""
    crc = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            crc = zlib.crc32(chunk, crc)
    return crc


def describe_snapshot(directory: Path, checksums: FileChecksums | None = None) -> tuple[LocalFile, ...]:
    """The files of a snapshot that belong to the state, by name.

    Args:
        directory: What `WorkingStore.write_snapshot` wrote.
        checksums: What is known from earlier snapshots of the same store.
    """
    known = checksums or FileChecksums()
    found: list[LocalFile] = []
    for path in sorted(directory.iterdir()):
        size_bytes = path.stat().st_size
        # The write-ahead log is off, so its file is empty; one that is not would be state.
        if path.name.startswith(_LEFT_OUT) or (path.suffix == ".log" and size_bytes == 0):
            continue
        found.append(LocalFile(path.name, path, size_bytes, known.crc32(path)))
    if not any(file.file == "CURRENT" for file in found):
        raise InvalidRequestError("the directory is not a RocksDB snapshot", object_name=str(directory))
    return tuple(found)


def fetch_snapshot(
    store: ObjectStore, files: Sequence[SnapshotFile], directory: Path, threads: int = FETCH_THREADS
) -> None:
    """Fetch a snapshot into `directory`, which must not exist; several files at once.

    Raises `MissingObjectError` or `CorruptDataError` naming the object; the directory is then removed.
    """
    for file in files:
        if "/" in file.file or file.file in ("", ".", ".."):
            raise CorruptDataError(f"a snapshot lists a file called {file.file!r}", object_name=file.name)
    try:
        directory.mkdir(parents=True)
    except OSError as error:
        raise happened_not(error, f"making {directory} for a snapshot") from error
    try:
        with ThreadPoolExecutor(threads, "varve-fetch") as pool:
            fetches = [pool.submit(_fetch, store, file, directory / file.file) for file in files]
            try:
                for fetch in fetches:
                    fetch.result()
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def _fetch(store: ObjectStore, file: SnapshotFile, path: Path) -> None:
    store.get_file(file.name, path)
    size_bytes = path.stat().st_size
    if size_bytes != file.size_bytes or file_crc32(path) != file.crc32:
        raise CorruptDataError(
            f"the snapshot's file {file.file} has {size_bytes} bytes and another checksum than the {file.size_bytes} "
            "bytes that were uploaded; restore an older checkpoint or repair the object",
            object_name=file.name,
        )
