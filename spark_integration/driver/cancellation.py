"""Ends a batch that does not end by itself: its Spark jobs, and the state workers that do not answer.

A batch that is cut off is not committed, or its sink has not returned. The next run executes it again, or finds it
committed, as after a crash (I3, I11).
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from varvite.spark_integration.transport.connection import parent_report
from varvite.spark_integration.transport.home import executor_home, worker_name
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark import SparkContext

_log: Final = logging.getLogger(__name__)
_ANSWER_TIMEOUT_S: Final = 5.0
_END_TIMEOUT_S: Final = 10.0
"""Time allowed for the job that ends state workers."""


def cancel_batch(context: SparkContext, run_id: str, job_id: str) -> None:
    """Cancel the Spark jobs of a query's run, and kill the state workers of a job; returns after some seconds at most.

    Args:
        context: Where the query runs.
        run_id: Spark's id of the run, which is the group of its jobs.
        job_id: The job's id, by which its workers are named.
    """
    context.cancelJobGroup(run_id)
    # In a thread: if no slot is free, the job does not even begin.
    thread = threading.Thread(target=_end_workers, args=(context, job_id), name="varvite-end-workers", daemon=True)
    thread.start()
    thread.join(_END_TIMEOUT_S)


def _end_workers(context: SparkContext, job_id: str) -> None:
    tasks = max(context.defaultParallelism, 1)  # as many as there are slots, so that each executor gets one
    try:
        context.parallelize(range(tasks), tasks).foreachPartition(partial(kill_workers, job_id))
    except Exception as error:  # noqa: BLE001  the query ends all the same; the workers end with the application
        _log.warning("the state workers were not ended: %s", error)


def kill_workers(job_id: str, _: Iterable[Any] = ()) -> None:
    """Kill the job's state workers on this executor. They hold only cache (I9)."""
    prefix = worker_name(job_id, 0).removesuffix("0")
    try:
        report = parent_report(executor_home(os.environ), _ANSWER_TIMEOUT_S)
    except (OSError, InvalidRequestError):
        return
    for worker in report.workers if report is not None else ():
        if worker.worker.startswith(prefix):
            with suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGKILL)  # also one that SIGSTOP has stopped
