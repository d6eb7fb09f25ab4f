"""Follows a job's chain: its head, the newest commit, and the newest commit that cannot be executed again.

The newest commit may still be executed again, on its parent (docs/internals/commit-protocol.md#base); the parent then
stays on the line. So the parent is *final*: what is folded up to it stays true. Reading continues from the last call,
so that a poll costs one LIST, and one GET per new entry.

Invariants: I7 (a fold up to a final commit never holds a batch that the line gives up), I8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from varvite.changelog.chain.reader import StoredEntry, in_parallel
from varvite.changelog.chain.view import LineView, StoredCommit, advance
from varvite.storage.errors import DidNotHappenError, MissingObjectError
from varvite.storage.format.records import ORIGIN, Commit, Entry, Fence, Link

if TYPE_CHECKING:
    from varvite.changelog.chain.reader import ChainReader

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

    def __init__(self, reader: ChainReader, max_parallelism: int) -> None:
        self._reader = reader
        self._max_parallelism = max_parallelism
        self._last: ChainView | None = None

    def read(self) -> ChainView | None:
        """Read the chain; None while there is no commit. Errors are those of `ChainReader`."""
        for attempt in range(READ_TRIES):
            try:
                self._last = self._read()
            except MissingObjectError:
                # A commit that the head needs was collected after the head was read, so there is a newer head. A
                # chain that is really damaged stays so, and is reported by the last try.
                if attempt == READ_TRIES - 1:
                    raise
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
        last_seq = self._last.head.seq if self._last else 0
        seqs = self._reader.list_seqs(max(0, last_seq - 1))
        return self._reader.read(seqs[-1]) if seqs else None

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
