"""RocksDB, simulated: directories of immutable files like its own, without the library, so that it costs little.

`RocksDBStore`, the clipping of snapshots and the bulk load run unchanged on it. What was written and not flushed is
lost when the process is killed, as with RocksDB without its write-ahead log.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec

from tests.simulation.system import threads
from tests.simulation.system.scheduler import Crash
from varvite.changelog.restore import clip as snapshot_clip
from varvite.changelog.working_stores.rocksdb import batch as rocksdb_batch
from varvite.changelog.working_stores.rocksdb import bulk as rocksdb_bulk
from varvite.changelog.working_stores.rocksdb import store as rocksdb_store
from varvite.changelog.working_stores.rocksdb import sweep as rocksdb_sweep
from varvite.changelog.working_stores.rocksdb.database import Database, rocksdb_error
from varvite.changelog.working_stores.rocksdb.overlap import SstFile
from varvite.changelog.working_stores.rocksdb.settings.options import RocksDBOptions

FILES_MAX = 4
"""Files from which on they are compacted into one."""
LEVEL_MAX = 6
LEVEL_BYTES = 2_000
"""A larger database would have levels between."""
ROWS_END = b"\xff" * 64
FLUSH_EVERY = 3
"""Writes after which the memory is flushed."""
_open: set[str] = set()


class SimulatedBatch:
    """A write batch."""

    def __init__(self, *, raw_mode: bool = False) -> None:
        del raw_mode
        self.writes: list[tuple[bytes, bytes | None]] = []
        self.cleared: list[tuple[bytes, bytes]] = []
        """Ranges that are deleted before the writes: a batch of varvite deletes first."""

    def put(self, key: bytes, value: bytes) -> None:
        self.writes.append((key, value))

    def delete(self, key: bytes) -> None:
        self.writes.append((key, None))

    def delete_range(self, begin: bytes, end: bytes) -> None:
        self.cleared.append((begin, end))


class SimulatedSstWriter:
    """Writes one SST file."""

    def __init__(self, _options: object) -> None:
        self._rows: list[tuple[bytes, bytes]] = []
        self._path = ""

    def open(self, path: str) -> None:
        self._path = path

    def __setitem__(self, key: bytes, value: bytes) -> None:
        self._rows.append((key, value))

    def file_size(self) -> int:
        return 0

    def finish(self) -> None:
        Path(self._path).write_bytes(msgspec.msgpack.encode(self._rows))


class _Manifest(msgspec.Struct):
    next_number: int = 1
    files: tuple[str, ...] = ()


class SimulatedDatabase(Crash):
    """In the place of `varvite.changelog.working_stores.rocksdb.database.Database`."""

    def __init__(self, directory: Path, options: RocksDBOptions, *, create: bool, read_only: bool = False) -> None:
        self.directory, self.level_size_bytes = directory, LEVEL_BYTES
        self._files_max = FILES_MAX + options.level0_files_extra
        self._path = str(directory)
        self._read_only = read_only
        self._is_closed = False
        self._writes = 0
        self._rows: dict[bytes, bytes] = {}
        self._dirty: dict[bytes, bytes | None] = {}
        self._manifest = self._opened(create=create)
        self.read = self._rows.get
        if not read_only:
            _open.add(self._path)
            task = threads.scheduler().current
            if task is not None:
                task.process.resources.append(self)

    def _opened(self, *, create: bool) -> _Manifest:
        if self._path in _open:
            raise rocksdb_error(OSError("IO error: lock hold by current process"), self.directory)
        if not (self.directory / "CURRENT").exists():
            if not create:
                raise rocksdb_error(OSError("Invalid argument: does not exist"), self.directory)
            self.directory.mkdir(exist_ok=True)
            return _Manifest()
        try:
            name = (self.directory / "CURRENT").read_text()
            manifest = msgspec.json.decode((self.directory / name).read_bytes(), type=_Manifest)
            for file in manifest.files:
                self._apply(msgspec.msgpack.decode((self.directory / file).read_bytes(), type=list[Any]))
        except (OSError, msgspec.DecodeError) as error:
            raise rocksdb_error(OSError(f"Corruption: {error}"), self.directory) from error
        return manifest

    def _apply(self, rows: Sequence[tuple[bytes, bytes | None]]) -> None:
        held = self._rows
        for key, value in rows:
            if value is None:
                held.pop(key, None)
            else:
                held[key] = value

    def get(self, key: bytes) -> bytes | None:
        return self._rows.get(key)

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter(sorted((key, value) for key, value in self._rows.items() if start <= key < end))

    def count_estimate(self) -> int:
        return len(self._rows)

    def write(self, batch: SimulatedBatch) -> None:
        if self._is_closed:
            raise rocksdb_error(OSError("IO error: closed"), self.directory)
        gone = [key for begin, end in batch.cleared for key in self._rows if begin <= key < end]
        writes = [*((key, None) for key in gone), *batch.writes]
        self._apply(writes)
        self._dirty.update(writes)
        self._writes += 1
        if self._writes % FLUSH_EVERY == 0:
            self.flush()

    def ingest(self, files: Sequence[Path]) -> None:
        self.flush()
        for file in files:
            name = self._next_name()
            file.rename(self.directory / name)
            self._apply(msgspec.msgpack.decode((self.directory / name).read_bytes(), type=list[Any]))
            self._add(name)

    def flush(self) -> None:
        if self._is_closed or self._read_only:
            return
        if self._dirty or not self._manifest.files:
            self._write_file(sorted(self._dirty.items()))
            self._dirty.clear()
        if len(self._manifest.files) >= self._files_max:
            self.compact([(b"", ROWS_END)])

    def live_bytes_estimate(self) -> int:
        return sum(len(key) + len(value) for key, value in self._rows.items())

    def files(self) -> list[SstFile]:
        """A file is of the lowest level if it overlaps no older one."""
        found: list[SstFile] = []
        for name in self._manifest.files:
            path = self.directory / name
            keys = [key for key, _ in msgspec.msgpack.decode(path.read_bytes(), type=list[Any])]
            if keys:
                first, last = min(keys), max(keys)
                level = 0 if any(first <= old.last and old.first <= last for old in found) else LEVEL_MAX
                found.append(SstFile(name, level, first, last, path.stat().st_size))
        return found

    def compact_flushed(self) -> None:
        """There are no levels between: all is rewritten."""
        self.compact([(b"", ROWS_END)])

    def compact_as_usual(self) -> None:
        """Nothing waits to be compacted."""

    def compact_some(self) -> None:
        """Files are compacted as soon as there are `FILES_MAX`, whatever a snapshot had."""

    def compact(self, spans: Iterable[tuple[bytes, bytes]]) -> None:
        for first, last in spans:
            old = [file for file in self.files() if first <= file.last and file.first <= last]
            if len(old) > 1:
                begin, end = min(file.first for file in old), max(file.last for file in old)
                self._rewrite([file.name for file in old], begin, end)

    def _rewrite(self, old: Sequence[str], first: bytes, last: bytes) -> None:
        """One file with the live rows of these files; newer ones say the same or that a row is gone."""
        self._manifest.files = tuple(name for name in self._manifest.files if name not in old)
        rows = [(key, value) for key, value in sorted(self._rows.items()) if first <= key <= last]
        if rows or not self._manifest.files:
            self._write_file(rows)
        else:
            _write_manifest(self.directory, self._manifest)
        for file in old:
            (self.directory / file).unlink()

    def checkpoint(self, directory: Path) -> None:
        self.flush()
        directory.mkdir()
        for file in self._manifest.files:
            os.link(self.directory / file, directory / file)
        _write_manifest(directory, self._manifest)

    def close(self) -> None:
        if not self._is_closed:
            self.flush()
            self._end()

    def crash(self) -> None:
        if not self._is_closed:
            self._end()

    def _end(self) -> None:
        self._is_closed = True
        if not self._read_only:
            _open.discard(self._path)

    def _next_name(self) -> str:
        name = f"{self._manifest.next_number:06d}.sst"
        self._manifest.next_number += 1
        return name

    def _write_file(self, rows: Sequence[tuple[bytes, bytes | None]]) -> None:
        name = self._next_name()
        (self.directory / name).write_bytes(msgspec.msgpack.encode(rows))
        self._add(name)

    def _add(self, name: str) -> None:
        self._manifest.files = (*self._manifest.files, name)
        _write_manifest(self.directory, self._manifest)


def _write_manifest(directory: Path, manifest: _Manifest) -> None:
    name = f"MANIFEST-{manifest.next_number:06d}"
    (directory / name).write_bytes(msgspec.json.encode(manifest))
    (directory / "CURRENT.tmp").write_text(name)
    (directory / "CURRENT.tmp").replace(directory / "CURRENT")
    for old in directory.glob("MANIFEST-*"):
        if old.name != name:
            old.unlink()


class RealDatabase(Database, Crash):
    """The product's own, on RocksDB; when its process is killed it is closed, so that nothing is lost."""

    def __init__(self, directory: Path, options: RocksDBOptions, *, create: bool, read_only: bool = False) -> None:
        super().__init__(directory, options, create=create, read_only=read_only)
        task = threads.scheduler().current
        if task is not None:
            task.process.resources.append(self)

    def crash(self) -> None:
        self.close()


@contextmanager
def real_rocksdb() -> Iterator[None]:
    """RocksDB stores are what they are, and end with the simulated process that has opened them."""
    with ExitStack() as stack:
        for module in (rocksdb_store, snapshot_clip, rocksdb_bulk):
            stack.enter_context(mock.patch.object(module, "Database", RealDatabase))
        yield


@contextmanager
def simulated_rocksdb() -> Iterator[None]:
    """Every RocksDB store of this process is a simulated one."""
    with ExitStack() as stack:
        for module in (rocksdb_store, snapshot_clip, rocksdb_bulk):
            stack.enter_context(mock.patch.object(module, "Database", SimulatedDatabase))
        for module in (rocksdb_store, snapshot_clip, rocksdb_batch, rocksdb_sweep):
            stack.enter_context(mock.patch.object(module, "WriteBatch", SimulatedBatch))
        stack.enter_context(mock.patch.object(rocksdb_bulk, "SstFileWriter", SimulatedSstWriter))
        stack.enter_context(mock.patch.object(rocksdb_bulk, "rocksdict_options", lambda _options, create: create))
        _open.clear()
        yield
