"""Comparison of an object's own account of itself with the place where it was found.

Checksums vouch for the bytes, not for the place: whoever copies or swaps objects leaves them whole. So every record
says its name and its job, and every reader of one asks here (I8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varvite.storage.errors import CorruptDataError, InvalidRequestError, LineageError
from varvite.storage.format import layout
from varvite.storage.format.records import Commit, Fence, Pin, SnapshotDescriptor

if TYPE_CHECKING:
    from collections.abc import Callable

    from varvite.storage.format.records import Entry, Savepoint


def check_record(record: Entry | SnapshotDescriptor | Pin | Savepoint, name: str, job_id: str | None = None) -> None:
    """Check that a record was found where it belongs.

    Args:
        record: The record.
        name: The name of its object.
        job_id: The job at the store's root; None: it is not known.

    Raises:
        CorruptDataError: the record says that it is another object.
        LineageError: an entry says that it is another job's: then job.json is more likely the wrong one.
    """
    if isinstance(record, (Fence, Commit)):
        check_name(name, layout.chain, record.seq)
        if job_id not in (None, record.job_id):
            raise LineageError(
                f"the entry belongs to job id {record.job_id}, job.json says {job_id}; bring the right job.json back",
                object_name=name,
            )
    elif isinstance(record, SnapshotDescriptor):
        check_name(name, layout.snapshot, record.operator, record.low, record.high, record.number)
        _check_job(name, record.job_id, job_id)
    elif isinstance(record, Pin):
        check_name(name, layout.pin, record.token)
    else:
        check_name(name, layout.savepoint, record.name)
        _check_job(name, record.commit.job_id, job_id)
        _check_own_files(name, record)


def check_name(name: str, name_of: Callable[..., str], *parts: str | int) -> None:
    """Check that an object whose parts of its name are these was found as `name`. Raises `CorruptDataError`."""
    try:
        true_name = name_of(*parts)
    except InvalidRequestError as error:
        raise CorruptDataError(
            f"the object says that it is {parts}, which no object can be", object_name=name
        ) from error
    if true_name != name:
        raise CorruptDataError(
            f"the object says that it is {true_name}: it was copied or moved here; see `varvite verify JOB --repair`",
            object_name=name,
        )


def _check_job(name: str, record_job: str, job_id: str | None) -> None:
    if job_id not in (None, record_job):
        raise CorruptDataError(
            f"the object belongs to job id {record_job}, job.json says {job_id}; see `varvite verify JOB --repair`",
            object_name=name,
        )


def _check_own_files(name: str, savepoint: Savepoint) -> None:
    """Check that the files that go with a savepoint are its own: they are deleted with it (I7)."""
    files = [*savepoint.files, *savepoint.tables, *(image.data for image in savepoint.images)]
    directory = layout.savepoint_directory(savepoint.token)
    foreign = next((file.name for file in files if not file.name.startswith(directory)), None)
    if foreign is not None:
        raise CorruptDataError(
            f"the savepoint names {foreign} as its own, but its files are below {directory}; use another savepoint",
            object_name=name,
        )
