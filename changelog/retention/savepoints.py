"""Savepoints: checkpoints under names, kept until somebody deletes them (docs/reference/formats/savepoints.md).

A native savepoint names every object that a restore reads, and a collector keeps just these, not the log after them.
Its maker writes a pin, reads the head (the pin is valid then), writes the manifest, and deletes the pin. A collector
reads the head, then the pins, then the savepoints. So it sees the pin or the manifest, or it works with a `keep_from`
that was low enough (`docs/internals/commit-protocol.md#savepoint`). A copy, which takes long, works under a *hold*: a
native savepoint under a name of its own.

Invariants: I7 (above), I8 (a savepoint that cannot be read stops every collection).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from varvite.changelog.chain.reader import in_parallel
from varvite.changelog.retention.pins import create_pin, release_pin
from varvite.changelog.retention.snapshots import SnapshotReader
from varvite.storage.errors import CorruptDataError, DidNotHappenError, InvalidRequestError, MissingObjectError
from varvite.storage.format import layout
from varvite.storage.format.identity import check_record
from varvite.storage.format.records import ORIGIN, Savepoint, decode_record, encode_record
from varvite.storage.transfer.claim import claim

if TYPE_CHECKING:
    from varvite.changelog.chain.reader import ChainReader
    from varvite.changelog.chain.view import LineView
    from varvite.storage.clock import Clock, TokenSource
    from varvite.storage.format.records import Commit
    from varvite.storage.object_stores.contract import ObjectStore


LIST_TRIES: Final = 16
"""LISTs of savepoints before giving up; each that differs means that a savepoint was made or deleted."""


def create_native(
    reader: ChainReader, commit: Commit, name: str, *, job: str, holder: str, clock: Clock, tokens: TokenSource
) -> Savepoint:
    """Create a native savepoint of a commit, or a hold.

    Args:
        reader: Of the job's chain.
        commit: The commit to keep.
        name: A free name, checked by the caller, or of `layout.hold_name`.
        job: Name of the job, for people.
        holder: A text for people: who needs it.
        clock: For the creation time and pauses.
        tokens: For the savepoint's own.

    Raises:
        DidNotHappenError: the commit was truncated meanwhile; take a newer one.
        InvalidRequestError: there is a savepoint of that name.
    """
    pin = create_pin(reader, commit, f"savepoint {name}", clock, tokens)
    try:
        view = reader.load_line(commit.link, commit.max_parallelism).view
        savepoint = Savepoint(
            token=tokens.token(),
            name=name,
            format="native",
            job=job,
            commit=bare(commit),
            objects=objects_of(view, SnapshotReader(reader.store, reader.job_id)),
            holder=holder,
            created_ms=clock.now_ms(),
        )
        publish_savepoint(reader.store, savepoint, clock)
    finally:
        release_pin(reader, pin, clock)
    return savepoint


def publish_savepoint(store: ObjectStore, savepoint: Savepoint, clock: Clock) -> None:
    """Write the manifest. Raises `InvalidRequestError` if the name is taken."""
    name = layout.savepoint(savepoint.name)
    if not claim(store, name, encode_record(savepoint), savepoint.token, clock).won:
        raise InvalidRequestError(
            f"there is a savepoint {savepoint.name!r} already; choose another name, or delete it first",
            job=savepoint.job,
            object_name=name,
        )


def read_savepoint(store: ObjectStore, name: str) -> Savepoint:
    """Read a savepoint of the job at whose root the store is. Raises `InvalidRequestError` if there is none."""
    savepoint = _find(store, layout.savepoint(name))
    if savepoint is None:
        raise _no_savepoint(store, name)
    return savepoint


def _no_savepoint(store: ObjectStore, name: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"there is no savepoint {name!r} at {store.url}; see `varvite savepoint list`",
        object_name=layout.savepoint(name),
    )


def list_savepoints(store: ObjectStore) -> tuple[Savepoint, ...]:
    """All savepoints, holds included, by name.

    While they are read, a savepoint may hand its objects over to another: a copy to its result, a savepoint to a hold.
    So the list is read until it stays the same; then the last owner of the objects is never missed (I7).

    Raises:
        CorruptDataError: one cannot be read.
        DidNotHappenError: they changed all the time; try again.
    """
    before: list[tuple[str, str | None]] | None = None
    for _ in range(LIST_TRIES):
        names = [meta.name for meta in store.list(layout.SAVEPOINTS)]
        listed = list(zip(names, in_parallel(partial(_find, store), names), strict=True))
        # Name and token, because a name may be another savepoint's by now.
        tokens = [(name, savepoint and savepoint.token) for name, savepoint in listed]
        if tokens == before:
            return tuple(savepoint for _, savepoint in listed if savepoint is not None)
        before = tokens
    raise DidNotHappenError("the savepoints changed all the time while they were listed; try again")


class ListedSavepoint(NamedTuple):
    """A savepoint, or the error that its manifest cannot be read."""

    name: str
    savepoint: Savepoint | CorruptDataError


def list_all_savepoints(store: ObjectStore) -> tuple[ListedSavepoint, ...]:
    """All savepoints, by name, holds and damaged ones included; for people."""
    names = [meta.name for meta in store.list(layout.SAVEPOINTS)]
    listed = zip(names, in_parallel(partial(_find_or_error, store), names), strict=True)
    return tuple(ListedSavepoint(layout.text_of(name), read) for name, read in listed if read is not None)


def _find_or_error(store: ObjectStore, name: str) -> Savepoint | CorruptDataError | None:
    try:
        return _find(store, name)
    except CorruptDataError as error:
        return error


def _find(store: ObjectStore, name: str) -> Savepoint | None:
    try:
        savepoint = decode_record(store.get(name), Savepoint, name)
        check_record(savepoint, name)
    except MissingObjectError:
        return None
    except CorruptDataError as error:
        raise CorruptDataError(
            f"the savepoint cannot be read ({error.message}), and nothing is deleted as long as it is there, for "
            "nobody knows what it keeps; bring the object back from a copy, or give the savepoint up: `varvite "
            f"savepoint delete JOB {layout.text_of(name)} --damaged`",
            **error.context,
        ) from error
    return savepoint


def hold_savepoint(
    store: ObjectStore, savepoint: Savepoint, name: str, holder: str, clock: Clock, token: str
) -> Savepoint:
    """Create a hold of the objects of a native savepoint. Raises `InvalidRequestError` if it is deleted meanwhile."""
    hold = msgspec.structs.replace(savepoint, token=token, name=name, holder=holder, created_ms=clock.now_ms())
    publish_savepoint(store, hold, clock)
    try:
        if read_savepoint(store, savepoint.name).token == savepoint.token:
            return hold
    except InvalidRequestError:
        pass
    release_savepoint(store, hold)
    raise InvalidRequestError(f"savepoint {savepoint.name!r} was deleted; choose another one", job=savepoint.job)


def release_clone(source: ObjectStore, job_id: str) -> int:
    """Delete all holds in `source` for the clone with this id, and return their number."""
    held = [meta.name for meta in source.list(layout.savepoint(layout.clone_hold_name(job_id, "")))]
    source.delete(held)
    return len(held)


def delete_savepoint(store: ObjectStore, name: str) -> Savepoint:
    """Delete a savepoint; objects that only it needed are collected. Errors as `read_savepoint`."""
    savepoint = read_savepoint(store, name)
    release_savepoint(store, savepoint)
    return savepoint


def delete_damaged_savepoint(store: ObjectStore, name: str) -> None:
    """Delete a savepoint whose manifest need not be readable; its files and objects that only it needed are collected.

    Raises `InvalidRequestError` if there is none.
    """
    object_name = layout.savepoint(name)
    if all(meta.name != object_name for meta in store.list(object_name)):
        raise _no_savepoint(store, name)
    store.delete([object_name])


def release_savepoint(store: ObjectStore, savepoint: Savepoint) -> None:
    """Delete the manifest, then the savepoint's own files. Idempotent."""
    store.delete([layout.savepoint(savepoint.name)])
    if files := own_files(savepoint):
        store.delete(files)


def own_files(savepoint: Savepoint) -> list[str]:
    """Names of the files that belong to the savepoint alone; a native one has none."""
    files = {file.name for file in (*savepoint.files, *savepoint.tables)}
    return sorted(files | {image.data.name for image in savepoint.images})


def bare(commit: Commit) -> Commit:
    """The commit without the names of objects."""
    return msgspec.structs.replace(
        commit, parent=ORIGIN, parts=(), tiles=(), floors=(), full=commit.link, path=(), log=(), images=(), line=()
    )


def objects_of(view: LineView, snapshots: SnapshotReader) -> tuple[str, ...]:
    """Every object that a restore of the view's commit reads, in order. Errors as `SnapshotReader.read`."""
    entries = {link.seq for link in (view.full, *view.path, view.base)}
    names = {layout.chain(seq) for seq in entries}
    names |= {ref.data.name for ref in (*view.segments, *view.images)}
    for tile in view.tiles:
        names |= {file.name for file in tile.files}
        if tile.snapshot is not None:
            descriptor = snapshots.read(layout.SnapshotName(tile.operator, tile.low, tile.high, tile.snapshot))
            if descriptor.status != "published":
                raise CorruptDataError(
                    f"snapshot {tile.snapshot} of {tile.operator} was given up; choose another checkpoint",
                    object_name=layout.snapshot(tile.operator, tile.low, tile.high, tile.snapshot),
                )
            names.add(layout.snapshot(tile.operator, tile.low, tile.high, tile.snapshot))
            names |= {file.name for file in descriptor.files}
    return tuple(sorted(names))
