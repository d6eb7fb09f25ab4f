"""Looks up the checkpoint that a reader names among the commits of the head's line that still exist.

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

    No commit of a seq below `down_to` is read.
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
    """The error that the next commit cannot be read, if that is why there are no more."""


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


def read_retention(reader: ChainReader) -> Retention:
    """Read the head's bounds and the pins, which decide whether a commit is complete."""
    head = reader.head()
    return Retention(RetentionBounds(), ()) if head is None else Retention(bounds_of(head), list_pins(reader))


def complete_checkpoints(reader: ChainReader) -> list[Commit]:
    """The commits of the head's line that are still complete and so can be read, the newest first.

    Older commits, of which a job without a materializer has tens of thousands, are not read.
    """
    retention = read_retention(reader)
    line = line_commits(reader, down_to=retention.complete_from)
    return [stored.commit for stored in line if retention.is_complete(stored.commit)]


def list_text(commits: Iterable[Commit]) -> str:
    """A list of checkpoints, for an error message."""
    return ", ".join(f"seq {commit.seq} (batch {commit.batch})" for commit in commits) or "none"


def find_checkpoint(reader: ChainReader, checkpoint: int | str | None = None) -> Commit:
    """Find a commit on the head's line.

    Args:
        reader: Of the job's chain.
        checkpoint: None is the newest; a number (or its digits) a checkpoint's seq; `"batch:7"` that of batch 7.

    Raises `InvalidRequestError`, which lists the complete checkpoints, if there is none.
    """
    matches = _matcher(checkpoint)
    seen: list[Commit] = []
    for stored in line_commits(reader):
        if matches(stored.commit):
            return stored.commit
        seen.append(stored.commit)
    if not seen:
        raise InvalidRequestError("the job has no checkpoint yet")
    complete = filter(read_retention(reader).is_complete, seen)
    raise InvalidRequestError(
        f"there is no checkpoint {checkpoint!r}; those that are complete: {list_text(complete)}; see "
        "`varvite checkpoints`"
    )


def find_savepoint(reader: ChainReader, name: str) -> Commit:
    """The commit of a native savepoint, which keeps it. Raises `InvalidRequestError` if there is none."""
    savepoint = read_savepoint(reader.store, name)
    if savepoint.format != "native":
        raise InvalidRequestError(
            f"savepoint {name!r} is canonical: read its Parquet files, which `varvite savepoint describe` lists"
        )
    return reader.read_commit(savepoint.commit.link).commit


def _matcher(checkpoint: int | str | None) -> Callable[[Commit], bool]:
    if checkpoint is None:
        return lambda _: True
    if isinstance(checkpoint, int) or checkpoint.isdecimal():
        seq = int(checkpoint)
        return lambda commit: commit.seq == seq
    match = _BATCH.fullmatch(checkpoint)
    if match is None:
        raise InvalidRequestError(
            f"{checkpoint!r} is no checkpoint: give its seq, its batch as 'batch:7', or 'savepoint:<name>'"
        )
    batch = int(match[1])
    return lambda commit: commit.batch == batch
