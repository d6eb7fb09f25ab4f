"""Follows a job's chain: its head, the newest commit, and the newest commit that cannot be executed again.

The newest commit may still be executed again, on its parent (docs/internals/commit-protocol.md#base); the parent then
stays on the line. So the parent is *final*: what is folded up to it stays true. Reading continues from the last call:
the seqs of entries have no gaps, so the next one is asked for by its name. A poll costs one GET, and one per new entry
or one for the job's record, where a LIST costs as much as 12. What is read may be old, as it is after a LIST.

Invariants: I7 (a fold up to a final commit never holds a batch that the line gives up), I8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from varvite.changelog.chain.reader import StoredEntry, in_parallel
from varvite.changelog.chain.view import LineView, StoredCommit, advance
from varvite.storage.errors import DidNotHappenError, MissingObjectError
from varvite.storage.format.records import ORIGIN, Commit, Entry, Fence, Link
from varvite.storage.job.record import find_job

if TYPE_CHECKING:
    from collections.abc import Callable

    from varvite.changelog.chain.reader import ChainReader
    from varvite.storage.clock import Clock

LIST_S: Final = 60.0
"""The chain is listed if there was no new entry for so long: the next ones may have been collected."""
IN_TURN_MAX: Final = 16
"""New entries that are asked for one after another; if there are more, the chain is listed."""
READ_TRIES: Final = 8
"""Tries of one read: an entry may be collected between LIST and GET, but only while newer ones appear."""


class CommitView(NamedTuple):
    """A commit, and the tiles and segments that make up its state."""

    commit: Commit
    view: LineView


class ChainView(NamedTuple):
    """A job's chain at one moment."""

    head: Entry
    newest: CommitView
    """The newest commit on the head's line."""
    final: CommitView | None
    """The newest commit that stays on every later line; None if there is none yet, or an operator has just chosen
    another commit to go on from, so that nothing is known to be final."""


class ChainFollower:
    """Reads one job's chain repeatedly; for one thread."""

    def __init__(
        self,
        reader: ChainReader,
        max_parallelism: int,
        clock: Clock,
        may_exist: Callable[[int], bool] = lambda _seq: True,
    ) -> None:
        """`may_exist` tells the seqs of entries that are worth a request."""
        self._reader = reader
        self._max_parallelism = max_parallelism
        self._clock = clock
        self._may_exist = may_exist
        self._last: ChainView | None = None
        self._head: StoredEntry | None = None
        self._moved_s = 0.0
        """Time of the last LIST, or of the last new entry after it."""

    def read(self, *, anew: bool = False) -> ChainView | None:
        """Read the chain; None while there is no commit. Errors are those of `ChainReader`.

        `anew` lists it: what is read is not older than the call.
        """
        if anew:
            self._head = None
        for attempt in range(READ_TRIES):
            try:
                self._last = self._read()
            except MissingObjectError:
                # A commit that the head needs was collected after the head was read, so there is a newer head. A
                # chain that is really damaged stays so, and is reported by the last try.
                if attempt == READ_TRIES - 1:
                    raise
                self._head = None
                continue
            return self._last
        raise DidNotHappenError("the chain moved while it was read; try again")

    def _read(self) -> ChainView | None:
        head = self._read_head()
        if head is None:
            return None
        link = head.entry.link if isinstance(head.entry, Commit) else head.entry.commit
        if link == ORIGIN:
            return None
        last = self._last
        if last is not None and last.newest.commit.link == link:
            return ChainView(head.entry, last.newest, _final(head.entry, self._final_of(last.newest.commit)))
        stored = self._stored(head, link)
        parent = self._final_of(stored.commit)
        base = parent.view if parent else LineView(max_parallelism=self._max_parallelism)
        newest = CommitView(stored.commit, advance(base, stored))
        return ChainView(head.entry, newest, _final(head.entry, parent))

    def _read_head(self) -> StoredEntry | None:
        now_s = self._clock.monotonic_s()
        if self._head is None or now_s >= self._moved_s + LIST_S:
            return self._list_head(now_s)
        for number in range(IN_TURN_MAX):
            seq = self._head.entry.seq + 1
            if not self._may_exist(seq):
                return self._head
            later = self._find(seq)
            if later is None:
                return self._head if number or self.is_there() else None
            self._head, self._moved_s = later, now_s
        return self._list_head(now_s)

    def _list_head(self, now_s: float) -> StoredEntry | None:
        last_seq = self._last.head.seq if self._last else 0
        seqs = self._reader.list_seqs(max(0, last_seq - 1))
        self._head, self._moved_s = self._reader.read(seqs[-1]) if seqs else None, now_s
        return self._head

    def is_there(self) -> bool:
        """Does the job still exist? One GET; to be asked before anything is written. If not, the chain is listed next.

        Raises as `find_job`.
        """
        record = find_job(self._reader.store)
        is_there = record is not None and record.job_id == self._reader.job_id
        if not is_there:
            self._head = None
        return is_there

    def _find(self, seq: int) -> StoredEntry | None:
        try:
            return self._reader.read(seq)
        except MissingObjectError:
            return None

    def _stored(self, head: StoredEntry, link: Link) -> StoredCommit:
        if isinstance(head.entry, Commit):
            return StoredCommit(head.entry, head.blob_offset)
        return self._reader.read_commit(link)

    def _final_of(self, newest: Commit) -> CommitView | None:
        """The parent of a commit."""
        link = newest.parent
        if link == ORIGIN:
            return None
        for cached in self._cached():
            if cached.commit.link == link:
                return cached
        return self._load(self._reader.read_commit(link))

    def _load(self, stored: StoredCommit) -> CommitView:
        """The view of a commit, advanced from a cached one on its line if there is one."""
        path = stored.commit.path
        for cached in self._cached():
            if cached.commit.link in path:
                view = cached.view
                missing = path[path.index(cached.commit.link) + 1 :]
                for later in [*in_parallel(self._reader.read_commit, missing), stored]:
                    view = advance(view, later)
                return CommitView(stored.commit, view)
        return CommitView(stored.commit, self._reader.load_line(stored.commit.link, self._max_parallelism).view)

    def _cached(self) -> tuple[CommitView, ...]:
        if self._last is None:
            return ()
        return (self._last.newest, self._last.final) if self._last.final else (self._last.newest,)


def _final(head: Entry, parent: CommitView | None) -> CommitView | None:
    return None if isinstance(head, Fence) and head.restore is not None else parent
