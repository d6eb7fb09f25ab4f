"""One operator's key groups as files of a canonical savepoint, and RocksDB snapshots built from such files.

Invariants: I5 (the snapshot holds exactly the rows of the files, at the commit of the savepoint), I8 (size and CRC-32
of each file are checked).
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from varvite.changelog.restore.files import LocalFile, describe_snapshot
from varvite.changelog.restore.restore import RestoreTarget, restore
from varvite.changelog.segments.batch import Batch
from varvite.changelog.segments.columns import LIST, type_of
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.materializer.savepoints.parquet import read_state, write_state
from varvite.storage.errors import CorruptDataError
from varvite.storage.format import layout
from varvite.storage.format.records import StateFile, TableFile
from varvite.storage.transfer.download import file_crc32

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from varvite.changelog.chain.view import LineView
    from varvite.storage.format.records import Link, OperatorLayout
    from varvite.storage.object_stores.contract import ObjectStore


F = TypeVar("F", StateFile, TableFile)


class WrittenFile(NamedTuple, Generic[F]):
    """A file of a savepoint on local disk."""

    record: F
    path: Path


def write_range(
    view: LineView, operator: OperatorLayout, key_groups: range, token: str, store: ObjectStore, scratch: Path
) -> Iterator[WrittenFile[StateFile]]:
    """Write the rows of some key groups after the view's commit, one file per state that has any.

    Args:
        view: The view of the commit.
        operator: The operator in that commit.
        key_groups: The key groups.
        token: The savepoint's token.
        store: The job's store.
        scratch: An empty directory; emptied again.

    Raises the errors of `restore`.
    """
    low, high = key_groups.start, key_groups.stop
    target = RestoreTarget(operator=operator.uid, key_type=operator.key_type, low=low, high=high)
    state = restore(view, target, store, scratch / "store")
    try:
        path = scratch / "rows.parquet"
        for schema in operator.states:
            state.register(schema)  # the checkpoint may have a newer version than any row
            rows = write_state(path, state, type_of(operator.key_type), schema)
            if rows:
                name = layout.savepoint_file(token, operator.uid, schema.name, low, high)
                size_bytes = path.stat().st_size
                record = StateFile(operator.uid, schema.name, low, high, name, rows, size_bytes, file_crc32(path))
                yield WrittenFile(record, path)
                path.unlink()
    finally:
        state.close()
        shutil.rmtree(scratch / "store", ignore_errors=True)


def build_snapshot(
    operator: OperatorLayout, files: Sequence[StateFile], version: Link, store: ObjectStore, scratch: Path
) -> tuple[LocalFile, ...]:
    """Build a RocksDB snapshot, in `scratch`, of the rows of these files, all of the same key groups.

    Args:
        operator: The operator in the savepoint's commit.
        files: At least one file.
        version: That commit.
        store: Store of the files.
        scratch: An empty directory; the caller empties it.

    Raises:
        MissingObjectError, CorruptDataError: a file is missing or damaged.
    """
    low, high = files[0].low, files[0].high
    schemas = {schema.name: schema for schema in operator.states}
    state = RocksDBStore.open(scratch / "store", operator.uid, operator.key_type, low, high)
    try:
        for schema in operator.states:
            state.register(schema)
        for file in files:
            if file.state not in schemas:
                raise CorruptDataError(f"the operator has no state {file.state!r}", object_name=file.name)
            schema = schemas[file.state]
            path = _fetch(store, file, scratch / "rows.parquet")
            # A list may be divided among batches of rows, whose elements must not get the same positions.
            positions: dict[str, int] | None = {} if schema.kind == LIST else None
            for changes in read_state(path, type_of(operator.key_type), schema, file.name):
                state.fold([Batch([changes], version.seq, positions=positions)], version, last=False)
            path.unlink()
        state.fold([], version, last=True)
        state.write_snapshot(scratch / "snapshot")
    finally:
        state.close()
    return describe_snapshot(scratch / "snapshot")


def _fetch(store: ObjectStore, file: StateFile, path: Path) -> Path:
    store.get_file(file.name, path)
    if path.stat().st_size != file.size_bytes or file_crc32(path) != file.crc32:
        raise CorruptDataError(
            "the file is not the one that was written for the savepoint; use another savepoint", object_name=file.name
        )
    return path
