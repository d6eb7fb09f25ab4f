"""One RocksDB directory: rocksdict in raw mode, without write-ahead log, with varvite's errors.

Without the log a crash loses the memtables, the newest data first: a database has one column family, a write batch goes
into one memtable as a whole, and memtables reach the disk in order. So a reopened directory holds the state after
*some* write batch, never a part of one (I9; local recovery).

Invariants: I8 (a damaged block is an error, never a missing row. rocksdict's `items()` ends silently at one, so scans
use the iterator that has a status).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rocksdict import (
    AccessType,
    Checkpoint,
    DbClosedError,
    IngestExternalFileOptions,
    Rdict,
    ReadOptions,
    WriteOptions,
)

from varvite.changelog.working_stores.rocksdb.overlap import SstFile
from varvite.changelog.working_stores.rocksdb.settings.options import RocksDBOptions, level0_files, rocksdict_options
from varvite.storage.clock import SystemClock
from varvite.storage.errors import (
    DidNotHappenError,
    InvalidRequestError,
    InvariantError,
    LocalDataError,
    MayHaveHappenedError,
    VarviteError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from rocksdict import WriteBatch

BATCHES_PER_COMPACTION: Final = 8
_TRIGGER: Final = "level0_file_num_compaction_trigger"
_OPENED_EXTRA: Final = 1 << 20
"""More flushed files than any database has, so that nothing is compacted before they are counted."""
_COMPACTION_TRIGGER: Final = level0_files(0)[_TRIGGER]
_POLL_S: Final = 0.01
_CLOCK: Final = SystemClock()
"""The only clock that RocksDB's threads follow."""
_MANIFEST_BLOCK_BYTES: Final = 32 << 10
_MANIFEST_HEADER_BYTES: Final = 7
"""Of a record: checksum, length, kind."""
_MANIFEST_KINDS: Final = range(5)
"""A whole record, its first, middle and last part; 0 is space that was only reserved."""
_LOCKED: Final = ("lock hold by current process", "While lock file", "No locks available")


class Database:
    """An open RocksDB directory; used by one thread at a time."""

    def __init__(self, directory: Path, options: RocksDBOptions, *, create: bool, read_only: bool = False) -> None:
        """Open, or make if `create`.

        Raises:
            LocalDataError: the directory is damaged.
            DidNotHappenError: another process has it open.
            InvalidRequestError: there is no database and `create` is false, or the directory cannot be written.
        """
        self.directory = directory
        self.level_size_bytes: Final = options.level_base_size_bytes
        """A larger database has levels between the flushed files and the lowest level (`RocksDBOptions`)."""
        _check_manifests(directory)
        access = AccessType.read_only(False) if read_only else AccessType.read_write()
        try:
            opened = replace(options, level0_files_extra=options.level0_files_extra + _OPENED_EXTRA)
            raw_options = rocksdict_options(opened, create=create)
            # Without the column family rocksdict would use the options that the database stored last time.
            families = {"default": raw_options}
            self._rdict = Rdict(str(directory), raw_options, column_families=families, access_type=access)
        except Exception as error:
            raise rocksdb_error(error, self.directory) from error
        self._extra, self._tolerated, self._calls = options.level0_files_extra, 0, 0
        if not read_only:
            self._tolerate_existing_files()
        self._write_options = WriteOptions()
        self._write_options.disable_wal = True  # pyright: ignore[reportAttributeAccessIssue] - a property, not a method
        # Batches are sorted by key; the hint then makes each insert a step from the last one (six times faster).
        self._write_options.memtable_insert_hint_per_batch = True
        self.read: Final = self._rdict.get
        """`read(key)`: the value, or None; raises rocksdict's errors as they are (`rocksdb_error` translates them)."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, or None."""
        try:
            return self.read(key)
        except Exception as error:
            raise rocksdb_error(error, self.directory) from error

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Rows with `start <= key < end` in order of key, as of now."""
        # rocksdict's iterator points into the options: they must live as long as it does, as this frame's variable.
        options = ReadOptions()
        options.set_iterate_upper_bound(end)
        try:
            cursor = self._rdict.iter(options)
            cursor.seek(start)
            valid, key, value, advance = cursor.valid, cursor.key, cursor.value, cursor.next
            while valid():
                yield key(), value()
                advance()
            cursor.status()
        except Exception as error:
            raise rocksdb_error(error, self.directory) from error

    def count_estimate(self) -> int:
        """Approximate number of rows."""
        return self._rdict.property_int_value("rocksdb.estimate-num-keys") or 0

    def write(self, batch: WriteBatch) -> None:
        """Write a batch, all of it or nothing."""
        try:
            self._rdict.write(batch, self._write_options)
        except Exception as error:
            raise rocksdb_error(error, self.directory) from error

    def ingest(self, files: Sequence[Path]) -> None:
        """Add SST files to the database, all of them or none; the files are moved.

        Only after `flush`, if data was written: a crash would keep the files and lose the older rows.
        """
        options = IngestExternalFileOptions()
        options.set_move_files(True)
        try:
            self._rdict.ingest_external_file([str(file) for file in files], options)
        except Exception as error:
            raise rocksdb_error(error, self.directory) from error

    def flush(self) -> None:
        """Write all memtables to disk."""
        try:
            self._rdict.flush(True)
        except Exception as error:
            raise rocksdb_error(error, self.directory) from error

    def live_bytes_estimate(self) -> int:
        """Approximate bytes of files that are not overwritten or deleted; too few before the first compaction."""
        return self._rdict.property_int_value("rocksdb.estimate-live-data-size") or 0

    def files(self) -> list[SstFile]:
        """All SST files."""
        return [
            SstFile(file["name"], file["level"], file["start_key"], file["end_key"], file["size"])
            for file in self._rdict.live_files()
        ]

    def compact_as_usual(self) -> None:
        """End `RocksDBOptions.level0_files_extra`; waiting files are compacted in the background."""
        self._extra = 0
        self._tolerate_level0_files()

    def compact_some(self) -> None:
        """Called after each batch: have some of the flushed files compacted that were there when it was opened.

        Every `BATCHES_PER_COMPACTION` calls those of one cluster (`varvite.changelog.working_stores.rocksdb.overlap`).
        """
        self._calls += 1
        if not self._tolerated or self._calls % BATCHES_PER_COMPACTION:
            return
        self._tolerated = max(0, self._level0_files() - _COMPACTION_TRIGGER)
        self._tolerate_level0_files()

    def compact(self, spans: Iterable[tuple[bytes, bytes]]) -> None:
        """Rewrite the files with keys in one of the spans (both ends inclusive) without replaced or deleted rows.

        A flushed file that overlaps no other is moved to the lowest level as it is.
        """
        try:
            for first, last in spans:
                self._rdict.compact_range(first, last)
        except Exception as error:
            raise rocksdb_error(error, self.directory) from error

    def compact_flushed(self) -> None:
        """Have RocksDB compact all flushed files into the level that follows, and wait for it.

        In a small database that is the lowest one; a large one keeps levels between, so that not all is rewritten.
        """
        self._set_options({_TRIGGER: "1"})
        while self._level0_files() and self._is_compacting():
            _CLOCK.sleep(_POLL_S)
        self._tolerate_level0_files()

    def _is_compacting(self) -> bool:
        """Does RocksDB compact, or will it? Not if it failed to, as on a full disk."""
        properties = ("rocksdb.compaction-pending", "rocksdb.num-running-compactions")
        failed = self._rdict.property_int_value("rocksdb.background-errors")
        return not failed and any(self._rdict.property_int_value(name) for name in properties)

    def _tolerate_existing_files(self) -> None:
        """Leave the flushed files, of which a snapshot may have many, until the usual number of others are on top.

        Otherwise all of the state would be compacted just as the first batches arrive. Nothing may be compacted before:
        a compaction restores, when it ends, the limits that were set when it began, and writes would wait for ever.
        """
        files = self._level0_files()
        self._tolerated = files if files >= _COMPACTION_TRIGGER else 0
        self._tolerate_level0_files()

    def _level0_files(self) -> int:
        return self._rdict.property_int_value("rocksdb.num-files-at-level0") or 0

    def _tolerate_level0_files(self) -> None:
        files = level0_files(self._extra + self._tolerated)
        self._set_options({name: str(count) for name, count in files.items()})

    def _set_options(self, options: dict[str, str]) -> None:
        try:
            self._rdict.set_options(options)
        except Exception as error:
            raise rocksdb_error(error, self.directory) from error

    def checkpoint(self, directory: Path) -> None:
        """Make `directory`, which must not exist, a copy of the database whose SST files are hard links."""
        try:
            Checkpoint(self._rdict).create_checkpoint(str(directory))
        except Exception as error:
            raise rocksdb_error(error, self.directory) from error

    def close(self) -> None:
        """Flush and release the directory; idempotent."""
        try:
            self._rdict.close()
        except DbClosedError:
            return
        except Exception as error:
            raise rocksdb_error(error, self.directory) from error


def _check_manifests(directory: Path) -> None:
    """Refuse a manifest with records of a kind that none has: RocksDB would read it for ever.

    The checksums of records are RocksDB's business. Raises `LocalDataError`.
    """
    for path in directory.glob("MANIFEST-*"):
        try:
            data = path.read_bytes()
        except OSError as error:
            raise rocksdb_error(error, directory) from error
        for start in range(0, len(data), _MANIFEST_BLOCK_BYTES):
            block = data[start : start + _MANIFEST_BLOCK_BYTES]
            at = 0
            while at + _MANIFEST_HEADER_BYTES <= len(block):
                if block[at + 6] not in _MANIFEST_KINDS:
                    damage = RuntimeError(f"Corruption: {path.name} has a record of kind {block[at + 6]}")
                    raise rocksdb_error(damage, directory)
                at += _MANIFEST_HEADER_BYTES + int.from_bytes(block[at + 4 : at + 6], "little")


def rocksdb_error(error: Exception, directory: Path) -> VarviteError:
    """The varvite error of an error of rocksdict."""
    if isinstance(error, VarviteError):
        return error
    text, place = f"RocksDB in {directory}: {error}", str(directory)
    if str(error).startswith("Corruption") or "No such file or directory" in str(error):
        return LocalDataError(f"{text}; remove the directory: the state is restored from storage", object_name=place)
    if any(sign in str(error) for sign in _LOCKED):
        return DidNotHappenError(f"{text}; it is open elsewhere, wait until that process has ended", object_name=place)
    if str(error).startswith("Invalid argument"):
        return InvalidRequestError(f"{text}; correct the directory or the options", object_name=place)
    # The second form is of rocksdict itself, before it calls RocksDB.
    if str(error).startswith("IO error") or "(os error " in str(error):
        full = "No space left on device" in str(error)
        advice = "the local disk is full: free space" if full else "check permissions and health of the local disk"
        return MayHaveHappenedError(f"{text}; {advice}, then try again", object_name=place)
    return InvariantError(text, object_name=place)
