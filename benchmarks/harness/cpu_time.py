"""CPU time of everything that a Spark application runs on this machine: driver, JVM, Python workers, state workers."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Self

import psutil

_PARENT = "varvite.spark_integration.worker.process.parent"


class ApplicationTime:
    """Sums up the CPU time of the processes; the parent of the state workers is not the driver's child."""

    def __init__(self, jvm_pid: int) -> None:
        self._jvm_pid = jvm_pid
        self._parent: psutil.Process | None = None
        self._known_ms: dict[int, float] = {}

    @classmethod
    def of(cls, spark: Any) -> Self:
        """Of the application of a local session."""
        handle = spark.sparkContext._jvm.java.lang.ProcessHandle.current()  # noqa: SLF001  no public way
        return cls(int(handle.pid()))

    def cpu_ms(self) -> float:
        """User and system time so far, of processes that have ended too if an earlier call has seen them."""
        driver = psutil.Process()
        processes = [driver, *driver.children(recursive=True)]
        parent = self._worker_parent()
        if parent is not None:
            with suppress(psutil.NoSuchProcess):
                processes += [parent, *parent.children(recursive=True)]
        for process in processes:
            with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                times = process.cpu_times()
                self._known_ms[process.pid] = (times.user + times.system) * 1000
        return sum(self._known_ms.values())

    def _worker_parent(self) -> psutil.Process | None:
        """Started by the first task, so looked for until it is there."""
        if self._parent is None:
            wanted = {_PARENT, str(self._jvm_pid)}
            found = (p for p in psutil.process_iter(["cmdline"]) if wanted <= set(p.info["cmdline"] or ()))
            self._parent = next(found, None)
        return self._parent
