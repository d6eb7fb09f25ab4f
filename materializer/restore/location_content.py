"""The content of Spark's checkpoint location, made from the chain; pure.

The chain is the truth and the location a cache (I9), if a commit has the position of its input. Before a query starts,
its location is made to say what the newest commit says. So it may be empty, of an earlier time, or of a run that goes
on after its end. The batch of the newest commit is open until its sink is known to be done: Spark then runs it again,
from the same offsets.

Invariants: I9, I11 (a location of another query is an error, and is never overwritten).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from varvite.storage.errors import CorruptDataError, LineageError
from varvite.storage.format import layout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from varvite.changelog.commit.base_decision import RestoreRequest, SinkCommit
    from varvite.storage.format.records import Commit, Link


_FILE: Final = re.compile(r"sources/\w[\w.-]*/0|_varvite/(?:sources|topics)")
"""A file of which a position may give the content."""


@dataclass(frozen=True, slots=True)
class LocationState:
    """The state of a location before a start."""

    query_id: str | None
    """None: it is empty."""
    planned: frozenset[int]
    """Batches of the offset log."""
    acknowledged: frozenset[int]
    """Batches of the commit log."""
    offsets: str | None = None
    """The file `offsets/<N>` of the newest commit's batch N."""
    is_private: bool = False
    """The user has named no location: each run has a new one."""


@dataclass(frozen=True, slots=True)
class LocationTarget:
    """The progress that a location is to say."""

    commit: Commit
    parent: Commit | None
    """The commit of the batch before, if its position is known."""
    is_open: bool
    """The sink may lack rows of the batch, so Spark has to run it again."""

    @property
    def next_batch(self) -> int:
        """The batch that Spark runs first."""
        return self.commit.batch if self.is_open else self.commit.batch + 1


@dataclass(frozen=True, slots=True)
class LocationChange:
    """The files to delete, and then to write."""

    delete: tuple[str, ...]
    write: Mapping[str, bytes]


def choose_commit(
    newest: Commit | None, location: LocationState, restore: RestoreRequest | None = None
) -> Commit | None:
    """Choose the commit whose progress a location is to say; None: the location stays as it is.

    Args:
        newest: The newest commit on the line of the run's fence.
        location: The location.
        restore: The operator's choice of a commit, if there is one.

    Raises:
        LineageError: The location is of another query than the state.
    """
    commit = newest
    if restore is not None:
        is_new_query = location.query_id is None and not location.is_private
        if is_new_query or not restore.ahead:
            return None  # a query begins at batch 0 with that state, or has begun
        commit = restore.commit
    if commit is None or commit.position is None:
        return None
    if location.query_id in (None, commit.query_id):
        return commit
    if restore is not None:  # as without a choice, if the location is of the newest query
        return newest if newest is not None and newest.position and location.query_id == newest.query_id else None
    raise LineageError(
        f"the state (batch {commit.batch}, seq {commit.seq}) is of query {commit.query_id}, and Spark's checkpoint "
        f"location of query {location.query_id}; use the location of this state, or an empty one, which is made from "
        "the state",
        batch=commit.batch,
    )


def decide_target(
    commit: Commit,
    parent: Commit | None,
    location: LocationState,
    *,
    is_newest: bool = True,
    sink: SinkCommit | None = None,
    noted: Link | None = None,
) -> LocationTarget | None:
    """Decide on the progress that a location is to say; None: it stays as it is.

    Args:
        commit: From `choose_commit`.
        parent: The commit that it was executed on, if there is one.
        location: The location.
        is_newest: No batch has followed the commit, so its sink may not have been called.
        sink: The commit that the output holds; None if the sink does not say.
        noted: The commit whose sink a run has noted as done, on this machine or in the location.
    """
    if parent is not None and (
        parent.position is None or (parent.query_id, parent.batch) != (commit.query_id, commit.batch - 1)
    ):
        parent = None
    is_open = is_newest and commit.source is None
    if is_open and sink is not None:
        is_open = not sink.is_of(commit)
    elif is_open:
        is_open = noted != commit.link and not _is_acknowledged(commit, location)
    if is_open and parent is None and commit.batch:
        return None  # the batch before is of an older version, which knows no position
    return LocationTarget(commit, parent, is_open)


def content_of(target: LocationTarget) -> dict[str, bytes]:
    """The files of a location that says this, by name.

    Raises `CorruptDataError` if the entry names a file that is not one of a source's beginning.
    """
    commits = [commit for commit in (target.parent, target.commit) if commit is not None]
    files = {"metadata": msgspec.json.encode({"id": target.commit.query_id})}
    for commit in commits:
        position = commit.position
        if position is None:
            continue
        for file in position.files:
            if not _FILE.fullmatch(file.name):
                raise CorruptDataError(
                    f"the position of the input names {file.name!r}, which no source of Spark writes; see `varvite "
                    "verify JOB --repair`",
                    batch=commit.batch,
                    object_name=layout.chain(commit.seq),
                )
            files[file.name] = file.data
        files[f"offsets/{commit.batch}"] = position.offsets.encode()
        if commit is not target.commit or not target.is_open:
            watermark = msgspec.json.encode({"nextBatchWatermarkMs": position.watermark_ms})
            files[f"commits/{commit.batch}"] = b"v1\n" + watermark
    return files


def change_of(target: LocationTarget, location: LocationState) -> LocationChange:
    """The change that makes a location say what the target is; empty if it does."""
    files = content_of(target)
    logs = {f"offsets/{n}" for n in location.planned} | {f"commits/{n}" for n in location.acknowledged}
    surplus = [name for name in logs - files.keys() if int(name.rpartition("/")[2]) >= target.next_batch - 1]
    position = target.commit.position
    is_current = position is not None and location.offsets == position.offsets and location.query_id is not None
    missing = {name for name in files if name.startswith(("offsets/", "commits/"))} - logs
    if is_current and not surplus and not missing:
        return LocationChange((), {})
    # Commits first: in between, no batch counts as acknowledged that is not.
    return LocationChange(tuple(sorted(surplus)), files)


def _is_acknowledged(commit: Commit, location: LocationState) -> bool:
    """Has Spark acknowledged just this execution of the batch, in logs that it has written one after the other?"""
    position = commit.position
    return (
        position is not None
        and position.is_in_spark_log
        and location.query_id == commit.query_id
        and location.offsets == position.offsets
        and commit.batch in location.acknowledged
    )
