"""One operator's key groups as files of a canonical savepoint, and RocksDB snapshots made of such files.

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
    """The rows of some key groups after the view's commit, a file for each state that has any.

    Args:
        view: The commit.
        operator: As the commit has it.
        key_groups: Which.
        token: The savepoint's.
        store: The job's.
        scratch: An empty directory; emptied again.

    Raises as `restore`.
    """
    low, high = key_groups.start, key_groups.stop
    target = RestoreTarget(operator=operator.uid, key_type=operator.key_type, low=low, high=high)
    state = restore(view, target, store, scratch / "store")
    try:
        path = scratch / "rows.parquet"
        for schema in operator.states:
            state.register(schema)  # the checkpoint may know a newer version than any row is of
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
    """A RocksDB snapshot, in `scratch`, of the rows of these files, all of the same key groups.

    Args:
        operator: As the savepoint's commit has it.
        files: At least one.
        version: That commit.
        store: Where the files are.
        scratch: An empty directory; the caller empties it.

    Raises:
        MissingObjectError, CorruptDataError: a file is gone or damaged.
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
            # Parts of one list may come apart, and must not meet at the same places.
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
