"""A standalone Spark cluster of real processes: a master and workers on distinct loopback hosts.

Distinct hosts make Spark's locality levels (process, node) differ, as they do on several machines. PySpark's package
has no `start-worker.sh`, but its `spark-class` runs the master and the workers.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pyspark

from benchmarks.harness.servers.process import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FIRST_HOST = 11
START_TIMEOUT_S = 400.0


@dataclass
class StandaloneCluster:
    """A running cluster; `standalone_cluster` makes and ends one."""

    directory: Path
    url: str
    """For `spark.master`; the driver needs `spark.driver.host=127.0.0.1`."""
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def executors(self) -> dict[int, psutil.Process]:
        """The executors' JVMs by the index of their worker; a worker has one or none per application."""
        found: dict[int, psutil.Process] = {}
        for index, worker in enumerate(self.workers):
            for child in psutil.Process(worker.pid).children(recursive=True):
                if _is_executor(child):
                    found[index] = child
        return found

    def kill_executor(self, index: int) -> None:
        """SIGKILL the executor of a worker; its worker starts another."""
        self.executors()[index].send_signal(signal.SIGKILL)

    def kill_host(self, index: int) -> None:
        """SIGKILL a worker and its executor, for which no other comes."""
        executor = self.executors()[index]
        self.workers[index].kill()
        executor.send_signal(signal.SIGKILL)

    def places(self, index: int) -> dict[str, str]:
        """Variables with the directories of a worker's Python processes, which share them with none of another host."""
        temporary, cache = (self.directory / f"{purpose}-worker-{index}" for purpose in ("tmp", "cache"))
        temporary.mkdir(exist_ok=True)
        return {"TMPDIR": str(temporary), "XDG_CACHE_HOME": str(cache)}

    def log_tail(self) -> str:
        """The ends of all logs, for messages."""
        logs = sorted(self.directory.glob("*.log"))
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-2000:]}" for path in logs)


def host_name(index: int) -> str:
    """Spark's name for the host of a worker."""
    return f"127.0.0.{FIRST_HOST + index}"


def _is_executor(process: psutil.Process) -> bool:
    try:
        return any("CoarseGrainedExecutorBackend" in part for part in process.cmdline())
    except psutil.NoSuchProcess:
        return False


@contextmanager
def standalone_cluster(
    directory: Path,
    *,
    workers: int = 3,
    cores: int = 1,
    memory: str = "1g",
    python: str = sys.executable,
    python_path: str | None = None,
) -> Iterator[StandaloneCluster]:
    """A cluster until the block ends; its logs and work directories are under `directory`.

    Args:
        directory: Made if it is missing.
        workers: How many, each on a host of its own.
        cores: Of each worker.
        memory: Of each worker.
        python: The interpreter of the executors, unless the application names another.
        python_path: Their PYTHONPATH; None: they import what the tests import.
    """
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    cluster = StandaloneCluster(directory, f"spark://127.0.0.1:{port}")
    environment = {**os.environ, "SPARK_HOME": str(Path(pyspark.__file__).parent), "PYSPARK_PYTHON": python}
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p) if python_path is None else python_path
    environment["SPARK_LOG_DIR"] = str(directory)
    # Else every master takes the same port, or looks for the next one.
    environment["SPARK_MASTER_OPTS"] = "-Dspark.master.rest.enabled=false"
    addresses = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
    master = _start("master", directory, environment, "org.apache.spark.deploy.master.Master", *addresses)
    try:
        _wait_for(lambda: _listens(port), master, cluster)
        for index in range(workers):
            own = ("--host", host_name(index), "--cores", str(cores), "--memory", memory, "--webui-port", "0")
            work = ("--work-dir", str(directory / f"work-{index}"), cluster.url)
            name = f"worker-{index}"
            placed = {**environment, **cluster.places(index)}
            cluster.workers.append(
                _start(name, directory, placed, "org.apache.spark.deploy.worker.Worker", *own, *work)
            )
        for index, worker in enumerate(cluster.workers):
            log = directory / f"worker-{index}.log"
            _wait_for(lambda log=log: "Successfully registered with master" in log.read_text(), worker, cluster)
        yield cluster
    finally:
        _end([*cluster.workers, master])


def _start(name: str, directory: Path, environment: dict[str, str], *command: str) -> subprocess.Popen[bytes]:
    with (directory / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            [f"{environment['SPARK_HOME']}/bin/spark-class", *command],
            cwd=directory,
            env={**environment, "SPARK_LOCAL_DIRS": str(directory / f"local-{name}")},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def _wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes], cluster: StandaloneCluster) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not condition():
        assert process.poll() is None, f"a Spark daemon ended with {process.returncode}\n{cluster.log_tail()}"
        assert time.monotonic() < deadline, f"no Spark cluster after {START_TIMEOUT_S} s\n{cluster.log_tail()}"
        time.sleep(0.1)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _end(daemons: list[subprocess.Popen[bytes]]) -> None:
    """End the daemons and whatever they have started."""
    for daemon in daemons:
        try:
            children = psutil.Process(daemon.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            children = []
        for process in [*children, daemon]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        daemon.wait()
