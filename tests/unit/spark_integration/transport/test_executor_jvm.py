"""Finding the executor's JVM, and noticing its end."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from varvite.spark_integration.transport.executor_jvm import ProcessInfo, ProcessWatch, ancestors, find_jvm
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

DAEMON = ProcessInfo(12, "python3", "python3 -m pyspark.daemon pyspark.worker")


def lineage(*processes: ProcessInfo) -> object:
    def walk(pid: int) -> Iterator[ProcessInfo]:
        assert pid == 13
        return iter(processes)

    return walk


@pytest.mark.parametrize(
    ("processes", "pid"),
    [
        ((DAEMON, ProcessInfo(11, "java", "java org.apache.spark…"), ProcessInfo(1, "init", "")), 11),
        ((ProcessInfo(1, "java", "java in a container"),), 1),
        ((DAEMON, ProcessInfo(11, "bash", "wrapper"), ProcessInfo(10, "java", ""), ProcessInfo(9, "java", "")), 10),
        ((DAEMON, ProcessInfo(11, "jsvc.exec", "an unusual launcher"), ProcessInfo(1, "init", "")), 11),
    ],
)
def test_the_jvm_is_the_nearest_java_or_the_daemons_starter(processes: tuple[ProcessInfo, ...], pid: int) -> None:
    assert find_jvm(13, lineage(*processes)) == pid  # type: ignore[arg-type]


@pytest.mark.parametrize("processes", [(), (DAEMON, ProcessInfo(1, "init", "")), (ProcessInfo(1, "init", ""),)])
def test_an_orphan_has_no_jvm(processes: tuple[ProcessInfo, ...]) -> None:
    """A worker whose executor has ended belongs to the init process: nothing may be started for it."""
    with pytest.raises(InvalidRequestError, match="no JVM"):
        find_jvm(13, lineage(*processes))  # type: ignore[arg-type]


def test_ancestors_lead_from_the_parent_up() -> None:
    found = list(ancestors(os.getpid()))
    assert found[0].pid == os.getppid()
    assert len({p.pid for p in found}) == len(found)


@pytest.mark.parametrize("with_descriptor", [True, False])
def test_a_watch_tells_when_the_process_has_ended(with_descriptor: bool) -> None:
    process = subprocess.Popen(["sleep", "60"])
    watch = ProcessWatch.of(process.pid) if with_descriptor else ProcessWatch(process.pid, None)
    assert not watch.ended()
    process.kill()
    process.wait()
    assert watch.ended()
    watch.close()


def test_a_process_that_does_not_exist_cannot_be_watched() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    with pytest.raises(ProcessLookupError):
        ProcessWatch.of(process.pid)
