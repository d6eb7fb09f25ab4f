"""Opens the job's storage as a request to a state worker describes it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from varvite.changelog.chain.reader import ChainReader
from varvite.storage.errors import VarviteError
from varvite.storage.job.store import JobFacts, JobStore
from varvite.storage.object_stores.open import open_store

if TYPE_CHECKING:
    from varvite.spark_integration.messages.protocol import OperatorRequest, TaskRequest
    from varvite.storage.object_stores.contract import ObjectStore

_log: Final = logging.getLogger(__name__)


def requested_store(request: OperatorRequest) -> ObjectStore:
    """The storage of the request's job. Raises `VarviteError`."""
    root = open_store(request.storage_url, request.storage_options)
    facts = JobFacts(request.job_id, request.job_storage)
    return JobStore(root, request.job, facts=facts, key_provider=request.key_provider)


def has_run(task: TaskRequest, epoch: int, token: str) -> bool:
    """Does the chain of the request's storage have the fence of that run? True where that cannot be read.

    Fences stay (I7), so one that is not there was never there.
    """
    operator = task.batch.operator
    try:
        entry = ChainReader(requested_store(operator), operator.job_id).read_all([epoch])[0]
    except (VarviteError, OSError) as error:
        _log.warning("the fence of epoch %d cannot be read: %s", epoch, error)
        return True
    return entry is not None and entry.token == token
