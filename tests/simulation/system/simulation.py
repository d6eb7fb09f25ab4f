"""One simulation of the whole system: who is started when, what goes wrong, and the end without faults.

There is one job, and in some simulations a second one, its clone, which shares its objects. At the end everybody is
killed, what late requests there are take place, and everything that must be complete is restored. Then the system goes
on without faults for a while: it must, from whatever it was left in.
"""

from __future__ import annotations

import logging
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from tests.simulation.system import threads
from tests.simulation.system.bugs.script import Certain, Outcome, Script
from tests.simulation.system.database import real_rocksdb, simulated_rocksdb
from tests.simulation.system.job import CLONE, JOB, SimulatedJob
from tests.simulation.system.options import Options, options_of
from tests.simulation.system.oracle import Oracle
from tests.simulation.system.scheduler import Killed, Process, Scheduler, Task, Violation, remove
from tests.simulation.system.spark.cached_location import CachedCheckpoint, CachedLocation
from tests.simulation.system.spark.engine import (
    NoSmallBatches,
    RunCheckpoint,
    SimulatedExecution,
    chained_rows,
    winner_rows,
)
from tests.simulation.system.spark.hosts import simulated_hosts
from tests.simulation.system.storage import KEY_PROVIDER, log_storage
from tests.simulation.system.store import NO_FAULTS, Disk, SimulatedStore
from tests.simulation.system.threads import WatchOfTasks, simulated_threads
from varvite.changelog.commit import run as job_run
from varvite.changelog.restore import part_replay
from varvite.materializer.fold import parts as fold_parts
from varvite.materializer.restore import origin as state_origin
from varvite.spark_integration.driver import batch_executor, job_start, services
from varvite.storage.format.records import ORIGIN
from varvite.storage.job import log_store
from varvite.storage.object_stores.encrypted.keys import PROVIDER_VARIABLE
from varvite.storage.transfer import hedged_claim
from varvite.storage.transfer.claim import Claim, ClaimRequest

CHECKED_EVERY = 6
"""Commits of a job of which one at least is restored as a whole and compared."""
WRITTEN_ONCE = ("seg", "pack", "snapdata", "savepointdata")
"""Areas whose names are each for one object only."""
LOG_BATCHES_MAX = 12
"""Batches of log that are left when the materializer works without faults (I10)."""
QUIET_STEPS, QUIET_BATCH_STEPS = 9000, 500
"""Steps within which the system must get so far without faults, and how many more for each batch that it must make."""
MEMORY_DISK = Path("/dev/shm")
SMALL_PARTS: Any = {
    (fold_parts, "PART_BYTES_MIN"): 1,
    (fold_parts, "PART_STATE_BYTES_MIN"): 1,
    (fold_parts, "PART_RATIO_MIN"): 1e-6,
    (part_replay, "HELD_BYTES"): 1_000,
    (part_replay, "LOG_BYTES_AT_ONCE"): 4_000,
}
"""So little log is folded part by part, and read several times, in half of the seeds."""


class SeededTokens:
    """Tokens that are the same whenever a seed is run."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(f"tokens {seed}")

    def token(self) -> str:
        return f"{self._rng.getrandbits(128):032x}"


class CountedClaim(ClaimRequest):
    """A claim of a commit, perhaps settled by two threads."""

    def __init__(self, count: Callable[[str], None], *given: Any) -> None:
        super().__init__(*given)
        self._count = count
        self._begun = 0

    def settle(self, clock: Any, backoff: Any) -> Claim:
        self._begun += 1
        if self._begun == 2:
            self._count("hedged")
        return super().settle(clock, backoff)


class Simulation:
    """See the module; used once."""

    def __init__(
        self, seed: int, directory: Path, options: Options | None = None, script: Script | None = None
    ) -> None:
        self.seed = seed
        self.options = options or options_of(seed)
        self.directory = directory
        self.script = script
        turns = random.Random(f"turns {seed}") if script is None else None
        self.scheduler = Scheduler(turns, self.options.step_s, self.options.burst)
        self.tokens = SeededTokens(seed)
        self.disk = Disk(self.scheduler)
        self.disk.on_put, self.disk.on_delete = self._on_put, self._on_delete
        self.log: list[str] | None = None
        """Messages of processes, if anybody wants to know."""
        self.counts: dict[str, int] = {}
        """Counts of events, to see that the simulation goes far enough."""
        self._written: dict[str, bytes] = {}
        """Bytes that were ever written under names that are for one object only."""
        self.rng: random.Random = random.Random(f"chaos {seed}") if script is None else Certain()
        self.faults = replace(self.options.faults, hang=self.options.hang)
        self.log_faults = replace(self.options.log_faults, hang=self.options.hang)
        self.answers: dict[Task, Outcome] = {}
        """Task → what the storage answers to the call that it makes next, if a script says so."""
        self.quiet = False
        """Nothing goes wrong any more."""
        self._next_look_s = 0.0
        self.jobs = [SimulatedJob(self, JOB)]
        self.scheduler.on_step, self.scheduler.on_end = self._on_step, self._on_end

    @property
    def oracle(self) -> Oracle:
        """Of the first job."""
        return self.jobs[0].oracle

    def run(self) -> None:
        """All of it. Raises `Violation`, or whatever nobody expected."""
        with simulated_system(self, real=self.options.real_rocksdb):
            try:
                self._go_on()
                self._end()
            finally:
                self.scheduler.kill_all()

    def _go_on(self) -> None:
        """The part with faults. All processes may be killed at once, and are looked after then."""
        self._look()
        if self.script is not None:  # it says who is started
            self.scheduler.run(self.options.steps)
            return
        left = self.options.steps
        while left > 0:
            left -= self._run(left)

    def _run(self, steps: int) -> int:
        """Go on for at most so many steps, and look after a system of which nobody is left; the steps, at least 1."""
        before = self.scheduler.steps
        self.scheduler.run(steps)
        made = self.scheduler.steps - before
        if made < steps:
            self._look()
        return max(1, made)

    def store_of(self, process: Process) -> SimulatedStore:
        """The storage, as that process reaches it."""
        rng = random.Random(f"store {self.seed} {process.name}")
        return SimulatedStore(self.disk, self.scheduler, process, rng, lambda: self.faults, self.answers)

    def log_store_of(self, process: Process) -> SimulatedStore:
        """The storage of logs that are elsewhere."""
        rng = random.Random(f"log store {self.seed} {process.name}")
        return SimulatedStore(self.disk, self.scheduler, process, rng, lambda: self.log_faults, self.answers)

    def checkpoint_of(self, job: str) -> RunCheckpoint | CachedCheckpoint:
        """Spark's checkpoint location of a job."""
        location = next(one.location for one in self.jobs if one.name == job)
        if isinstance(location, CachedLocation):
            return CachedCheckpoint(location, self.scheduler.pause)
        return RunCheckpoint(location)

    def note(self, text: str) -> None:
        """Somebody says something."""
        if self.log is not None:
            self.log.append(f"{self.scheduler.now_s:10.2f} {text}")
        if self.scheduler.trace is not None:
            self.scheduler.trace.append(f"{self.scheduler.now_s:10.2f} {text}")

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def _on_put(self, name: str, data: bytes) -> None:
        area = name.partition("/")[2].partition("/")[0]
        if area in WRITTEN_ONCE and self._written.setdefault(name, data) != data:
            self.scheduler.fail(f"{name} was written again with other bytes")
        for job in self.jobs:
            job.oracle.put(name, data)

    def _on_delete(self, name: str) -> None:
        for job in self.jobs:
            job.oracle.deleted(name)

    # --- chaos -------------------------------------------------------------------------------------------------------

    def _on_step(self, task: Task, what: str) -> None:
        self.disk.settle()
        for job in self.jobs:
            if job.oracle.unchecked >= CHECKED_EVERY:
                self.scheduler.orders.append(job.check_newest)
        if self.scheduler.now_s >= self._next_look_s:
            self.scheduler.orders.append(self._look)
        if self.quiet:
            return
        if self.script is not None:
            for outcome in self.script.outcomes(task.process.name, what):
                self._act(task, outcome)
            return
        strike, options = self.rng.random(), self.options
        stalls = options.stalls * (10 if what.startswith(("put_if_absent", "sink")) else 1)
        if strike < stalls:
            task.process.stalls(self.scheduler.now_s, self.rng.random() * options.stall_max_s)
            self.note(f"{task.process.name} stalls until {task.process.stalled_until_s:.2f}")
            self.count("stalled")
        elif strike < stalls + options.crashes:
            self.scheduler.orders.append(lambda: self.kill(task.process))

    def _act(self, task: Task, outcome: Outcome) -> None:
        """Lets happen to a process what the script says at an effect; the storage's answer is the store's affair."""
        process = task.process
        self.note(f"{process.name}: {outcome}")
        match outcome.what:
            case "stalls":
                process.stalls(self.scheduler.now_s, outcome.number)
            case "killed":
                self.scheduler.orders.append(lambda: self.kill(process))
            case "replaced":
                self.scheduler.orders.append(self.jobs[0].start_another_driver)
            case "restored" | "anew":
                anew = outcome.what == "anew"
                self.scheduler.orders.append(lambda: self.jobs[0].set_back(int(outcome.number), anew=anew))
            case "cloned":
                if len(self.jobs) == 1 and self.oracle.newest != ORIGIN:
                    self.scheduler.orders.append(self._clone)
            case _:
                self.answers[task] = outcome

    def kill(self, process: Process) -> None:
        """End a process. By the hub."""
        job = self._job_of(process)
        if job is None:
            return
        self.note(f"{process.name} is killed")
        self.count("killed")
        job.processes.remove(process)
        self.scheduler.kill(process)
        job.killed(process)
        if self.rng.random() >= self.options.keeps_disk:
            remove(process.directory)

    def _job_of(self, process: Process) -> SimulatedJob | None:
        return next((job for job in self.jobs if process in job.processes), None)

    def _on_end(self, task: Task, error: BaseException | None) -> None:
        """A task has ended by itself."""
        if isinstance(error, Killed) or task.name != "main":
            if error is not None and not isinstance(error, Killed):
                raise error
            return
        self.note(f"{task.process.name} ends: {type(error).__name__}: {error}")
        self.scheduler.orders.append(lambda: self.kill(task.process))
        job = self._job_of(task.process)
        assert job is not None
        job.ended(task.process, error)

    # --- who is there ------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """The supervisor's: start who is missing. By the hub."""
        self._next_look_s = self.scheduler.now_s + 1 + self.rng.random() * 3
        for job in self.jobs:
            job.look()
        is_alone = len(self.jobs) == 1 and self.oracle.newest != ORIGIN and not self.quiet
        if is_alone and self.options.clones and self.rng.random() < self.options.clones:
            self._clone()

    def _clone(self) -> None:
        """Somebody starts a second job from a checkpoint or savepoint of the first, without copying."""
        savepoints = self.oracle.savepoints()
        source = f"{self.disk.url}/{JOB}"
        if savepoints and self.rng.random() < 0.5:
            source = f"{source}/savepoints/{self.rng.choice(savepoints)}"
        self.note(f"a clone of {source} is started")
        self.jobs.append(SimulatedJob(self, CLONE, source))

    def claim_request(self, *given: Any) -> ClaimRequest:
        """In the place of `ClaimRequest`: counts requests that others join."""
        return CountedClaim(self.count, *given)

    def _until(self, reached: Callable[[SimulatedJob], bool], otherwise: str) -> None:
        """Go on without faults until that is so of every job."""
        steps = QUIET_STEPS + QUIET_BATCH_STEPS * self.options.quiet_batches
        left = steps * len(self.jobs)
        while not all(map(reached, self.jobs)):
            left -= self._run(100)
            if left < 0:
                self.scheduler.fail(f"without faults, {otherwise}")

    # --- the end -----------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        self._kill_all()
        self.faults, self.log_faults, self.quiet = NO_FAULTS, NO_FAULTS, True
        self.disk.settle(all_of_them=True)
        self._check_retained()
        self._look()
        self._until(lambda job: not job.is_stopped, "the job cannot be set back (I11)")
        wanted = {job.name: job.location.acked + self.options.quiet_batches for job in self.jobs}
        self._until(
            lambda job: job.abandoned or job.location.acked >= wanted[job.name], "no batch is acknowledged (I11)"
        )
        if self.options.materializers and self.options.changelog:
            self._until(lambda job: job.log_batches() <= LOG_BATCHES_MAX, "the log does not get shorter (I10)")
        self._kill_all()
        self._check_retained()

    def _kill_all(self) -> None:
        for job in self.jobs:
            for process in list(job.processes):
                self.kill(process)

    def _check_retained(self) -> None:
        for job in self.jobs:
            job.oracle.check_retained()


@contextmanager
def simulated_system(system: Simulation, *, real: bool = False) -> Iterator[None]:
    """Spark and threads are simulated ones, and RocksDB, unless `real`."""

    def storage_of_current(_url: str, _other_url: str, _options: object) -> SimulatedStore:
        task = threads.scheduler().current
        assert task is not None
        return system.store_of(task.process)

    replaced: Any = {
        (services, "SnapshotWatch"): WatchOfTasks,
        (job_start, "SparkCheckpoint"): lambda _spark, location: system.checkpoint_of(location),
        (state_origin, "open_beside"): storage_of_current,
        (log_store, "open_like"): log_storage(system.log_store_of),
        (batch_executor, "winner_rows"): winner_rows,
        (batch_executor, "OperatorExecutor"): SimulatedExecution,
        (batch_executor, "SmallBatches"): NoSmallBatches,
        (batch_executor, "chained_rows"): chained_rows,
        (job_run, "is_hedged"): lambda _url: system.options.hedged,
        (hedged_claim, "ClaimRequest"): system.claim_request,
    }
    if system.seed % 2:
        replaced |= SMALL_PARTS
    with ExitStack() as stack:
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.CRITICAL)
        stack.enter_context(simulated_threads(system.scheduler))
        stack.enter_context(real_rocksdb() if real else simulated_rocksdb())
        stack.enter_context(simulated_hosts())
        stack.enter_context(mock.patch.dict(os.environ, {PROVIDER_VARIABLE: KEY_PROVIDER}))
        for (module, name), value in replaced.items():
            stack.enter_context(mock.patch.object(module, name, value))
        yield


@contextmanager
def local_disk() -> Iterator[Path]:
    """A directory for local files, in memory if there is such a file system."""
    place = MEMORY_DISK if MEMORY_DISK.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="varvite-simulation-", dir=place) as name:
        yield Path(name)


def simulate(
    seed: int, options: Options | None = None, *, script: Script | None = None, trace: list[str] | None = None
) -> Simulation:
    """Run a seed, or a script; raises what it finds, with the command that runs it again."""
    with local_disk() as directory:
        simulation = Simulation(seed, directory, options, script)
        simulation.scheduler.trace = trace
        try:
            simulation.run()
        except (Exception, Violation) as error:
            error.add_note(f"again: python -m tests.simulation.system {seed} --trace")
            raise
    return simulation
