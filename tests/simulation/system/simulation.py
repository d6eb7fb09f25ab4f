"""One simulation of the whole system: who is started when, what goes wrong, and the end without faults.

At the end everybody is killed, what late requests there are take place, and everything that must be complete is
restored. Then the system goes on without faults for a while: it must, from whatever it was left in.
"""

from __future__ import annotations

import logging
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from tests.simulation.system.actors import DriverRun, MaterializerLife, collect, read
from tests.simulation.system.cluster import Cluster, Executor
from tests.simulation.system.database import real_rocksdb, simulated_rocksdb
from tests.simulation.system.location import CheckpointLocation
from tests.simulation.system.operating import Choice, choose, restore
from tests.simulation.system.options import Options, options_of
from tests.simulation.system.oracle import JOB, Oracle
from tests.simulation.system.scheduler import Killed, Process, Scheduler, Task, Violation, remove
from tests.simulation.system.spark import SimulatedExecution, SparkError, chained_rows, winner_rows
from tests.simulation.system.store import NO_FAULTS, Disk, SimulatedStore, StoreFaults
from tests.simulation.system.threads import WatchOfTasks, simulated_threads
from varve.spark_integration import batch_attempt, coordinator
from varve.storage.errors import CorruptDataError, FencedError, RetryableError, StartError, VarveError
from varve.storage.job_store import JobStore
from varve.storage.records import ORIGIN

QUIET_BATCHES = 3
LOG_BATCHES_MAX = 12
"""Batches of log that are left when the materializer works without faults (I10)."""
QUIET_STEPS = 6000
"""Steps within which the system must get so far without faults."""
MEMORY_DISK = Path("/dev/shm")


class SeededTokens:
    """Tokens that are the same whenever a seed is run."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(f"tokens {seed}")

    def token(self) -> str:
        return f"{self._rng.getrandbits(128):032x}"


class Simulation:
    """See the module; used once."""

    def __init__(self, seed: int, directory: Path, options: Options | None = None) -> None:
        self.seed = seed
        self.options = options or options_of(seed)
        self.directory = directory
        self.scheduler = Scheduler(random.Random(f"turns {seed}"), self.options.step_s, self.options.burst)
        self.tokens = SeededTokens(seed)
        self.disk = Disk(self.scheduler)
        self.location = CheckpointLocation()
        self.oracle = Oracle(self.scheduler, self.disk, self.location, directory)
        self.log: list[str] | None = None
        """What processes said, if anybody wants to know."""
        self._rng = random.Random(f"chaos {seed}")
        self._faults = self.options.faults
        self._quiet = False
        self._processes: list[Process] = []
        self._drivers: dict[str, DriverRun] = {}
        self._numbers: dict[str, int] = {}
        self._restore: Choice | None = None
        """What an operator sets the stopped job back to."""
        self._next_look_s = 0.0
        self._checked_seq = 0
        chance = random.Random(f"cluster {seed}")
        self.cluster = Cluster(self.scheduler, chance, self.tokens, self.options, self._new_executor)
        self.scheduler.on_step, self.scheduler.on_end = self._on_step, self._on_end

    def run(self) -> None:
        """All of it. Raises `Violation`, or whatever nobody expected."""
        with simulated_system(self.scheduler, real=self.options.real_rocksdb):
            try:
                self._look()
                self.scheduler.run(self.options.steps)
                self._end()
            finally:
                self.scheduler.kill_all()

    def store_of(self, process: Process) -> SimulatedStore:
        """The storage, as that process reaches it."""
        rng = random.Random(f"store {self.seed} {process.name}")
        return SimulatedStore(self.disk, self.scheduler, process, rng, self._current_faults)

    def note(self, text: str) -> None:
        """Somebody says something."""
        if self.log is not None:
            self.log.append(f"{self.scheduler.now_s:10.2f} {text}")
        if self.scheduler.trace is not None:
            self.scheduler.trace.append(f"{self.scheduler.now_s:10.2f} {text}")

    def _current_faults(self) -> StoreFaults:
        return self._faults

    # --- chaos -------------------------------------------------------------------------------------------------------

    def _on_step(self, task: Task, what: str) -> None:
        self.disk.settle()
        if self.scheduler.now_s >= self._next_look_s:
            self.scheduler.orders.append(self._look)
        if self._quiet:
            return
        strike, options = self._rng.random(), self.options
        stalls = options.stalls * (10 if what.startswith(("put_if_absent", "sink")) else 1)
        if strike < stalls:
            task.process.stalls(self.scheduler.now_s, self._rng.random() * options.stall_max_s)
            self.note(f"{task.process.name} stalls until {task.process.stalled_until_s:.2f}")
            self.oracle.count("stalled")
        elif strike < stalls + options.crashes:
            self.scheduler.orders.append(lambda: self._kill(task.process))

    def _kill(self, process: Process) -> None:
        if process not in self._processes:
            return
        self.note(f"{process.name} is killed")
        self.oracle.count("killed")
        self._processes.remove(process)
        self.scheduler.kill(process)
        self._drivers.pop(process.name, None)
        self.oracle.let_go(f"reader {process.name}")
        self.cluster.executors = [one for one in self.cluster.executors if one.process is not process]
        if self._rng.random() >= self.options.keeps_disk:
            remove(process.directory)

    def _on_end(self, task: Task, error: BaseException | None) -> None:
        """A task has ended by itself."""
        if isinstance(error, Killed) or task.name != "main":
            if error is not None and not isinstance(error, Killed):
                raise error
            return
        run = self._drivers.pop(task.process.name, None)
        self.note(f"{task.process.name} ends: {type(error).__name__}: {error}")
        self.scheduler.orders.append(lambda: self._kill(task.process))
        if run is None:
            if error is not None:
                raise error
            return
        self.oracle.count(f"driver: {type(error).__name__}")
        self._check_end(run, error)

    def _check_end(self, run: DriverRun, error: BaseException | None) -> None:
        """Whether a driver may end like that."""
        if error is None or isinstance(error, (SparkError, FencedError, RetryableError)):
            return
        if not isinstance(error, VarveError):
            raise error
        owns = run.epoch >= self.oracle.owner()
        spoilt = self._faults.flips > 0 and isinstance(error, CorruptDataError)
        if owns and not spoilt and isinstance(error, (StartError, CorruptDataError)):
            self.scheduler.fail(f"run {run.epoch} owns the chain and cannot go on: {error} (I1, I11)")
        if not isinstance(error, (StartError, CorruptDataError)):
            raise error

    # --- who is there ------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """The supervisor's: start who is missing. By the hub."""
        self._next_look_s = self.scheduler.now_s + 1 + self._rng.random() * 3
        options = self.options
        drivers = [p for p in self._processes if p.name.startswith("driver")]
        awake = [p for p in drivers if p.stalled_until_s <= self.scheduler.now_s]
        # Who is taken over again and again never gets a batch done, and that is not the system's fault.
        takeovers = 0.0 if self._quiet else options.takeovers
        another = self._rng.random() < (takeovers if awake else 0.4)
        if self._restore is None and self._rng.random() < (0.0 if self._quiet else options.restores):
            self._stop_for_restore()
        elif self._restore is None and (not drivers or (len(drivers) < options.drivers and another)):
            self._start_driver()
        self._start_missing("executor", options.executors, self._start_executor)
        self._start_missing("materializer", options.materializers, self._start_materializer)
        self._start_missing("collector", options.collectors, lambda p: lambda: collect(self, p))
        self._start_missing("reader", options.readers, lambda p: lambda: read(self, p))
        self._start_missing("operator", int(self._restore is not None), self._start_restore)
        if self.oracle.newest.seq > self._checked_seq and self._rng.random() < 0.1:
            self._checked_seq = self.oracle.newest.seq
            self.oracle.check_restore(self.oracle.newest)

    def _stop_for_restore(self) -> None:
        """An operator stops the job, every run of it, and chooses what it is to go on from."""
        if self.oracle.newest != ORIGIN:
            self._restore = choose(self.oracle, self._rng)
            self.note(f"the operator stops the job: {self._restore}")
            self.oracle.stopped = True
            for process in [p for p in self._processes if p.name.startswith("driver")]:
                self._kill(process)

    def _start_restore(self, process: Process) -> Callable[[], None] | None:
        choice = self._restore
        return None if choice is None else lambda: restore(self, process, choice)

    def restored(self, seq: int | None) -> None:
        """The job may run again, from this commit if one was chosen."""
        self._restore = None
        self.oracle.stopped = False
        if seq is not None:
            self.oracle.chosen = self.oracle.entries[seq].link

    def _start_missing(self, role: str, wanted: int, make: Callable[[Process], Callable[[], None] | None]) -> None:
        there = [p.name for p in self._processes]
        for number in range(wanted):
            place = f"{role}-{number}"
            if not any(name.startswith(f"{place}.") for name in there) and self._rng.random() < 0.7:
                process = self._process(place)
                body = make(process)
                if body is not None:
                    self.scheduler.start(process, "main", body)

    def _process(self, place: str) -> Process:
        self._numbers[place] = life = self._numbers.get(place, 0) + 1
        skew_s = (self._rng.random() * 2 - 1) * self.options.skew_max_s
        process = Process(f"{place}.{life}", self.directory / place, skew_s)
        self._processes.append(process)
        self.note(f"{process.name} starts")
        return process

    def _start_driver(self) -> None:
        process = self._process("driver")
        run = self._drivers[process.name] = DriverRun(self, process, self._numbers["driver"])
        self.scheduler.start(process, "main", run)

    def _start_executor(self, process: Process) -> None:
        (process.directory / "home").mkdir(parents=True, exist_ok=True)
        store = JobStore(self.store_of(process), JOB)
        self.cluster.executors.append(Executor(process, self.scheduler, self.oracle, store))

    def _new_executor(self) -> Executor:
        """Spark gets another one, because all are gone."""
        self._start_executor(self._process(f"executor-x{len(self._numbers)}"))
        return self.cluster.executors[-1]

    def _start_materializer(self, process: Process) -> Callable[[], None]:
        return MaterializerLife(self, process)

    def log_batches(self) -> int:
        """Batches that a restore of the newest commit replays."""
        return len({ref.seq_last for ref in self.oracle.views[self.oracle.newest].segments})

    def _until(self, reached: Callable[[], bool], otherwise: str) -> None:
        """Go on without faults until that is so."""
        last = self.scheduler.steps + QUIET_STEPS
        while not reached():
            before = self.scheduler.steps
            self.scheduler.run(100)
            if self.scheduler.steps == before:  # nobody is left who would be looked after
                self._look()
                last -= 1
            if self.scheduler.steps > last:
                self.scheduler.fail(f"without faults, {otherwise}")

    # --- the end -----------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        for process in list(self._processes):
            self._kill(process)
        self._faults, self._quiet = NO_FAULTS, True
        self.disk.settle(all_of_them=True)
        self.oracle.check_retained()
        self._look()
        self._until(lambda: self._restore is None, "the job cannot be set back (I11)")
        wanted = self.location.acked + QUIET_BATCHES
        self._until(lambda: self.location.acked >= wanted, "no batch is acknowledged (I11)")
        if self.options.materializers and self.options.changelog:
            self._until(lambda: self.log_batches() <= LOG_BATCHES_MAX, "the log does not get shorter (I10)")
        for process in list(self._processes):
            self._kill(process)
        self.oracle.check_retained()


@contextmanager
def simulated_system(scheduler: Scheduler, *, real: bool = False) -> Iterator[None]:
    """Spark and threads are simulated ones, and RocksDB, unless `real`."""
    replaced: Any = {
        (coordinator, "SnapshotWatch"): WatchOfTasks,
        (coordinator, "SparkCheckpoint"): lambda _spark, _location: None,
        (coordinator, "winner_rows"): winner_rows,
        (batch_attempt, "BatchExecution"): SimulatedExecution,
        (batch_attempt, "chained_rows"): chained_rows,
    }
    with ExitStack() as stack:
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.CRITICAL)
        stack.enter_context(simulated_threads(scheduler))
        stack.enter_context(real_rocksdb() if real else simulated_rocksdb())
        for (module, name), value in replaced.items():
            stack.enter_context(mock.patch.object(module, name, value))
        yield


@contextmanager
def local_disk() -> Iterator[Path]:
    """A directory for local files, in memory if there is such a file system."""
    place = MEMORY_DISK if MEMORY_DISK.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="varve-simulation-", dir=place) as name:
        yield Path(name)


def simulate(seed: int, options: Options | None = None, *, trace: list[str] | None = None) -> Simulation:
    """Run a seed; raises what it finds, with the command that runs it again."""
    with local_disk() as directory:
        simulation = Simulation(seed, directory, options)
        simulation.scheduler.trace = trace
        try:
            simulation.run()
        except (Exception, Violation) as error:
            error.add_note(f"again: python -m tests.simulation.system {seed} --trace")
            raise
    return simulation
