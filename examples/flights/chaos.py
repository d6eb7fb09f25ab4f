"""Kills processes of the running demo with SIGKILL at random moments; the seed decides which and when."""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass, field
from pathlib import Path

import psutil

STATE_WORKERS = "varvite.spark_integration.worker.process.parent"
"""In the command line of the process that an executor's state workers are forked from, and so in theirs."""
DRIVER, STATE_WORKER, SIDECAR, PYTHON_WORKER = "driver", "state worker", "sidecar", "Python worker"
VICTIMS = (DRIVER, STATE_WORKER, SIDECAR, PYTHON_WORKER, STATE_WORKER, PYTHON_WORKER, SIDECAR, DRIVER)


@dataclass(frozen=True)
class Kill:
    """Kill `victim` when so many rows are done, `delay_s` after that is noticed."""

    rows: int
    victim: str
    delay_s: float


@dataclass
class Chaos:
    """The kills still to come, in order of rows."""

    kills: list[Kill]
    done: list[Kill] = field(default_factory=list[Kill])

    @classmethod
    def plan(cls, seed: int, rows: int) -> Chaos:
        """Every kind of process at least once, spread over the run."""
        rng = random.Random(seed)
        victims = list(VICTIMS)
        rng.shuffle(victims)
        step = rows / (len(victims) + 1)
        kills = [
            Kill(int(step * (i + rng.uniform(0.2, 0.8))), victim, rng.uniform(0.0, 1.0))
            for i, victim in enumerate(victims)
        ]
        return cls(kills)

    def due(self, rows: int) -> Kill | None:
        """The next kill, if its time has come."""
        if self.kills and rows >= self.kills[0].rows:
            kill = self.kills.pop(0)
            self.done.append(kill)
            return kill
        return None


def kill_tree(pid: int) -> None:
    """Kill a driver with its JVM at once, as the loss of a machine would; state workers notice by themselves."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        jvms = [c for c in process.children(recursive=True) if c.name().startswith("java")]
        for victim in (process, *jvms):
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()


def kill_state_worker(work: Path, rng: random.Random) -> bool:
    """Kill one state worker, if there is one."""
    of_demo = {
        process.pid: process
        for process in psutil.process_iter(["cmdline", "ppid"])
        if STATE_WORKERS in (command := process.info["cmdline"] or []) and str(work) in " ".join(command)
    }
    return kill_one([process for process in of_demo.values() if process.info["ppid"] in of_demo], rng)


def kill_python_worker(driver_pid: int, rng: random.Random) -> bool:
    """Kill one of Spark's own Python workers, if there is one."""
    daemons = processes_below(driver_pid, "pyspark.daemon")
    of_daemon = {process.pid for process in daemons}
    return kill_one([process for process in daemons if process.info["ppid"] in of_daemon], rng)


def processes_below(pid: int, word: str) -> list[psutil.Process]:
    """The processes that a process has started, they or others that it has, with a word in their command."""
    try:
        below = {process.pid for process in psutil.Process(pid).children(recursive=True)}
    except psutil.NoSuchProcess:
        return []
    return [
        process
        for process in psutil.process_iter(["cmdline", "ppid"])  # a process that has just ended has no command
        if process.pid in below and word in " ".join(process.info["cmdline"] or ())
    ]


def kill_one(processes: list[psutil.Process], rng: random.Random) -> bool:
    """Kill one of these processes, if there is one that has not just ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        if processes:
            rng.choice(processes).kill()
            return True
    return False
