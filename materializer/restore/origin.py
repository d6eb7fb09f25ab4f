"""The start of a job from a savepoint, or from a checkpoint of another job: finds the state, and copies it.

A location is the name of one of the job's own savepoints, or a path or URL:

```
<storage>/<job>/savepoints/<name>    a savepoint
<storage>/<job>/chain/<seq>          a retained checkpoint
<storage>/<job>                      the newest checkpoint
```
The source is never changed, except for a hold while a checkpoint is being copied. The job's first entry holds the whole
state (Flink's NO_CLAIM, with the full first checkpoint at the start).
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from varvite.changelog.chain.reader import ChainReader
from varvite.changelog.commit.import_plan import CopiedState
from varvite.changelog.commit.start_decision import next_restore
from varvite.changelog.retention.savepoints import create_native, hold_savepoint, read_savepoint, release_savepoint
from varvite.changelog.retention.snapshots import SnapshotReader
from varvite.changelog.retention.state_copy import StateCopy, share_state
from varvite.materializer.options.start import NO_CLAIM
from varvite.materializer.savepoints.state_files import build_snapshot
from varvite.storage.errors import IncompatibleError, InvalidRequestError, MissingObjectError, StateMissingError
from varvite.storage.format import layout
from varvite.storage.format.records import KEY_HASH, SnapshotFile, Tile
from varvite.storage.job.record import read_job
from varvite.storage.job.store import JobStore
from varvite.storage.object_stores.open import open_beside
from varvite.storage.private_directories import TemporaryDirectory
from varvite.storage.transfer.upload import Uploader

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from varvite.storage.clock import Clock, TokenSource
    from varvite.storage.format.records import Commit, JobRecord, OperatorLayout, Savepoint, StateFile
    from varvite.storage.object_stores.contract import ObjectStore

_SAVEPOINTS: Final = layout.SAVEPOINTS.rstrip("/")
_CHAIN: Final = layout.CHAIN.rstrip("/")


@dataclass(frozen=True)
class StateOrigin:
    """A state to start from."""

    location: str
    """The user's text."""
    store: ObjectStore
    """Rooted at the job, or at the savepoint's location."""
    commit: Commit
    savepoint: Savepoint | None
    """None: a checkpoint of the job's chain."""

    def job_beside(self, job_store: ObjectStore) -> str:
        """Name of the origin's job, which must be another job in the storage of the job with this store.

        Raises `InvalidRequestError` if it is not: a clone shares objects.
        """
        storage, _, job = self.store.url.rpartition("/")
        clone_storage, _, clone_job = job_store.url.rpartition("/")
        is_canonical = self.savepoint is not None and self.savepoint.format == "canonical"
        if storage != clone_storage or job == clone_job or is_canonical:
            raise InvalidRequestError(
                f"the state at {self.location} cannot be cloned into {job_store.url}: a clone shares the objects of a "
                f"checkpoint or native savepoint of another job in the same storage; use the claim mode {NO_CLAIM}"
            )
        return job

    def source_of_clone(self, job_store: ObjectStore, *, is_encrypted: bool) -> str:
        """As `job_beside`, for a new clone that is encrypted or not.

        Raises `InvalidRequestError` if an encrypted clone would read objects that anybody could have written.
        """
        source = self.job_beside(job_store)
        storage = read_job(self.store).storage
        if is_encrypted and (storage is None or storage.encryption is None):
            raise InvalidRequestError(
                f"the state at {self.location} is not encrypted, and an encrypted job cannot share its objects; use "
                f"the claim mode {NO_CLAIM}, which copies and encrypts them"
            )
        return source

    def check(self, max_parallelism: int) -> None:
        """Raise `IncompatibleError` unless a job with this number of key groups can have the state."""
        if self.commit.max_parallelism != max_parallelism:
            raise IncompatibleError(
                f"the state at {self.location} has {self.commit.max_parallelism} key groups, the job "
                f"{max_parallelism}; set pipeline.max-parallelism to {self.commit.max_parallelism}"
            )
        if self.savepoint is not None and self.savepoint.key_hash != KEY_HASH:
            raise IncompatibleError(
                f"keys of the savepoint at {self.location} are hashed by {self.savepoint.key_hash!r}, this varvite "
                f"hashes by {KEY_HASH!r}; use the version that made the savepoint"
            )


def is_location(restore: str | int | None) -> bool:
    """Does the option name a state elsewhere, not `latest` or a seq?"""
    return isinstance(restore, str) and restore != layout.LATEST


def find_start(
    location: str, job_store: ObjectStore, query_id: str | None, storage_options: Mapping[str, Any] | None = None
) -> StateOrigin | None:
    """The state that a query with a start location starts from; None if it continues from the job's state.

    A query that has begun continues, and so does one for which a checkpoint was chosen since (`varvite restore`): the
    option may still be set, and its location may be gone.

    Args:
        location: The location, in one of the module's forms.
        job_store: The store of the job, which may not exist yet.
        query_id: Query id in Spark's checkpoint location; None for a new one.
        storage_options: Options of the job's filesystem, which count for a location of the same kind.

    Raises the errors of `find_origin`; the text says so if an earlier start has copied the state into the job already.
    """
    reader = _reader_of(job_store)
    head = None if reader is None else reader.head()
    if next_restore(head) is not None:
        return None
    newest = None if reader is None else reader.newest_under(head)
    if newest is not None and newest.source is None and newest.query_id == query_id:
        return None
    try:
        return find_origin(location, job_store, storage_options)
    except (InvalidRequestError, StateMissingError) as error:
        if newest is None or newest.source is None:
            raise
        problem = (
            f"{error.message}; the job already holds the copy of an earlier start (seq {newest.seq}, of batch "
            f"{newest.batch}): set execution.state-recovery.path to `latest` to start from that"
        )
        raise type(error)(problem, **error.context) from error


def check_start(seq: int, job_store: ObjectStore, query_id: str | None) -> None:
    """Raise `StateMissingError` if a query shall start from a checkpoint of its job that does not exist.

    The first batch would fail, too, but by then the run has created the job if it is new, or fenced another run off.
    Like `find_start`, this does not count for a query that has begun, or for which a checkpoint was chosen.

    Args:
        seq: Seq of the checkpoint.
        job_store: The store of the job, which may not exist yet.
        query_id: Query id in Spark's checkpoint location; None for a new one.
    """
    reader = _reader_of(job_store)
    head = None if reader is None else reader.head()
    if reader is not None and head is not None:
        newest = reader.newest_under(head)
        if next_restore(head) is not None or (newest is not None and newest.query_id == query_id):
            return
        if reader.find_commit(seq) is not None:
            return
    raise StateMissingError(
        f"there is no commit with seq {seq} to start from in {job_store.url}; choose one that the job still has "
        "(`varvite checkpoints`), or correct the job's name or storage"
    )


def _reader_of(store: ObjectStore) -> ChainReader | None:
    """A reader of the chain of the job at the store's root; None if there is no job."""
    try:
        return ChainReader(store, read_job(store).job_id)
    except MissingObjectError:
        return None


def find_origin(location: str, job_store: ObjectStore, storage_options: Mapping[str, Any] | None = None) -> StateOrigin:
    """The state at a location.

    Args:
        location: The location, in one of the module's forms.
        job_store: The job's store, for names of its own savepoints.
        storage_options: Options of the job's filesystem, which count for a location of the same kind.

    Raises:
        InvalidRequestError: there is no such savepoint, or no job.
        StateMissingError: there is no such checkpoint.
    """
    if "/" not in location:
        savepoint = read_savepoint(job_store, layout.check_savepoint_name(location))
        return StateOrigin(location, job_store, savepoint.commit, savepoint)
    root, _, last = location.rstrip("/").rpartition("/")
    parent, _, area = root.rpartition("/")
    if area == _SAVEPOINTS and parent:
        store = _job_store(parent, job_store, storage_options)
        savepoint = read_savepoint(store, last)
        return StateOrigin(location, store, savepoint.commit, savepoint)
    if area == _CHAIN and parent and last.isdecimal():
        return _checkpoint(location, _job_store(parent, job_store, storage_options), int(last))
    return _checkpoint(location, _job_store(location.rstrip("/"), job_store, storage_options), None)


def _job_store(url: str, beside: ObjectStore, storage_options: Mapping[str, Any] | None) -> ObjectStore:
    """Open the store of a job through its storage, so that objects that it shares with another job can be read."""
    storage, _, job = url.rpartition("/")
    if not storage or storage.endswith((":", "/")):
        return open_beside(url, beside.url, storage_options)
    return JobStore(open_beside(storage, beside.url, storage_options), job)


def _checkpoint(location: str, store: ObjectStore, seq: int | None) -> StateOrigin:
    try:
        reader = ChainReader(store, read_job(store).job_id)
    except MissingObjectError:
        raise InvalidRequestError(
            f"there is neither a savepoint nor a job at {location}; give <storage>/<job>/savepoints/<name>, "
            "<storage>/<job>/chain/<seq> or <storage>/<job>"
        ) from None
    commit = reader.newest() if seq is None else reader.find_commit(seq)
    if commit is None:
        raise StateMissingError(f"there is no checkpoint at {location}; see `varvite checkpoints`")
    return StateOrigin(location, store, commit, None)


def clone_origin(
    origin: StateOrigin, record: JobRecord, source_job: str, *, clock: Clock, tokens: TokenSource
) -> CopiedState:
    """Name the state's objects in place, under a hold that stays; raises the errors of `copy_origin`.

    Args:
        origin: The state: a checkpoint or a native savepoint.
        record: The record of the new job.
        source_job: Name of the origin's job, in the same storage.
        clock: For the hold.
        tokens: For the hold.
    """
    reader = ChainReader(origin.store, origin.commit.job_id)
    name, holder = layout.clone_hold_name(record.job_id, tokens.token()), f"clone {record.name}"
    if origin.savepoint is None:
        create_native(reader, origin.commit, name, job=source_job, holder=holder, clock=clock, tokens=tokens)
    else:
        hold_savepoint(origin.store, origin.savepoint, name, holder, clock, tokens.token())
    view = reader.load_line(origin.commit.link, origin.commit.max_parallelism).view
    return share_state(view, source_job, SnapshotReader(origin.store, origin.commit.job_id))


def copy_origin(
    origin: StateOrigin, record: JobRecord, target: ObjectStore, slot: int, *, clock: Clock, tokens: TokenSource
) -> CopiedState:
    """Copy the state into objects of this slot of a job.

    Args:
        origin: The state.
        record: The job's record.
        target: Its store.
        slot: The slot of the entry that will name the copy.
        clock: For uploads.
        tokens: For names.

    Raises:
        DidNotHappenError: the checkpoint was truncated meanwhile.
        VarviteError: the state cannot be read, or the copy cannot be written.
    """
    with TemporaryDirectory("copy") as scratch:
        copy = StateCopy(
            origin.store,
            origin.commit.job_id,
            target=target,
            target_job_id=record.job_id,
            slot=slot,
            scratch=scratch,
            clock=clock,
            tokens=tokens,
        )
        if origin.savepoint is not None and origin.savepoint.format == "canonical":
            built = _Builder(origin, target, slot, scratch, tokens.token(), clock).build(origin.savepoint)
            return replace(built, images=copy.copy_images(origin.savepoint.images))
        reader = ChainReader(origin.store, origin.commit.job_id)
        hold = None
        if origin.savepoint is None:
            hold_name = layout.hold_name(tokens.token())
            holder = f"start of job {record.name}"
            hold = create_native(
                reader, origin.commit, hold_name, job=record.name, holder=holder, clock=clock, tokens=tokens
            )
        try:
            view = reader.load_line(origin.commit.link, origin.commit.max_parallelism).view
            return copy.copy(view)
        finally:
            if hold is not None:
                release_savepoint(origin.store, hold)


class _Builder:
    """Builds tiles from the rows of a canonical savepoint."""

    def __init__(
        self, origin: StateOrigin, target: ObjectStore, slot: int, scratch: Path, tag: str, clock: Clock
    ) -> None:
        self._source = origin.store
        self._at = origin.commit.link
        self._target = target
        self._slot = slot
        self._scratch = scratch
        self._tag = tag
        self._clock = clock

    def build(self, savepoint: Savepoint) -> CopiedState:
        tiles: list[Tile] = []
        with Uploader(self._target, self._clock) as uploader:
            for operator in savepoint.commit.operators:
                files = [file for file in savepoint.files if file.operator == operator.uid]
                tiles += self._tiles(operator, files, savepoint.commit.max_parallelism, uploader)
        return CopiedState(tuple(tiles), (), (self._at,))

    def _tiles(
        self, operator: OperatorLayout, files: Sequence[StateFile], max_parallelism: int, uploader: Uploader
    ) -> list[Tile]:
        """Build a tile for each range that has rows, and empty ones between."""
        tiles: list[Tile] = []
        position = 0
        for number, ((low, high), range_files) in enumerate(_by_range(files).items()):
            tiles += self._empty(operator, position, low)
            uploaded = self._upload_snapshot(operator, number, range_files, uploader)
            tiles.append(Tile(operator=operator.uid, low=low, high=high, at=self._at, files=uploaded))
            position = high
        return tiles + self._empty(operator, position, max_parallelism)

    def _empty(self, operator: OperatorLayout, low: int, high: int) -> list[Tile]:
        return [Tile(operator=operator.uid, low=low, high=high, at=self._at)] if low < high else []

    def _upload_snapshot(
        self, operator: OperatorLayout, number: int, files: Sequence[StateFile], uploader: Uploader
    ) -> tuple[SnapshotFile, ...]:
        scratch = self._scratch / "range"
        scratch.mkdir()
        uploaded: list[SnapshotFile] = []
        for index, file in enumerate(build_snapshot(operator, files, self._at, self._source, scratch)):
            name = layout.segment(self._slot, operator.uid, number, self._tag, index)
            uploader.submit_file(name, file.path).result()
            uploaded.append(SnapshotFile(file.file, name, file.size_bytes, file.crc32))
        shutil.rmtree(scratch)
        return tuple(uploaded)


def _by_range(files: Iterable[StateFile]) -> dict[tuple[int, int], list[StateFile]]:
    """The files of each range of key groups, in order."""
    by_range: dict[tuple[int, int], list[StateFile]] = {}
    for file in sorted(files, key=lambda f: (f.low, f.high, f.state)):
        by_range.setdefault((file.low, file.high), []).append(file)
    return by_range
