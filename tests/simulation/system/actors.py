"""Processes of the simulated system: drivers, materializers, collectors and readers, each a process of its own.

Their code is the product's; here is only what starts it, and what Spark, a supervisor or a user would do around it.
"""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING, Any

import msgspec

from tests.simulation.system.function import KEY_GROUPS, KEYS, OPS, State
from tests.simulation.system.options import job_plan
from tests.simulation.system.oracle import state_of
from tests.simulation.system.scheduler import Crash, Process, ProcessClock
from tests.simulation.system.spark.cached_location import CachedLocation, MachineNote, RunningRun, SparkRun
from tests.simulation.system.spark.engine import InputRows, RuledRows, Session, SimulatedSink
from tests.simulation.system.spark.hosts import POLICY
from tests.simulation.system.spark.location import CheckpointLocation, LocationRun, progress_of
from varvite.changelog.chain.reader import ChainReader
from varvite.changelog.commit.base_decision import SinkCommit, SparkProgress
from varvite.changelog.commit.run import JobRun
from varvite.changelog.commit.start_decision import next_restore
from varvite.changelog.reading.reader import StateReader
from varvite.changelog.retention.collector import Collector
from varvite.changelog.retention.savepoints import create_native, delete_savepoint
from varvite.materializer.monitoring.metrics import MaterializerMetrics
from varvite.materializer.options.materializer_config import MaterializerConfig
from varvite.materializer.options.start import CLONE
from varvite.materializer.resources.stop_signal import StopSignal
from varvite.materializer.resources.workspace import Workspace
from varvite.materializer.restore.spark_files import query_id_of
from varvite.materializer.service.context import MaterializerContext
from varvite.materializer.service.loop import MaterializerService
from varvite.spark_integration.driver import job_start
from varvite.spark_integration.driver.coordinator import Coordinator
from varvite.spark_integration.driver.job_start import JobStart, location_in_chain
from varvite.spark_integration.driver.query_progress import QueryProgress
from varvite.storage.errors import GapError, LineageError, RewindError, VarviteError
from varvite.storage.format.records import ORIGIN
from varvite.storage.job.record import read_job
from varvite.storage.job.store import JobStore

if TYPE_CHECKING:
    from tests.simulation.system.job import SimulatedJob
    from varvite.spark_integration.plan.job import JobPlan
    from varvite.storage.format.records import Commit

ROWS_MAX = 5
INTERVAL_MS = 3_000
POLL_MS = 1_000


def batch_rows(seed: int, batch: int) -> list[tuple[str, int]]:
    """The input of a batch: (key, what to do)."""
    rng = random.Random(f"rows {seed} {batch}")
    return [(rng.choice(KEYS), rng.randrange(OPS)) for _ in range(rng.randint(0, ROWS_MAX))]


def broadcast_rows(seed: int, batch: int) -> list[int]:
    """Broadcast rows of a batch."""
    rng = random.Random(f"broadcast {seed} {batch}")
    return [rng.randrange(OPS) for _ in range(rng.choice([0, 0, 1, 3]))]


class ProgressInLogs(QueryProgress):
    """Of a query whose commits have no position: nothing is made from the chain, and nothing is read for it."""

    def settle(self, *_: object) -> None:
        """The location says it."""

    def close(self) -> None:
        """Nothing was noted."""


class DriverRun:
    """One run of the driver, until it fails or is killed."""

    def __init__(self, system: SimulatedJob, process: Process, number: int) -> None:
        self._system = system
        self._scheduler = system.scheduler
        self._process = process
        self._rng = random.Random(f"driver {system.seed} {number}")
        self._disorder = random.Random(f"disorder {system.seed} {number}")
        self._name = f"run {number}"
        self._run: JobRun | None = None
        self._running = RunningRun()
        self._files: dict[str, bytes] = {}
        """Spark's location, as a cache."""
        self.source = system.source
        """Source to start from, if it has not begun."""
        self.found = system.oracle.newest
        """The newest commit when it was started."""

    @property
    def epoch(self) -> int:
        """0 before it has taken over."""
        return self._run.fence.epoch if self._run is not None else 0

    def __call__(self) -> None:
        system = self._system
        self._process.directory.mkdir(parents=True, exist_ok=True)
        if isinstance(system.location, CachedLocation):
            is_chosen = next_restore(system.oracle.head) is not None
            system.oracle.count(f"location {system.location.before_a_run(is_chosen=is_chosen)}")
            self._files = system.location.files
        session: Any = Session(self._process.directory)
        made = self._coordinator(session)
        run = made._run
        try:
            made.take_over()
            self._run = run
            system.oracle.took_over(run.fence)
            forges = system.options.forges and system.location.acked and run.fence.restore is None
            if forges and isinstance(system.location, CheckpointLocation) and self._rng.random() < 0.3:
                self._start_wrong(made, session, system.location)
            else:
                self._query(made, session, system.location)
        finally:
            made.stop()

    def _coordinator(self, session: Any) -> Coordinator:
        """The result of `Coordinator.create`, over the simulated storage and Spark."""
        system, options = self._system, self._system.options
        clock, tokens = ProcessClock(self._scheduler, self._process), system.tokens
        store, plan = JobStore(system.store_of(self._process), system.name), self._plan()
        checkpoint = job_start.SparkCheckpoint(session, plan.checkpoint_location)
        plan = dataclasses.replace(plan, begun_query_id=self._begun_query_id(plan))
        origin = job_start.find_origin(checkpoint, plan, store)
        new = job_start.new_job(plan, origin, store)
        run = JobRun.open(store, system.name, KEY_GROUPS, options.policy, clock, tokens, new=new)
        sink = SimulatedSink(self._scheduler, system.oracle, lambda: run.fence.epoch, tells=options.sink_tells)
        start = JobStart(plan, run, self._progress(checkpoint), origin, clock, tokens)
        made = Coordinator(session, plan, sink, start, clock, tokens)
        made._committer.operators = tuple(
            msgspec.structs.replace(
                request,
                inline_bytes_max=options.inline_bytes_max,
                preemptive_persist_threshold_bytes=options.part_bytes,
            )
            for request in made._committer.operators
        )
        return made

    def _plan(self) -> JobPlan:
        system, options = self._system, self._system.options
        parallelism = self._rng.randint(1, 3) if options.rescales else options.parallelism
        plan = job_plan(
            parallelism, options.backend, changelog=options.changelog, chained=options.chained, ruled=options.ruled
        )
        config = dataclasses.replace(plan.config, **system.stored.settings())
        if options.local_copies:
            own = {"local_directories": POLICY.directories, "local_flush_interval_ms": POLICY.flush_interval_ms}
            config = dataclasses.replace(config, recover_from_local=True, **own)
        if self.source is not None:
            config = dataclasses.replace(config, restore=self.source, claim_mode=CLONE)
        return dataclasses.replace(plan, job=system.name, checkpoint_location=system.name, config=config)

    def _progress(self, checkpoint: Any) -> QueryProgress:
        system = self._system
        if isinstance(system.location, CachedLocation):
            note: Any = MachineNote(system.location, self._scheduler.pause)
            query: Any = self._running
            return QueryProgress(checkpoint, query, note, is_private=system.location.is_private)
        return ProgressInLogs(checkpoint, self._running, None)  # type: ignore[arg-type]

    def _begun_query_id(self, plan: JobPlan) -> str | None:
        """The id that the program's start finds in the chain, if its location is empty."""
        system, location = self._system, self._system.location
        if not isinstance(location, CachedLocation) or "metadata" in location.files:
            return None
        root = system.store_of(self._process)
        files = location_in_chain(plan.config, system.name, is_private=location.is_private, root=root)
        return query_id_of(files["metadata"], "metadata") if files else None

    def _query(self, run: Coordinator, session: Session, location: CheckpointLocation | CachedLocation) -> None:
        """Batch after batch, as Spark does it."""
        self._scheduler.pause("query starts")
        if isinstance(location, CachedLocation):
            spark: SparkRun | LocationRun = location.run(self._files, self._name, self._process)
            self._running.spark = spark
        else:
            spark = location.run(self._name)
        batch, is_planned = spark.next_batch, spark.is_planned
        while True:
            if not is_planned:
                spark.plan(batch)
            is_planned = False
            self._scheduler.pause(f"batch {batch}")
            rows = self._rows(session, batch)
            self._system.oracle.check_acknowledged()
            run.process_batch(rows, batch)
            self._scheduler.pause(f"commits {batch}")
            spark.acknowledge(batch)
            self._system.oracle.check_acknowledged()
            self._system.oracle.count("acknowledged")
            batch += 1
            if self._rng.random() < 0.2:
                self._scheduler.sleep(self._rng.random() * 20)
            elif self._rng.random() < 0.1:
                self._scheduler.pause(f"plans {batch}")

    def _rows(self, session: Session, batch: int) -> Any:
        """The input of a batch."""
        system, options = self._system, self._system.options
        rows = batch_rows(system.seed, batch)
        if not options.ruled:
            return InputRows(session, system.cluster, rows)
        broadcast = broadcast_rows(system.seed, batch)
        return RuledRows(session, system.cluster, rows, broadcast, self._disorder, options.disorder)

    def _start_wrong(self, run: Coordinator, session: Session, location: CheckpointLocation) -> None:
        """With a checkpoint location that is not the state's: must be an error that says so (I11)."""
        assert self._run is not None
        newest = self._run.fence.commit
        if newest == ORIGIN:
            return
        forged, expected = self._forged(self._system.oracle.commit(newest), location)
        checkpoint: Any = run._progress.checkpoint
        checkpoint.forged = forged
        rows: Any = InputRows(session, self._system.cluster, [])
        try:
            run.process_batch(rows, forged.batch)
        except expected:
            self._system.oracle.count("refused start")
        else:
            self._scheduler.fail(f"{forged} was executed on the state of batch {forged.batch} (I11)")

    def _forged(self, commit: Commit, location: CheckpointLocation) -> tuple[SparkProgress, type[VarviteError]]:
        newest = commit.batch
        kind = self._rng.choice(["lost", "rewound", "ahead", "offsets"])
        if kind == "lost":
            return SparkProgress(0, "another query", "new", None), LineageError
        if kind == "rewound" and newest > 0:
            batch = self._rng.randrange(newest)
            return SparkProgress(batch, location.query_id, location.source_hash(batch), "any"), RewindError
        if kind == "ahead":
            return SparkProgress(newest + 2, location.query_id, "next", "unknown"), GapError
        if newest >= len(location.offsets):
            return SparkProgress(newest + 1, location.query_id, "next", "others"), LineageError
        files = location.planned_with_other_files(newest)
        held = self._system.options.sink_tells and self._system.oracle.last_output == SinkCommit(
            newest, commit.seq, commit.token
        )
        if held and commit.source is None:
            return progress_of(files, location.query_id, newest), LineageError
        files[f"offsets/{newest + 1}"] = files[f"offsets/{newest}"]
        return progress_of(files, location.query_id, newest + 1), LineageError


class MaterializerLife(Crash):
    """A materializer from its start until it is killed."""

    metrics: MaterializerMetrics | None = None
    """Of all of this process: their registries are slow to make."""

    def __init__(self, system: SimulatedJob, process: Process) -> None:
        self._system = system
        self._process = process
        MaterializerLife.metrics = MaterializerLife.metrics or MaterializerMetrics()
        self._workspace: Workspace | None = None

    def crash(self) -> None:
        """The system frees the lock."""
        if self._workspace is not None:
            self._workspace.close()
            self._workspace = None

    def report(self, event: object) -> None:
        self._system.oracle.count(type(event).__name__)
        self._system.note(f"{self._process.name}: {event}")

    def __call__(self) -> None:
        system = self._system
        clock = ProcessClock(system.scheduler, self._process)
        self._workspace = workspace = Workspace(self._process.directory / "work")
        self._process.resources.append(self)
        config = MaterializerConfig(
            storage_url="memory://simulated",
            job=system.name,
            interval_ms=INTERVAL_MS,
            log_ratio=None,
            collect_ms=4_000,
            grace_ms=round(system.options.grace_s * 1_000),
            share=system.options.materializers > 1,
        )
        assert MaterializerLife.metrics is not None
        context = MaterializerContext(
            config=config,
            clock=clock,
            tokens=system.tokens,
            workspace=workspace,
            metrics=MaterializerLife.metrics,
            reporter=self,
            stop=StopSignal(),
        )
        service = MaterializerService(system.store_of(self._process), context)
        while True:
            service.step(wait_for_ranges=False)
            clock.sleep(POLL_MS / 1_000)


def collect(system: SimulatedJob, process: Process) -> None:
    """`varvite sweep` again and again."""
    clock = ProcessClock(system.scheduler, process)
    store = JobStore(system.store_of(process), system.name)
    while True:
        clock.sleep(3.0)
        try:
            reader = ChainReader(store, read_job(store).job_id)
            collector = Collector(reader, clock, system.tokens, system.options.grace_s)
            for _ in range(3):
                collector.collect()
                clock.sleep(5.0)
        except VarviteError as error:
            system.note(f"{process.name}: {error}")


def read(system: SimulatedJob, process: Process) -> None:
    """Read the state under a pin, or make a savepoint and delete it later."""
    rng = random.Random(f"reader {system.seed} {process.name}")
    clock = ProcessClock(system.scheduler, process)
    store = JobStore(system.store_of(process), system.name)
    process.directory.mkdir(parents=True, exist_ok=True)
    while True:
        clock.sleep(rng.random() * 15)
        try:
            if rng.random() < 0.6:
                _read_state(system, store, process, clock, rng.random() * 10)
            else:
                _save(system, store, clock, rng)
        except VarviteError as error:
            system.note(f"{process.name}: {error}")


def _read_state(system: SimulatedJob, store: JobStore, process: Process, clock: ProcessClock, waits_s: float) -> None:
    reader = StateReader(store, clock=clock, tokens=system.tokens, directory=process.directory)
    if reader.checkpoint.link not in system.oracle.models:
        system.scheduler.fail(f"a reader found {reader.checkpoint.link}, which is no commit")
    with reader:
        who = f"reader {process.name}"
        system.oracle.need(who, reader.checkpoint.link)
        try:
            clock.sleep(waits_s)
            found: dict[str, State] = {}
            for operator in reader.operators:
                found[operator] = {}
                for part in reader.ranges(operator):
                    found[operator].update(state_of(part.store))
        finally:
            system.oracle.let_go(who)
    if found != system.oracle.models[reader.checkpoint.link]:
        system.scheduler.fail(f"a reader of commit {reader.checkpoint.seq} has another state (I5)")
    system.oracle.count("read")


def _save(system: SimulatedJob, store: JobStore, clock: ProcessClock, rng: random.Random) -> None:
    reader = ChainReader(store, read_job(store).job_id)
    commit = reader.newest()
    if commit is None:
        return
    name = f"s{system.tokens.token()}"
    create_native(reader, commit, name, job=system.name, holder="simulation", clock=clock, tokens=system.tokens)
    clock.sleep(rng.random() * 60)
    if rng.random() < 0.7:
        delete_savepoint(store, name)
