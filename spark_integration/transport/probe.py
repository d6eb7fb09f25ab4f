"""Looks at the state workers of an executor from outside: for metrics, for error messages and for tests."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Final

from varvite.spark_integration.transport.home import PARENT_SOCKET, WorkerHome, connect
from varvite.spark_integration.transport.wire import Channel, ListWorkers, ParentReport, PeerLostError
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from pathlib import Path

_TAIL_BYTES: Final = 2000


def probe(home: WorkerHome, timeout_s: float = 10.0) -> ParentReport | None:
    """What the home's parent says of itself and its workers; None if none runs. Raises OSError."""
    connection = connect(home, PARENT_SOCKET)
    if connection is None:
        return None
    channel = Channel(connection)
    channel.set_timeout(timeout_s)
    try:
        channel.send_message(ListWorkers())
        return channel.receive_message(ParentReport)
    except PeerLostError:
        return None  # it was just ending
    finally:
        channel.close()


def log_tail(home: WorkerHome, size_bytes: int = _TAIL_BYTES) -> str:
    """The end of the log of the parent and its workers; "" if there is none."""
    try:
        with home.log_path.open("rb") as log:
            log.seek(max(0, home.log_path.stat().st_size - size_bytes))
            return log.read(size_bytes).decode(errors="replace")
    except OSError:
        return ""


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
