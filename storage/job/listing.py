"""Lists the jobs below a storage root, and opens a job by its name.

Invariants: I11 (a job that does not exist, or has lost its `job.json`, is an error, never an empty job).
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, NamedTuple

from varvite.storage.errors import InvalidRequestError, VarviteError
from varvite.storage.format import layout
from varvite.storage.job.record import find_job
from varvite.storage.job.store import JobStore
from varvite.storage.object_stores.open import local_directory

if TYPE_CHECKING:
    from pathlib import Path

    from varvite.storage.format.records import JobRecord
    from varvite.storage.object_stores.contract import ObjectStore


class OpenJob(NamedTuple):
    """A job that exists."""

    store: JobStore
    record: JobRecord


def job_names(root: ObjectStore) -> tuple[str, ...]:
    """The names of all jobs below the root, in order.

    Stores can only list everything below a prefix, so this lists the whole root: call it rarely on a large storage.
    """
    suffix = "/" + layout.JOB
    try:
        listed = root.list("")
    except InvalidRequestError:
        names = _names_of_directories(root.url)
        if names is None:
            raise
        return names
    prefixes = (meta.name.removesuffix(suffix) for meta in listed if meta.name.endswith(suffix))
    return tuple(name for name in prefixes if "/" not in name)


def _names_of_directories(url: str) -> tuple[str, ...] | None:
    """The names of the jobs in a local directory with unreadable parts; None if the URL is no local directory.

    Other directories, such as `lost+found` at the root of a filesystem, are skipped. An unreadable job is listed.
    """
    directory = local_directory(url)
    if directory is None:
        return None
    try:
        names = sorted(path.name for path in directory.iterdir())
    except OSError:
        return None
    return tuple(name for name in names if layout.is_job_name(name) and _may_be_job(directory / name))


def _may_be_job(directory: Path) -> bool:
    try:
        return (directory / layout.JOB).is_file()
    except OSError:
        return True


def open_job(root: ObjectStore, job: str) -> OpenJob:
    """The job with this name.

    Raises:
        InvalidRequestError: there is none; the message suggests a similar name.
        MissingObjectError: its `job.json` is gone, but other objects of it exist.
        VarviteError: `job.json` cannot be read.
    """
    store = JobStore(root, layout.check_job_name(job))
    try:
        record = find_job(store)
    except VarviteError as error:
        error.with_context(job=job)
        raise
    if record is None:
        suggestion = _suggest_name(root, job)
        raise InvalidRequestError(f"there is no job {job!r} in {root.url}{suggestion}, see `varvite jobs`", job=job)
    return OpenJob(store, record)


def _suggest_name(root: ObjectStore, job: str) -> str:
    """A similar name, for a message; "" if there is none, or the storage cannot be listed."""
    try:
        close = difflib.get_close_matches(job, job_names(root), 1)
    except VarviteError:
        return ""
    return f"; did you mean {close[0]!r}?" if close else ""
