"""Reads the chain: verified entries, the head, and the view of a commit. For drivers, materializers and readers.

Invariants: I8 (an entry must carry the seq of its name, its job's id and, if it was referred to, the right token).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeVar

from varvite.changelog.chain.retention_bounds import Retained
from varvite.changelog.chain.view import LineView, StoredCommit, resolve
from varvite.storage.errors import CorruptDataError, DidNotHappenError, MissingObjectError
from varvite.storage.format import layout
from varvite.storage.format.frame import MAGIC, PREFIX_BYTES
from varvite.storage.format.identity import check_record
from varvite.storage.format.records import ORIGIN, Commit, Entry, Link, decode_entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from varvite.changelog.chain.retention_bounds import RetentionBounds
    from varvite.storage.object_stores.contract import ObjectStore

EntryKind = Literal["fence", "commit"]


READ_THREADS: Final = 8
"""Entries that are read at the same time; each may have 16 MiB."""
_KINDS: Final[tuple[EntryKind, EntryKind]] = ("fence", "commit")
_KIND_BYTES: Final = PREFIX_BYTES + len(b'{"kind":"commit"')

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

HEAD_TRIES: Final = 16
"""LISTs before giving up: the head can be collected between LIST and GET, but only while newer heads appear."""


class StoredEntry(NamedTuple):
    """A verified entry, its blob, and the place in the object at which the blob begins, in bytes."""

    entry: Entry
    blob: memoryview
    blob_offset: int


class Line(NamedTuple):
    """The view of a commit, and those of the newest commits of its line that were read: full, path, base."""

    view: LineView
    commits: tuple[Commit, ...]


class _Older(NamedTuple):
    """A commit before those that a view was read from, as far as retention is concerned."""

    retained: Retained
    parent: Link


class ChainReader:
    """Reads one job's chain; keeps no state, and may be used from several threads."""

    def __init__(self, store: ObjectStore, job_id: str) -> None:
        """`store` is rooted at `<root>/<job>`."""
        self._store = store
        self._job_id = job_id

    @property
    def store(self) -> ObjectStore:
        """The job's store."""
        return self._store

    @property
    def job_id(self) -> str:
        """The id in `job.json`."""
        return self._job_id

    def list_seqs(self, start_after: int = 0) -> tuple[int, ...]:
        """The seqs of all entries above `start_after`, in order; collected commits are missing."""
        listed = self._store.list(layout.CHAIN, start_after=layout.chain(start_after))
        return tuple(layout.chain_seq(meta.name) for meta in listed)

    def read(self, seq: int) -> StoredEntry:
        """Read entry `seq`, whole and verified.

        Raises `MissingObjectError`, `CorruptDataError`, `IncompatibleError`; `LineageError` if it is another job's.
        """
        name = layout.chain(seq)
        data = self._store.get(name)
        entry, blob = decode_entry(data, name)
        check_record(entry, name, self._job_id)
        return StoredEntry(entry, blob, len(data) - len(blob))

    def read_commit(self, link: Link) -> StoredCommit:
        """Read the commit that `link` names; errors as `read`, and `CorruptDataError` if another entry stands there."""
        stored = self.read(link.seq)
        if not isinstance(stored.entry, Commit) or stored.entry.link != link:
            raise CorruptDataError(
                f"expected the commit with token {link.token}, found a {type(stored.entry).__name__} with token "
                f"{stored.entry.token}; see `varvite verify JOB --repair`",
                object_name=layout.chain(link.seq),
            )
        return StoredCommit(stored.entry, stored.blob_offset)

    def find_commit(self, seq: int) -> Commit | None:
        """The commit with that seq; None if there is no entry or it is a fence."""
        try:
            entry = self.read(seq).entry
        except MissingObjectError:
            return None
        return entry if isinstance(entry, Commit) else None

    def find_link(self, link: Link) -> Commit | None:
        """The commit that `link` names; None if it is gone or damaged."""
        try:
            return self.read_commit(link).commit
        except (MissingObjectError, CorruptDataError):
            return None

    def read_kind(self, seq: int) -> EntryKind:
        """The kind of entry `seq`, from its first bytes if they show it; errors as `read`."""
        start = self._store.get_range(layout.chain(seq), 0, _KIND_BYTES)
        for kind in _KINDS:
            if start.startswith(MAGIC) and start[PREFIX_BYTES:].startswith(b'{"kind":"%b"' % kind.encode()):
                return kind
        return "commit" if isinstance(self.read(seq).entry, Commit) else "fence"

    def read_all(self, seqs: Sequence[int]) -> tuple[Entry | None, ...]:
        """Read many entries at the same time, in the order of `seqs`; None for one that is not there."""
        return tuple(in_parallel(self._find, seqs))

    def head(self, known_seq: int = 0) -> Entry | None:
        """The entry with the highest seq; None if the chain is empty.

        Args:
            known_seq: Seq of an earlier head: only entries from there on are listed. 0 lists all.
        """
        for _ in range(HEAD_TRIES):
            seq = head_seq(self.list_seqs(max(0, known_seq - 1)))
            if seq == 0:
                return None
            entry = self._find(seq)
            if entry is not None:
                return entry
        raise DidNotHappenError(f"the head of the chain moved {HEAD_TRIES} times while it was read; try again")

    def newest(self) -> Commit | None:
        """The newest commit on the head's line; None if it has none. Errors as `head` and `read_commit`."""
        return self.newest_under(self.head())

    def newest_under(self, head: Entry | None) -> Commit | None:
        """The newest commit on this entry's line, perhaps itself; None if it has none. Errors as `read_commit`."""
        link = newest_commit(head)
        return None if link == ORIGIN else self.read_commit(link).commit

    def load_line(self, link: Link, max_parallelism: int) -> Line:
        """The view of the commit that `link` names; `ORIGIN` gives the empty one. Errors as `read_commit`."""
        if link == ORIGIN:
            return Line(LineView(max_parallelism=max_parallelism), ())
        base = self.read_commit(link)
        if base.commit.is_full:
            return Line(resolve(base, base, ()), (base.commit,))
        full, *path = in_parallel(self.read_commit, (base.commit.full, *base.commit.path))
        return Line(resolve(base, full, path), (full.commit, *(p.commit for p in path), base.commit))

    def retained_before(self, line: Line, count: int, bounds: RetentionBounds) -> tuple[Retained, ...]:
        """The newest commits of the line before those that it was read from, at most `count`, oldest first.

        They end before the first one that is gone, damaged, or not complete by the bounds. Thousands of commits may be
        retained, each of megabytes if there are thousands of partitions. Only those that are being read are in memory
        at any time (I10).
        """
        if not line.commits or count < 1:
            return ()
        at = line.commits[0].parent
        ahead = [link for link in line.view.line if link.seq <= at.seq][-count:]
        read_ahead = dict(zip(ahead, in_parallel(self._find_older, ahead), strict=True))
        retained: list[Retained] = []
        while at != ORIGIN and len(retained) < count:
            older = read_ahead[at] if at in read_ahead else self._find_older(at)
            if older is None or not bounds.is_complete(older.retained):
                break
            retained.append(older.retained)
            at = older.parent
        return tuple(reversed(retained))

    def _find_older(self, link: Link) -> _Older | None:
        commit = self.find_link(link)
        return None if commit is None else _Older(Retained(commit.seq, commit.needs_from), commit.parent)

    def _find(self, seq: int) -> Entry | None:
        try:
            return self.read(seq).entry
        except MissingObjectError:
            return None


def in_parallel(read: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    """Call `read` with each item, up to `READ_THREADS` at the same time; the results are in the items' order.

    The first error is raised.
    """
    if len(items) <= 1:
        return [read(item) for item in items]
    with ThreadPoolExecutor(min(READ_THREADS, len(items)), thread_name_prefix="varvite-chain") as pool:
        return list(pool.map(read, items))


def head_seq(seqs: Iterable[int]) -> int:
    """The seq of the head among the listed seqs; 0 if the chain is empty."""
    return max(seqs, default=ORIGIN.seq)


def newest_commit(head: Entry | None) -> Link:
    """The newest commit on the line of this entry; `ORIGIN` if there is none."""
    if head is None:
        return ORIGIN
    return head.link if isinstance(head, Commit) else head.commit
