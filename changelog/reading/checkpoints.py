"""Which checkpoint a reader means: the commits of the head's line, the newest first, as far as they still exist.

Invariants: I5 (only what is on the line exists: a commit that was executed again is never found).
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from varvite.changelog.chain.reader import newest_commit
from varvite.changelog.chain.retention_bounds import RetentionBounds, bounds_of
from varvite.changelog.retention.pins import Retention, list_pins
from varvite.changelog.retention.savepoints import read_savepoint
from varvite.storage.errors import CorruptDataError, InvalidRequestError, MissingObjectError
from varvite.storage.format.records import ORIGIN, Commit, Link

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from varvite.changelog.chain.reader import ChainReader
    from varvite.changelog.chain.view import StoredCommit

SAVEPOINT: Final = "savepoint:"
"""Before the name of a savepoint."""
_BATCH: Final = re.compile(r"batch:(\d+)")


def line_commits(reader: ChainReader, start: Link | None = None, *, down_to: int = 0) -> Iterator[StoredCommit]:
    """The commits of a line from `start` (None: the newest) back to the oldest that is not collected: a GET each.

    None of a seq below `down_to` is read.
    """
    link = newest_commit(reader.head()) if start is None else start
    is_first = True
    while link != ORIGIN and link.seq >= down_to:
        try:
            stored = reader.read_commit(link)
        except MissingObjectError:
            if is_first:
                raise
            return  # collected: only the retained ones and their log are kept
        is_first = False
        yield stored
        link = stored.commit.parent


class NewestCommits(NamedTuple):
    """The newest commits of a line, the newest first."""

    commits: tuple[Commit, ...]
    damage: CorruptDataError | None = None
    """Why there are no more, if the next one cannot be read."""


def newest_commits(reader: ChainReader, limit: int, *, down_to: int = 0) -> NewestCommits:
    """The newest commits of the head's line, as far as they still exist, but none of a seq below `down_to`.

    Raises `CorruptDataError` if the head itself is damaged.
    """
    line = line_commits(reader, newest_commit(reader.head()), down_to=down_to)
    commits: list[Commit] = []
    try:
        commits.extend(stored.commit for stored in islice(line, limit))  # an error leaves those before it
    except MissingObjectError:
        pass  # the newest one itself was collected meanwhile
    except CorruptDataError as error:
        return NewestCommits(tuple(commits), error)
    return NewestCommits(tuple(commits))


def kept_now(reader: ChainReader) -> Retention:
    """Which commits are complete, with the pins that there are."""
    head = reader.head()
    return Retention(RetentionBounds(), ()) if head is None else Retention(bounds_of(head), list_pins(reader))


def complete_checkpoints(reader: ChainReader) -> list[Commit]:
    """The commits of the head's line that are still complete, which are those that can be read, the newest first.

    The older ones, of which a job without a materializer has tens of thousands, are not looked at.
    """
    kept = kept_now(reader)
    line = line_commits(reader, down_to=kept.complete_from)
    return [stored.commit for stored in line if kept.is_complete(stored.commit)]


def told(commits: Iterable[Commit]) -> str:
    """Checkpoints, for an error message."""
    return ", ".join(f"seq {commit.seq} (batch {commit.batch})" for commit in commits) or "none"


def find_checkpoint(reader: ChainReader, wanted: int | str | None = None) -> Commit:
    """A commit on the head's line.

    Args:
        reader: Of the job's chain.
        wanted: None is the newest; a number (or its digits) a checkpoint's seq; `"batch:7"` that of batch 7.

    Raises `InvalidRequestError` if there is none, with those that there are.
    """
    matches = _matcher(wanted)
    seen: list[Commit] = []
    for stored in line_commits(reader):
        if matches(stored.commit):
            return stored.commit
        seen.append(stored.commit)
    if not seen:
        raise InvalidRequestError("the job has no checkpoint yet")
    complete = filter(kept_now(reader).is_complete, seen)
    raise InvalidRequestError(
        f"there is no checkpoint {wanted!r}; those that are complete: {told(complete)}; see `varvite checkpoints`"
    )


def find_savepoint(reader: ChainReader, name: str) -> Commit:
    """The commit of a native savepoint, which keeps it. Raises `InvalidRequestError` if there is none."""
    savepoint = read_savepoint(reader.store, name)
    if savepoint.format != "native":
        raise InvalidRequestError(
            f"savepoint {name!r} is canonical: read its Parquet files, which `varvite savepoint describe` lists"
        )
    return reader.read_commit(savepoint.commit.link).commit


def _matcher(wanted: int | str | None) -> Callable[[Commit], bool]:
    if wanted is None:
        return lambda _: True
    if isinstance(wanted, int) or wanted.isdecimal():
        seq = int(wanted)
        return lambda commit: commit.seq == seq
    match = _BATCH.fullmatch(wanted)
    if match is None:
        raise InvalidRequestError(
            f"{wanted!r} is no checkpoint: give its seq, its batch as 'batch:7', or 'savepoint:<name>'"
        )
    batch = int(match[1])
    return lambda commit: commit.batch == batch
