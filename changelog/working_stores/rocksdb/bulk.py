"""RocksDB directories from sorted rows: SST files are written one after the other and ingested at once.

Three times faster than write batches, and without compaction debt. `write_table_snapshot` writes the snapshots of other
stores, `SstBuilder` also joins rows of several directories (`varvite.changelog.restore.clip`).

Invariants: I5 (a snapshot holds exactly the rows of its tables), I10 (one state of one key group in memory at once).
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from rocksdict import SstFileWriter

from varvite.changelog.segments.columns import LIST, MAP, TIMERS, map_key_type, type_of
from varvite.changelog.types.key_wire import key_writer
from varvite.changelog.types.stamped import is_stamped
from varvite.changelog.working_stores.rocksdb.database import Database, rocksdb_error
from varvite.changelog.working_stores.rocksdb.keys import element, header, prefix
from varvite.changelog.working_stores.rocksdb.metadata import (
    MARKER_KEY,
    STATES_KEY,
    VERSION_KEY,
    RegisteredState,
    StoreVersion,
    new_marker,
)
from varvite.changelog.working_stores.rocksdb.settings.options import RocksDBOptions, rocksdict_options
from varvite.storage.errors import InvalidRequestError, InvariantError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from varvite.storage.format.records import Link, StateSchema

TableRows: TypeAlias = "Iterable[tuple[Any, ...]]"
"""The `items()` of a table, key groups ascending, keys in any order; stored forms:
value-like (key group, key, value); map (key group, key, map key, value or None); list (key group, key, elements);
timers (key group, packed timer)."""

SEQ_OF_COPIES: Final = 0
"""Seq of list elements from stores that keep none; below that of every batch, so that appended elements come after."""
_CHECK_EVERY: Final = 1024


class SstBuilder:
    """Writes rows, keys strictly ascending, to SST files of bounded size in `directory`, which must exist."""

    def __init__(self, directory: Path, options: RocksDBOptions) -> None:
        self._directory = directory
        self._options = options
        self._writer: SstFileWriter | None = None
        self._rows = 0
        self.files: list[Path] = []
        """Files begun so far; all complete after `finish`."""

    def add(self, key: bytes, value: bytes) -> None:
        """Append a row."""
        writer = self._writer or self._begin()
        try:
            writer[key] = value
        except Exception as error:
            raise rocksdb_error(error, self._directory) from error
        self._rows += 1
        if self._rows % _CHECK_EVERY == 0 and writer.file_size() >= self._options.target_file_size_bytes:
            self.finish()

    def finish(self) -> None:
        """Complete the current file."""
        if self._writer is None:
            return
        try:
            self._writer.finish()
        except Exception as error:
            raise rocksdb_error(error, self._directory) from error
        self._writer = None

    def _begin(self) -> SstFileWriter:
        path = self._directory / f"bulk-{len(self.files):06d}.sst"
        self._writer = SstFileWriter(rocksdict_options(self._options, create=True))
        self._writer.open(str(path))
        self.files.append(path)
        return self._writer


def write_table_snapshot(
    directory: Path,
    *,
    operator: str,
    key_type: str,
    low: int,
    high: int,
    version: Link,
    tables: Sequence[tuple[StateSchema, TableRows]],
    options: RocksDBOptions | None = None,
) -> None:
    """Write a RocksDB snapshot of these tables into `directory`, which must not exist (its parent must).

    `WorkingStore.write_snapshot` of stores that are not RocksDB calls it. The result is a directory for
    `RocksDBStore.open`, with files as `varvite.changelog.restore.files` describes them.

    Args:
        directory: Of the snapshot.
        operator: The operator's uid.
        key_type: Type string of its keys.
        low: First key group, inclusive.
        high: Last key group, exclusive.
        version: The commit whose state it is.
        tables: Each state's schema and rows, in order of registration. Rows of key groups outside of the range, or in
            descending order of key group, are an `InvariantError`.
        options: Memory, disk and threads; None for the defaults.
    """
    if directory.exists():
        raise InvalidRequestError("the snapshot's directory exists already", object_name=str(directory))
    states = tuple(RegisteredState(id=i, schema=schema) for i, (schema, _) in enumerate(tables))
    options = options or RocksDBOptions()
    database = Database(directory, options, create=True)
    try:
        builder = SstBuilder(directory, options)
        for key, value in _all_rows(states, [rows for _, rows in tables], key_type, range(low, high)):
            builder.add(key, value)
        builder.finish()  # in a file of their own, so that no file of rows has to be rewritten with them
        builder.add(MARKER_KEY, msgspec.json.encode(new_marker(operator, key_type, low, high)))
        builder.add(STATES_KEY, msgspec.json.encode(states))
        builder.add(VERSION_KEY, msgspec.json.encode(StoreVersion(at=version)))
        builder.finish()
        database.ingest(builder.files)
    finally:
        database.close()


def _all_rows(
    states: Sequence[RegisteredState], tables: Sequence[TableRows], key_type: str, key_groups: range
) -> Iterator[tuple[bytes, bytes]]:
    """The rows of all tables in order of key."""
    encoders = [_row_encoder(state, key_type) for state in states]
    streams = [groupby(rows, key=itemgetter(0)) for rows in tables]
    heads = [next(stream, None) for stream in streams]
    for key_group in key_groups:
        for i, state in enumerate(states):
            head = heads[i]
            if head is not None and head[0] == key_group:
                yield from sorted(encoders[i](prefix(key_group, state.id), head[1]))
                heads[i] = next(streams[i], None)
    for state, head in zip(states, heads, strict=True):
        if head is not None:
            raise InvariantError(f"state {state.schema.name!r} has key group {head[0]} out of order or of {key_groups}")


def _row_encoder(
    state: RegisteredState, key_type: str
) -> Callable[[bytes, Iterable[tuple[Any, ...]]], Iterator[tuple[bytes, bytes]]]:
    """(prefix, rows of one key group) → rows of the database."""
    to_key = key_writer(type_of(key_type))
    to_value = type_of(state.schema.value_type).to_wire
    head = header(state.schema.version, stamped=is_stamped(state.schema.value_type))

    def values(start: bytes, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[bytes, bytes]]:
        for _, key, value in rows:
            yield start + to_key(key), head + to_value(value)

    def entries(start: bytes, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[bytes, bytes]]:
        to_map_key = map_key_type(state.schema).to_wire
        for _, key, map_key, value in rows:
            yield start + to_key(key) + to_map_key(map_key), head if value is None else head + to_value(value)

    def elements(start: bytes, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[bytes, bytes]]:
        for _, key, stored in rows:
            start_of_key = start + to_key(key)
            for position, value in enumerate(stored):
                yield start_of_key + element(SEQ_OF_COPIES, position), head + to_value(value)

    def timers(start: bytes, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[bytes, bytes]]:
        for _, packed in rows:
            yield start + packed, head

    return {LIST: elements, MAP: entries, TIMERS: timers}.get(state.schema.kind, values)
