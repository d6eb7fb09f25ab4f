"""One job of the simulated system: its processes, its checkpoint location and its oracle, and who looks after it."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.system.actors import DriverRun, MaterializerLife, collect, read
from tests.simulation.system.operating import Choice, choose, restore
from tests.simulation.system.oracle import Oracle
from tests.simulation.system.scheduler import Process
from tests.simulation.system.spark.cached_location import CachedLocation
from tests.simulation.system.spark.cluster import Cluster, Executor
from tests.simulation.system.spark.engine import SparkError
from tests.simulation.system.spark.hosts import stand_by
from tests.simulation.system.spark.location import CheckpointLocation
from tests.simulation.system.storage import Stored
from varvite.storage.errors import (
    CorruptDataError,
    FencedError,
    InvalidRequestError,
    RetryableError,
    StartError,
    StateMissingError,
    VarviteError,
)
from varvite.storage.format import layout
from varvite.storage.format.records import ORIGIN
from varvite.storage.job.store import JobStore

if TYPE_CHECKING:
    from tests.simulation.system.simulation import Simulation

JOB = "job"
CLONE = "clone"


class SimulatedJob:
    """As the module's text says.

    Args:
        system: What all jobs share.
        name: Of the job.
        source: What a clone starts from.
    """

    def __init__(self, system: Simulation, name: str, source: str | None = None) -> None:
        self.system = system
        self.name = name
        self.source = source
        self.scheduler, self.options, self.tokens = system.scheduler, system.options, system.tokens
        self.seed, self.note, self.store_of = system.seed, system.note, system.store_of
        self.location: CheckpointLocation | CachedLocation = (
            CachedLocation(
                name,
                system.scheduler,
                random.Random(f"location {name} {system.seed}"),
                is_private=system.options.private_location,
            )
            if system.options.in_chain
            else CheckpointLocation(name)
        )
        others = {job.name: job.oracle for job in system.jobs} if source else {}
        self.oracle = Oracle(
            system.scheduler, system.disk, self.location, system.directory, name, system.counts, others.get(JOB)
        )
        self.abandoned = False
        """A clone that could never start."""
        self.processes: list[Process] = []
        self._prefix = "" if name == JOB else f"{name}-"
        self._drivers: dict[str, DriverRun] = {}
        self._numbers: dict[str, int] = {}
        self._restore: Choice | None = None
        """Choice of an operator for the stopped job."""
        chance = random.Random(f"cluster {self._prefix}{system.seed}")
        self.stored = Stored(self.options.encrypted, self.options.log_elsewhere)
        if source and chance.random() < 0.5:
            self.stored = Stored(chance.random() < 0.5, chance.random() < 0.5)
        for what, is_so in self.stored._asdict().items():
            if is_so:
                system.count(what.replace("_", " "))
        self.cluster = Cluster(system.scheduler, chance, system.tokens, system.options, self._new_executor)

    @property
    def is_stopped(self) -> bool:
        """True if an operator has stopped it."""
        return self._restore is not None

    @property
    def _may_run(self) -> bool:
        return not self.is_stopped and not self.abandoned

    def log_batches(self) -> int:
        """Batches that a restore of the newest commit replays."""
        return len({ref.seq_last for ref in self.oracle.views[self.oracle.newest].segments})

    # --- who has gone ------------------------------------------------------------------------------------------------

    def killed(self, process: Process) -> None:
        """A process of the job is gone."""
        self._drivers.pop(process.name, None)
        self.oracle.let_go(f"reader {process.name}")
        self.cluster.executors = [one for one in self.cluster.executors if one.process is not process]

    def ended(self, process: Process, error: BaseException | None) -> None:
        """A process of the job has ended by itself."""
        run = self._drivers.pop(process.name, None)
        if run is not None:
            self.oracle.count(f"driver: {type(error).__name__}")
            self._check_end(run, error)
        elif error is not None:
            raise error

    def _check_end(self, run: DriverRun, error: BaseException | None) -> None:
        """Fails unless a driver may end like that."""
        if error is None or isinstance(error, (SparkError, FencedError, RetryableError)):
            return
        if not isinstance(error, VarviteError):
            raise error
        if self.source and isinstance(error, (StateMissingError, InvalidRequestError)):
            if not self._lacks_source(run):
                self.scheduler.fail(f"a run that does not need its source cannot start: {error} (I11)")
            return
        owns = run.epoch >= self.oracle.owner()
        flips = self.system.faults.flips + self.system.log_faults.flips
        spoilt = flips > 0 and isinstance(error, CorruptDataError)
        if owns and not spoilt and isinstance(error, (StartError, CorruptDataError)):
            self.scheduler.fail(f"run {run.epoch} owns the chain and cannot go on: {error} (I1, I11)")
        if not isinstance(error, (StartError, CorruptDataError)):
            raise error

    def _lacks_source(self, run: DriverRun) -> bool:
        """True if a clone's run may have found that what it was to start from has gone.

        Not if the job has a state of its own, or `varvite restore` has chosen one.
        """
        had_begun = run.found != ORIGIN and self.oracle.commit(run.found).source is None
        if self.oracle.newest == ORIGIN:
            self.abandoned = True
            self.oracle.count("clone abandoned")
        elif had_begun or run.source == layout.LATEST:
            return False
        else:
            self.source = layout.LATEST  # another run had taken it
            self.oracle.count("clone of latest")
        return True

    # --- who is there ------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Start who is missing. By the hub."""
        system, options, rng = self.system, self.options, self.system.rng
        drivers = self._driver_processes()
        awake = [p for p in drivers if p.stalled_until_s <= self.scheduler.now_s]
        # Who is taken over again and again never gets a batch done, and that is not the system's fault.
        takeovers = 0.0 if system.quiet else options.takeovers
        another = rng.random() < (takeovers if awake else 0.4)
        if not self.is_stopped and rng.random() < (0.0 if system.quiet else options.restores):
            self._stop_for_restore()
        elif (
            not self.is_stopped and not self.abandoned and (not drivers or (len(drivers) < options.drivers and another))
        ):
            self._start_driver()
        self._start_missing("executor", options.executors, self._start_executor)
        self._start_missing("materializer", options.materializers, lambda p: MaterializerLife(self, p))
        self._start_missing("collector", options.collectors, lambda p: partial(collect, self, p))
        self._start_missing("reader", options.readers, lambda p: partial(read, self, p))
        if options.local_copies:
            self._start_missing("standby", min(options.standbys, options.hosts), lambda p: partial(stand_by, self, p))
        self._start_missing("operator", int(self._restore is not None), self._start_restore)
        if rng.random() < 0.1:
            self.check_newest()

    def check_newest(self) -> None:
        """Restore the newest commit as a whole, unless no commit has come since that was done. By the hub."""
        if self.oracle.unchecked and self.oracle.newest != ORIGIN:
            self.oracle.check_restore(self.oracle.newest)

    def _driver_processes(self) -> list[Process]:
        return [process for process in self.processes if process.name.startswith(f"{self._prefix}driver")]

    def start_another_driver(self) -> None:
        """Somebody starts a run beside those that there are. By the hub."""
        if self._may_run:
            self._start_driver()

    def set_back(self, checkpoints: int, *, anew: bool) -> None:
        """An operator sets the job back by so many checkpoints; to the newest savepoint, if negative. By the hub."""
        line, savepoints = self.oracle.line(), self.oracle.savepoints()
        if not self.is_stopped and line and (checkpoints >= 0 or savepoints):
            savepoint = savepoints[-1] if checkpoints < 0 else None
            seq = None if savepoint is not None else line[min(checkpoints, len(line) - 1)].seq
            self._stop_for_restore(Choice(seq, savepoint, anew))

    def _stop_for_restore(self, choice: Choice | None = None) -> None:
        """An operator stops the job, every run of it, and chooses what it is to go on from."""
        if self.oracle.newest != ORIGIN:
            self._restore = choice or choose(self.oracle, self.system.rng)
            self.note(f"the operator stops {self.name}: {self._restore}")
            self.oracle.stopped, self.oracle.chosen = True, None
            for process in self._driver_processes():
                self.system.kill(process)

    def _start_restore(self, process: Process) -> Callable[[], None] | None:
        choice = self._restore
        return None if choice is None else partial(restore, self, process, choice)

    def restored(self, seq: int | None, instead: Choice | None = None) -> None:
        """The job may run again, from this commit if one was chosen; or the operator wants something else."""
        self._restore = instead
        self.oracle.stopped = instead is not None
        if seq is not None:
            self.oracle.chosen = self.oracle.entries[seq].link
            if isinstance(self.location, CachedLocation):
                commit = self.oracle.commit(self.oracle.chosen)
                self.location.set_back(commit.batch + 1 if commit.query_id == self.location.query_id else 0)

    def _start_missing(self, role: str, wanted: int, make: Callable[[Process], Callable[[], None] | None]) -> None:
        there = [process.name for process in self.processes]
        for number in range(wanted):
            place = f"{self._prefix}{role}-{number}"
            if not any(name.startswith(f"{place}.") for name in there) and self.system.rng.random() < 0.7:
                process = self._process(place)
                body = make(process)
                if body is not None:
                    self.scheduler.start(process, "main", body)

    def _process(self, place: str) -> Process:
        self._numbers[place] = life = self._numbers.get(place, 0) + 1
        skew_s = (self.system.rng.random() * 2 - 1) * self.options.skew_max_s
        directory = self.system.directory
        process = Process(f"{place}.{life}", directory / place, directory / f"host-{self._host(place)}", skew_s)
        self.processes.append(process)
        self.note(f"{process.name} starts")
        return process

    def _host(self, place: str) -> str:
        if self.options.real_rocksdb:  # its threads must not lose their files while another process is killed
            return place
        return str(int(place[-1]) % self.options.hosts) if place[-1].isdecimal() else "0"

    def _start_driver(self) -> None:
        process = self._process(f"{self._prefix}driver")
        run = self._drivers[process.name] = DriverRun(self, process, self._numbers[f"{self._prefix}driver"])
        self.scheduler.start(process, "main", run)

    def _start_executor(self, process: Process) -> None:
        (process.directory / "home").mkdir(parents=True, exist_ok=True)
        store = JobStore(self.store_of(process), self.name)
        self.cluster.executors.append(Executor(process, self.scheduler, self.oracle, store))

    def _new_executor(self) -> Executor:
        """Spark gets another one, because all are gone."""
        self._start_executor(self._process(f"{self._prefix}executor-x{len(self._numbers)}"))
        return self.cluster.executors[-1]
