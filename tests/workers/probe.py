"""Looks at the state workers of an executor from outside, and kills them."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from varvite.spark_integration.transport.connection import parent_report
from varvite.spark_integration.transport.home import WorkerHome
from varvite.spark_integration.transport.wire import ParentReport
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from pathlib import Path


def probe(home: WorkerHome, timeout_s: float = 10.0) -> ParentReport | None:
    """The report of the home's parent about itself and its workers; None if none runs. Raises OSError."""
    return parent_report(home, timeout_s)


def homes(local_directory: Path) -> list[WorkerHome]:
    """The homes below a `spark.local.dir`, whatever executor they belong to."""
    return [WorkerHome(path) for path in sorted(local_directory.glob("**/blockmgr-*/varvite-*")) if path.is_dir()]


def kill_worker(home: WorkerHome, worker: str, number: signal.Signals = signal.SIGKILL) -> int:
    """Send a signal to one worker; gives its process id.

    Raises:
        InvalidRequestError: the home has no such worker.
    """
    report = probe(home)
    for process in report.workers if report is not None else ():
        if process.worker == worker:
            os.kill(process.pid, number)
            return process.pid
    raise InvalidRequestError(f"no state worker {worker!r} runs in {home.path}; `probe` lists those that do")
