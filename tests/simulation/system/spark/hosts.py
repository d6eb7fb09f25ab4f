"""Hosts of executors, with local recovery on: directories that outlive every process, and who keeps copies there.

Executors of one host share its copies of state. One that Spark has given up may still hold its copy, until it wakes up
or is killed, and a standby holds those that it brings up.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from unittest import mock

from tests.simulation.system import threads
from tests.simulation.system.scheduler import Crash, Process, ProcessClock
from varvite.changelog.restore import local as local_copies
from varvite.changelog.restore.local import LocalCopy, LocalRecovery
from varvite.materializer.standby.follower import Standby
from varvite.spark_integration.worker.state import local_place
from varvite.storage.errors import VarviteError
from varvite.storage.job.store import JobStore

if TYPE_CHECKING:
    from tests.simulation.system.job import SimulatedJob

POLICY: Final = LocalRecovery(directories=("of the host",), flush_interval_ms=0)
TICK_S: Final = 0.5
"""Between looks for a copy that somebody holds."""
STANDBY_POLL_S: Final = 1.0


class HeldCopy(LocalCopy, Crash):
    """A copy that a simulated process holds: its lock goes with it."""

    def __init__(self, directory: Path, lock: int) -> None:
        super().__init__(directory, lock)
        _process().resources.append(self)

    def crash(self) -> None:
        self.release()


def stand_by(system: SimulatedJob, process: Process) -> None:
    """`varvite standby` on the process's host."""
    clock = ProcessClock(system.scheduler, process)
    standby = Standby(system.name, JobStore(system.store_of(process), system.name), POLICY, clock)
    while True:
        try:
            for line in standby.step():
                system.oracle.count(f"standby: {line.how.replace('-', ' ')}")
        except VarviteError as error:
            system.note(f"{process.name}: {error}")
        clock.sleep(STANDBY_POLL_S)


def _process() -> Process:
    task = threads.scheduler().current
    assert task is not None
    return task.process


def _directory_of_host(_policy: LocalRecovery, _partition: int) -> Path:
    host = _process().host
    assert host is not None
    return host


@contextmanager
def simulated_hosts() -> Iterator[None]:
    """Local copies are in the directory of the host of the process that asks."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(local_copies, "LocalCopy", HeldCopy))
        stack.enter_context(mock.patch.object(LocalRecovery, "root", _directory_of_host))
        stack.enter_context(mock.patch.object(local_place, "_LOCK_TICK_S", TICK_S))
        yield
