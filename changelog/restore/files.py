"""The files of a RocksDB snapshot: describes them after writing, and fetches them for a restore.

A snapshot is `CURRENT`, one `MANIFEST-*`, `rocksdict-config.json` and SST files; all but the SST files are small. An
SST file never changes, and a later snapshot of the same store has it under the same name while it is part of the state.
Two stores may use one name for different files: only name, size and CRC together say that a file is the same.

Invariants: I8 (size and CRC of each fetched file are checked), I9 (a fetch that fails leaves nothing behind).
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from varvite.storage.errors import CorruptDataError, InvalidRequestError, LocalDataError
from varvite.storage.object_stores.local.errors import did_not_happen
from varvite.storage.private_directories import TemporaryDirectory
from varvite.storage.transfer.download import DownloadPolicy, FileDownload, download, file_crc32

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

    from varvite.storage.format.records import SnapshotFile
    from varvite.storage.object_stores.contract import ObjectStore

DOWNLOADS: Final = DownloadPolicy()
"""The limits for callers that have no policy of their own."""
# Not part of the state: the lock, the info log, RocksDB's record of its options (stores are opened with ours).
_LEFT_OUT: Final = ("LOCK", "LOG", "IDENTITY", "OPTIONS-")


class LocalFile(NamedTuple):
    """A file of a snapshot on local disk."""

    file: str
    path: Path
    size_bytes: int
    crc32: int


class FileChecksums:
    """Computes the CRC of files that are hard links of each other once; for the snapshots of one store."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, int, int], int] = {}

    def crc32(self, path: Path) -> int:
        """The CRC-32 of a file that never changes."""
        status = path.stat()
        identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if identity not in self._known:
            self._known[identity] = file_crc32(path)
        return self._known[identity]


def describe_snapshot(directory: Path, checksums: FileChecksums | None = None) -> tuple[LocalFile, ...]:
    """The files of a snapshot that belong to the state, by name.

    Args:
        directory: What `WorkingStore.write_snapshot` wrote.
        checksums: Of earlier snapshots of the same store.
    """
    checksums = checksums or FileChecksums()
    files: list[LocalFile] = []
    for path in sorted(directory.iterdir()):
        size_bytes = path.stat().st_size
        # The write-ahead log is off, so its file is empty; one that is not would be state.
        if path.name.startswith(_LEFT_OUT) or (path.suffix == ".log" and size_bytes == 0):
            continue
        files.append(LocalFile(path.name, path, size_bytes, checksums.crc32(path)))
    if not any(file.file == "CURRENT" for file in files):
        raise InvalidRequestError("the directory is not a RocksDB snapshot", object_name=str(directory))
    return tuple(files)


def fetch_snapshot(
    store: ObjectStore, files: Sequence[SnapshotFile], directory: Path, policy: DownloadPolicy = DOWNLOADS
) -> None:
    """Fetch a snapshot into `directory`, which must not exist; see `fetch_snapshots`."""
    fetch_snapshots(store, [(files, directory)], policy)


def check_file(store: ObjectStore, file: SnapshotFile) -> None:
    """Fetch one file to check it. Raises as `fetch_snapshots`."""
    with TemporaryDirectory("check") as scratch:
        fetch_snapshot(store, [file], scratch / "file", DownloadPolicy(requests=1))


def fetch_snapshots(
    store: ObjectStore,
    snapshots: Sequence[tuple[Sequence[SnapshotFile], Path]],
    policy: DownloadPolicy = DOWNLOADS,
    reuse: Sequence[Path] = (),
) -> int:
    """Fetch several snapshots at the same time, each into a directory that must not exist.

    Args:
        store: Holds the files.
        snapshots: The files of each, and the directory to make.
        policy: Limits of what is fetched at the same time.
        reuse: Directories of older states: identical SST files in them are linked, not downloaded. They may be in use
            meanwhile.

    Returns:
        The number of bytes that were linked and not downloaded.

    Raises:
        MissingObjectError, CorruptDataError: names the object; the directories are then removed.
    """
    for file in (file for files, _ in snapshots for file in files):
        if "/" in file.file or file.file in ("", ".", ".."):
            raise CorruptDataError(f"a snapshot lists a file called {file.file!r}", object_name=file.name)
    try:
        missing: list[FileDownload] = []
        reused_bytes = 0
        for files, directory in snapshots:
            try:
                directory.mkdir(parents=True)
            except OSError as error:
                raise did_not_happen(error, f"making {directory} for a snapshot") from error
            for file in files:
                path = directory / file.file
                if any(_link_if_same(old / file.file, path, file) for old in reuse):
                    reused_bytes += file.size_bytes
                else:
                    missing.append(FileDownload(file.name, path, file.size_bytes, file.crc32, _never_changes(path)))
        download(store, missing, policy)
    except BaseException:
        for _, directory in snapshots:
            shutil.rmtree(directory, ignore_errors=True)
        raise
    return reused_bytes


@contextmanager
def reading_fetched(name: str) -> Generator[None]:
    """Name the snapshot in an error of fetched files: they are those that it lists, so another fetch helps nobody."""
    try:
        yield
    except LocalDataError as error:
        raise CorruptDataError(
            "the files of the snapshot have the checksums that it lists, and yet cannot be read; see `varvite verify "
            f"JOB --repair` ({error.__cause__ or error.message})",
            object_name=name,
        ) from error


def _link_if_same(old: Path, path: Path, file: SnapshotFile) -> bool:
    """Link the old file to `path` if it is this file of the snapshot, and tell whether it is."""
    if not _never_changes(old):
        return False
    try:
        if old.stat().st_size != file.size_bytes or file_crc32(old) != file.crc32:
            return False
        os.link(old, path)
    except OSError:  # not there, or on another filesystem
        return False
    return True


def _never_changes(path: Path) -> bool:
    """Tell whether a store that is opened on the file never writes to it: it only deletes the name."""
    return path.suffix == ".sst"
