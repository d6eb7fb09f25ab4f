"""Reads `job.json`, the facts about a job that never change, and creates it once.

Invariants: I11 (a job with other key groups or another key hash is refused, never reinterpreted).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varvite.storage.errors import IncompatibleError, InvalidRequestError, MissingObjectError
from varvite.storage.format import layout
from varvite.storage.format.records import KEY_HASH, JobRecord, decode_record, encode_record
from varvite.storage.transfer.claim import claim

if TYPE_CHECKING:
    from varvite.storage.clock import Clock, TokenSource
    from varvite.storage.format.records import JobStorage
    from varvite.storage.object_stores.contract import ObjectStore

MAX_PARALLELISM_MAX = 32768
"""Key groups are stored in two bytes."""


def read_job(store: ObjectStore) -> JobRecord:
    """The job at the store's root. Raises `MissingObjectError` if there is none, `IncompatibleError`."""
    record = decode_record(store.get(layout.JOB), JobRecord, layout.JOB)
    if record.key_hash != KEY_HASH:
        raise IncompatibleError(
            f"the job's keys are hashed by {record.key_hash!r}, this varvite hashes by {KEY_HASH!r}; use the version "
            "that made the job",
            job=record.name,
            object_name=layout.JOB,
        )
    return record


def find_job(store: ObjectStore) -> JobRecord | None:
    """The job at the store's root; None if there is none.

    Raises as `read_job`; `MissingObjectError` if its `job.json` is gone, but other objects of it exist.
    """
    try:
        return read_job(store)
    except MissingObjectError as error:
        if not store.list(layout.CHAIN):
            return None
        raise MissingObjectError(
            f"the job has lost its {layout.JOB}; bring it back from a copy", object_name=layout.JOB
        ) from error


def open_or_create_job(
    store: ObjectStore,
    *,
    name: str,
    max_parallelism: int,
    clock: Clock,
    tokens: TokenSource,
    begins_after: int = 0,
    cloned_from: str | None = None,
    storage: JobStorage | None = None,
) -> JobRecord:
    """The job at the store's root, created if it is new.

    Args:
        store: Rooted at `<root>/<job>`.
        name: The job's name, for people; an existing job keeps its own.
        max_parallelism: The number of key groups, 1 to 32768; fixed for the life of the job.
        clock: The source of the creation time.
        tokens: The source of the job id and the writer's token.
        begins_after: The seq after which a new job's chain begins; an existing job keeps its own.
        cloned_from: The job in the same storage that a new job shares objects with; an existing job keeps its own.
        storage: Encryption and log location of a new job; an existing job keeps its own.

    Raises:
        IncompatibleError: the job exists with another max_parallelism or key hash.
        InvalidRequestError: max_parallelism is out of bounds.
    """
    if not 1 <= max_parallelism <= MAX_PARALLELISM_MAX:
        raise InvalidRequestError(f"max_parallelism is {max_parallelism}: choose 1 to {MAX_PARALLELISM_MAX}")
    try:
        record = read_job(store)
    except MissingObjectError:
        new = JobRecord(
            job_id=tokens.token(),
            token=tokens.token(),
            name=name,
            max_parallelism=max_parallelism,
            created_ms=clock.now_ms(),
            begins_after=begins_after,
            cloned_from=cloned_from,
            storage=storage,
        )
        record = new if claim(store, layout.JOB, encode_record(new), new.token, clock).won else read_job(store)
    if record.max_parallelism != max_parallelism:
        raise IncompatibleError(
            f"the job has {record.max_parallelism} key groups for ever, not {max_parallelism}; set max_parallelism to "
            f"{record.max_parallelism}, or start a new job",
            job=record.name,
        )
    return record
