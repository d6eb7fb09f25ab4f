"""A RocksDB store for any key-group range, from the snapshots that cover it; a restore begins with it.

A single snapshot of exactly this range is opened as it is, so its SST files stay shared with the tile. Otherwise a
snapshot most of whose key groups belong to the range becomes the base: the other key groups are deleted from it, and
the rows of the other snapshots are added. If there is no such snapshot, all rows of the range are copied. States are
matched by name; their ids may differ.

Invariants: I5 (each key group comes from exactly one source, at the commit that the source must be at), I8 (the owner
and the version of a directory's state are checked against what the caller expects), I9 (until it is complete, the
directory carries a mark with which it cannot be opened).
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from rocksdict import WriteBatch

from varvite.changelog.restore.files import reading_fetched
from varvite.changelog.working_stores.rocksdb.bulk import SstBuilder
from varvite.changelog.working_stores.rocksdb.database import Database
from varvite.changelog.working_stores.rocksdb.keys import (
    KEY_GROUP_END,
    PREFIX_BYTES,
    key_group_start,
    prefix,
    successor,
)
from varvite.changelog.working_stores.rocksdb.metadata import (
    MARKER_KEY,
    STATES_KEY,
    VERSION_KEY,
    RegisteredState,
    StoreVersion,
    new_marker,
)
from varvite.changelog.working_stores.rocksdb.registry import StateRegistry
from varvite.changelog.working_stores.rocksdb.settings.options import RocksDBOptions
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.storage.errors import CorruptDataError, IncompatibleError, InvariantError
from varvite.storage.format.records import ORIGIN, Link

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

BASE_FRACTION: Final = 0.5
"""A snapshot becomes the base if at least this share of its key groups belongs to the range."""
_NEVER: Final = (1 << 63) - 1


class SnapshotSource(NamedTuple):
    """The state of key groups `[low, high)` after commit `at`, as a tile names it."""

    directory: Path | None
    """A fetched snapshot, whose range may be larger; None: the state is empty. It is moved or removed in the end."""
    low: int
    high: int
    at: Link
    name: str = ""
    """The snapshot's object, for errors."""


def open_clipped(
    directory: Path,
    sources: Sequence[SnapshotSource],
    *,
    operator: str,
    key_type: str,
    low: int,
    high: int,
    options: RocksDBOptions | None = None,
) -> RocksDBStore:
    """A store of key groups `[low, high)` in `directory`, which must not exist, on the same filesystem.

    If the sources are at one commit, that is the store's version. Otherwise the oldest one is, `is_complete` is False,
    and a replay with the sources' floors must follow (`varvite.changelog.segments.replay`).

    Args:
        directory: Of the new store.
        sources: They cover `[low, high)` exactly once; other key groups are left out.
        operator: The operator's uid.
        key_type: Type string of its keys.
        low: First key group, inclusive.
        high: Last key group, exclusive.
        options: Memory, disk and threads; None for the defaults.

    Raises:
        CorruptDataError: a directory is damaged, or is not at the commit that it must be at.
        IncompatibleError: a directory is of another operator or key type; or two snapshots hold a state of one name
            with different types.
    """
    options = options or RocksDBOptions()
    clipped = _clip(sources, low, high, operator)
    filled = [_inspect(source, operator, key_type, options) for source in clipped if source.directory is not None]
    if len(clipped) == 1 and filled and filled[0].key_groups == range(low, high):
        filled[0].directory.rename(directory)
        return RocksDBStore.open(directory, operator, key_type, low, high, options)
    base = _base(filled)
    if base is not None:
        base.directory.rename(directory)
    registry = StateRegistry(() if base is None else base.states, operator)
    for snapshot in sorted(filled, key=lambda f: f.source.at.seq):
        for state in snapshot.states:
            registry.register(state.schema)
    database = Database(directory, options, create=True)
    try:
        _put(database, {VERSION_KEY: StoreVersion(at=ORIGIN, complete_from=_NEVER)}, base)
        _copy_rows(database, [snapshot for snapshot in filled if snapshot is not base], registry, options)
        identity = new_marker(operator, key_type, low, high)
        _put(database, {MARKER_KEY: identity, STATES_KEY: registry.states, VERSION_KEY: _version(clipped)})
        for snapshot in filled:
            shutil.rmtree(snapshot.directory, ignore_errors=True)
        return RocksDBStore(database, identity, options)
    except BaseException:
        database.close()
        raise


class _Snapshot(NamedTuple):
    """A source that has rows, and the metadata of its directory."""

    source: SnapshotSource
    directory: Path
    key_groups: range
    states: tuple[RegisteredState, ...]
    size_bytes: int

    @property
    def used_fraction(self) -> float:
        """The share of its key groups that belongs to the range."""
        return (self.source.high - self.source.low) / len(self.key_groups)


def _clip(sources: Sequence[SnapshotSource], low: int, high: int, operator: str) -> list[SnapshotSource]:
    """The sources clipped to `[low, high)`, in order."""
    inner = [s._replace(low=max(s.low, low), high=min(s.high, high)) for s in sources]
    clipped = sorted((source for source in inner if source.low < source.high), key=lambda source: source.low)
    edges = [low, *(source.high for source in clipped)]
    if [source.low for source in clipped] != edges[:-1] or edges[-1] != high:
        raise InvariantError(f"{[s[1:] for s in sources]} do not cover [{low}, {high}) once each", operator=operator)
    return clipped


def _inspect(source: SnapshotSource, operator: str, key_type: str, options: RocksDBOptions) -> _Snapshot:
    """Check that a directory is what the source says."""
    if source.directory is None:
        raise InvariantError("no directory to inspect")
    place = source.name or str(source.directory)
    with reading_fetched(place):
        store = RocksDBStore.open_existing(source.directory, options, read_only=True)
    try:
        if (store.operator, store.key_type) != (operator, key_type):
            raise IncompatibleError(
                f"the snapshot is of operator {store.operator!r} with keys of {store.key_type}, not of {operator!r} "
                f"with keys of {key_type}; give the operator another uid, or keep its key type",
                operator=operator,
                object_name=place,
            )
        held = store.key_groups
        if store.version != source.at or not held.start <= source.low < source.high <= held.stop:
            raise CorruptDataError(
                f"the snapshot holds [{held.start}, {held.stop}) at {store.version}, not [{source.low}, "
                f"{source.high}) at {source.at}; see `varvite verify JOB --repair`",
                operator=operator,
                object_name=place,
            )
        size_bytes = sum(file.stat().st_size for file in source.directory.glob("*.sst"))
        return _Snapshot(source, source.directory, held, store.states, size_bytes)
    finally:
        store.close()


def _base(filled: Sequence[_Snapshot]) -> _Snapshot | None:
    """The snapshot to build on: of those of which enough belongs to the range, the one that brings most bytes."""
    fitting = [snapshot for snapshot in filled if snapshot.used_fraction >= BASE_FRACTION]
    return max(fitting, key=lambda snapshot: snapshot.size_bytes * snapshot.used_fraction, default=None)


def _put(database: Database, metadata: dict[bytes, object], base: _Snapshot | None = None) -> None:
    """Write metadata and flush; delete the base's key groups outside of its clipped range."""
    batch = WriteBatch(raw_mode=True)
    if base is not None:
        batch.delete_range(key_group_start(0), key_group_start(base.source.low))
        batch.delete_range(key_group_start(base.source.high), key_group_start(KEY_GROUP_END))
    for key, record in metadata.items():
        batch.put(key, msgspec.json.encode(record))
    database.write(batch)
    database.flush()


def _copy_rows(
    database: Database, snapshots: Sequence[_Snapshot], registry: StateRegistry, options: RocksDBOptions
) -> None:
    """Add the clipped rows of these snapshots, with the state ids of the registry. The database must be flushed."""
    builder = SstBuilder(database.directory, options)
    for snapshot in snapshots:
        target_ids = {state.schema.name: state.id for state in registry.states}
        ids = sorted((target_ids[state.schema.name], state.id) for state in snapshot.states)
        copied = Database(snapshot.directory, options, create=False, read_only=True)
        try:
            for key_group in range(snapshot.source.low, snapshot.source.high):
                for target_id, source_id in ids:
                    start, target = prefix(key_group, source_id), prefix(key_group, target_id)
                    with reading_fetched(snapshot.source.name or str(snapshot.directory)):
                        for row, value in copied.scan(start, successor(start)):
                            builder.add(target + row[PREFIX_BYTES:], value)
        finally:
            copied.close()
        builder.finish()
    if builder.files:
        database.ingest(builder.files)


def _version(clipped: Sequence[SnapshotSource]) -> StoreVersion:
    """The version of the store that the sources make together."""
    oldest = min((source.at for source in clipped), key=lambda at: at.seq)
    newest = max(source.at.seq for source in clipped)
    return StoreVersion(at=oldest, complete_from=newest if newest > oldest.seq else 0)
