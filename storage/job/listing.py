"""Which jobs there are under a storage root, and opening one of them by its name.

Invariants: I11 (a job that is not there, or has lost its `job.json`, is an error that says so, never an empty job).
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
    """Names of all jobs under the root, in order.

    Stores can only list everything below a prefix, so this costs a listing of the whole root: on a big storage name the
    job, or do it seldom.
    """
    suffix = "/" + layout.JOB
    try:
        listed = root.list("")
    except InvalidRequestError:
        names = _names_of_directories(root.url)
        if names is None:
            raise
        return names
    found = (meta.name.removesuffix(suffix) for meta in listed if meta.name.endswith(suffix))
    return tuple(name for name in found if "/" not in name)


def _names_of_directories(url: str) -> tuple[str, ...] | None:
    """Names of the jobs in a local directory in which this process may not look everywhere; None if it is none.

    What is no job, as `lost+found` at the root of a filesystem, hides none. A job that cannot be read is named.
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
    """The job of that name.

    Raises:
        InvalidRequestError: there is none; the message says which there are.
        MissingObjectError: its `job.json` is gone, and other objects of it are there.
        VarviteError: `job.json` cannot be read.
    """
    store = JobStore(root, layout.check_job_name(job))
    try:
        record = find_job(store)
    except VarviteError as error:
        error.with_context(job=job)
        raise
    if record is None:
        like = _known(root, job)
        raise InvalidRequestError(f"there is no job {job!r} in {root.url}{like}, see `varvite jobs`", job=job)
    return OpenJob(store, record)


def _known(root: ObjectStore, wanted: str) -> str:
    """A name like the wanted one, for a message; nothing if there is none, or the storage does not tell."""
    try:
        close = difflib.get_close_matches(wanted, job_names(root), 1)
    except VarviteError:
        return ""
    return f"; did you mean {close[0]!r}?" if close else ""
