"""The processes of the demo, which are killed with SIGKILL and start again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import click

from examples.flights.chaos import kill_one, kill_state_worker, processes_below
from examples.orders.broker import Broker

DRIVER, WORKER, EXECUTOR, BROKER = VICTIMS = ("driver", "worker", "executor", "broker")
LOCAL, CLUSTER = "local[2]", "local-cluster[2,1,1024]"
"""Masters; only in a cluster are executors processes of their own."""
EXECUTOR_CLASS = "CoarseGrainedExecutorBackend"


class Processes:
    """The job's driver, with all that it starts, and the broker.

    Args:
        work: Directory of the demo.
        broker: It runs.
        arguments: The job's, after the directory and the servers.
        rng: Chooses among several workers or executors.
    """

    def __init__(self, work: Path, broker: Broker, arguments: tuple[str, ...], rng: random.Random) -> None:
        self._work = work
        self._broker = broker
        self._arguments = (str(work), broker.servers, *arguments)
        self._rng = rng
        self._driver = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        path = os.pathsep.join(p for p in (str(Path.cwd()), os.environ.get("PYTHONPATH", "")) if p)
        environment = {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
        with (self._work / "driver.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "examples.orders.job", *self._arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
            )  # fmt: skip

    def check(self) -> None:
        """Raise `ClickException` if the driver has ended by itself."""
        if self._driver.poll() is not None:
            tail = (self._work / "driver.log").read_text(errors="replace")[-3000:]
            raise click.ClickException(f"the driver ended with code {self._driver.returncode}:\n{tail}")

    def kill(self, victim: str) -> bool:
        """Kill one of a kind; a driver and a broker are started again. False if there is none yet."""
        if victim == DRIVER:
            self.end()
            self._driver = self._started()
            return True
        if victim == BROKER:
            self._broker.end(signal.SIGKILL)
            self._broker.start()
            return True
        if victim == WORKER:
            return kill_state_worker(self._work, self._rng)
        return kill_one(processes_below(self._driver.pid, EXECUTOR_CLASS), self._rng)

    def end(self) -> None:
        """Kill the driver for good."""
        self._driver.kill()
        self._driver.wait()
