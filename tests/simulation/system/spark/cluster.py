"""Executors with state workers, and Spark's way of running a stage on them.

The working state is the product's `OperatorState`, the admission of requests that of its workers (`judge` and
`supersedes`). An executor may be killed, with its directory kept or lost, and may stall: its tasks then run elsewhere,
and it wakes up with requests that nobody waits for.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.simulation.system.function import AttemptModel
from tests.simulation.system.scheduler import Killed, Process, ProcessClock, Scheduler, Violation
from tests.simulation.system.spark.engine import TASK_FAILURES_MAX, LostBlockError, Rows, SparkError, Stage
from varvite.spark_integration.messages.protocol import (
    SUMMARY_COLUMN,
    TAG_COLUMN,
    BatchRequest,
    TaskRequest,
)
from varvite.spark_integration.messages.summary import Summary, decode_summary
from varvite.spark_integration.transport.home import WorkerHome
from varvite.spark_integration.worker.process.admission import Seen, judge, supersedes
from varvite.spark_integration.worker.state.stores import WorkingStores
from varvite.spark_integration.worker.state_worker import OperatorState
from varvite.storage.clock import TokenSource
from varvite.storage.errors import VarviteError
from varvite.storage.object_stores.contract import ObjectStore

if TYPE_CHECKING:
    from tests.simulation.system.options import Options
    from tests.simulation.system.oracle import Oracle

LOST_AFTER_S = 10.0
"""An executor that stalls for longer is given up by Spark."""


class PumpLostError(Exception):
    """The request's pump has gone, or a newer request has taken its place."""


@dataclass
class Outcome:
    """Result of a task attempt."""

    partition: int
    executor: Executor
    done: bool = False
    summary: Summary | None = None
    rows: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    tag: int = 0
    error: str = ""
    lost_block: bool = False


@dataclass(eq=False)
class Request:
    """A request inside of a worker, or waiting."""

    task: TaskRequest
    driver: Process
    superseded: bool = False

    def check(self) -> None:
        """Raises if nobody waits for the answer any more."""
        if self.superseded or not self.driver.is_alive:
            raise PumpLostError


@dataclass
class Worker:
    """The state worker of one partition of an operator on one executor."""

    state: OperatorState | None = None
    seen: Seen = field(default_factory=Seen)
    inside: Request | None = None
    waiting: list[Request] = field(default_factory=list[Request])


class Executor:
    """One executor and its state workers."""

    def __init__(self, process: Process, scheduler: Scheduler, oracle: Oracle, store: ObjectStore) -> None:
        self.process = process
        self._scheduler = scheduler
        self._oracle = oracle
        self._store = store
        self._clock = ProcessClock(scheduler, process)
        self._home = WorkerHome(process.directory / "home")
        self._stores = WorkingStores()
        self._workers: dict[tuple[str, int], Worker] = {}

    def is_lost(self, now_s: float) -> bool:
        """True if Spark has given it up."""
        return not self.process.is_alive or self.process.stalled_until_s - now_s > LOST_AFTER_S

    def launch(self, task: TaskRequest, driver: Process, function: bytes, rows: Rows) -> Outcome:
        """Begin a task attempt."""
        outcome = Outcome(task.partition, self)

        def body() -> None:
            try:
                self._serve(Request(task, driver), function, rows, outcome)
            except (Killed, Violation):
                raise
            except LostBlockError:
                outcome.lost_block = True
            except (VarviteError, PumpLostError) as error:
                outcome.error = f"{type(error).__name__}: {error}"
            finally:
                outcome.done = True

        self._scheduler.start(self.process, f"p{task.partition}", body)
        return outcome

    def _serve(self, request: Request, function: bytes, rows: Rows, outcome: Outcome) -> None:
        worker = self._workers.setdefault((request.task.batch.operator.operator, request.task.partition), Worker())
        self._scheduler.pause("request")
        self._admit(worker, request, outcome)
        try:
            self._scheduler.wait_for(
                lambda: request.superseded or (worker.inside is None and worker.waiting[:1] == [request])
            )
            request.check()
            worker.inside = request
        finally:
            worker.waiting = [other for other in worker.waiting if other is not request]
        try:
            self._execute(worker, request, function, rows, outcome)
        finally:
            worker.inside = None

    def _admit(self, worker: Worker, request: Request, outcome: Outcome) -> None:
        verdict = judge(worker.seen, request.task)
        worker.seen = verdict.seen
        if verdict.refused is not None:
            raise PumpLostError(verdict.refused)
        for older in [*worker.waiting, *([worker.inside] if worker.inside else [])]:
            older.superseded |= supersedes(request.task, older.task)
        worker.waiting = [*(w for w in worker.waiting if not w.superseded), request]
        outcome.error = ""

    def _execute(self, worker: Worker, request: Request, function: bytes, rows: Rows, outcome: Outcome) -> None:
        task = request.task
        state = self._state(worker, task)
        own = self._scheduler.current
        assert own is not None
        model = self._oracle.attempt(task)
        own.context = model
        attempt = state.begin(task, lambda: function)
        self._oracle.began(task, state)
        answers: list[Any] = []
        operator = task.batch.operator
        try:
            for batch in rows.of(task.partition, operator.parallelism, operator.max_parallelism):
                self._scheduler.pause("rows")
                request.check()
                answers += attempt.process(batch)
            answers += attempt.finish()
            self._scheduler.pause("summary")
            request.check()
        except (Killed, Violation):
            raise
        except BaseException:
            attempt.abort()
            raise
        self._answered(model, answers, outcome)
        state.prepare()

    def _answered(self, model: AttemptModel, answers: list[Any], outcome: Outcome) -> None:
        for answer in answers:
            for row in answer.to_pylist():
                outcome.tag = row[TAG_COLUMN]
                if row[SUMMARY_COLUMN] is None:
                    outcome.rows.append((row["k"], row["n"]))
                else:
                    outcome.summary = decode_summary(row[SUMMARY_COLUMN])
        assert outcome.summary is not None
        if outcome.summary.error is None:
            self._oracle.finished(model, outcome.rows)
            self._oracle.count(f"began {outcome.summary.worker_note().restored.replace('-', ' ')}")

    def _state(self, worker: Worker, task: TaskRequest) -> OperatorState:
        request = task.batch.operator
        if worker.state is None or not worker.state.serves(request):
            if worker.state is not None:
                worker.state.close()
            worker.state = OperatorState(request, task.partition, self._home, self._store, self._stores, self._clock)
        return worker.state


class Cluster:
    """The executors of one application; driver runs share them, as the queries of one application do."""

    def __init__(
        self,
        scheduler: Scheduler,
        rng: random.Random,
        tokens: TokenSource,
        options: Options,
        start: Callable[[], Executor],
    ) -> None:
        self._scheduler = scheduler
        self._rng = rng
        self._tokens = tokens
        self._start = start
        self.executors: list[Executor] = []
        self._options = options
        self._attempts = 0

    def execute(self, request: BatchRequest, function: Any, rows: Rows, executed: Any) -> Stage:
        """Run a stage to its end. Raises `SparkError` if a task fails too often."""
        stage = Stage(self)
        failures: dict[int, int] = {}
        stage.answer.lose = lambda: self._lose_block(request, function, rows, executed, stage)
        running: list[Outcome] = []
        for partition in range(request.operator.parallelism):
            if self._rng.random() < self._options.rerun / 4:
                rows.lose()
            running.append(self._launch(request, partition, function, rows, 0))
        driver = self._driver()
        while running:
            self._scheduler.wait_for(lambda: any(self._is_over(one) for one in running), 5.0)
            for outcome in [one for one in running if self._is_over(one)]:
                running.remove(outcome)
                partition = outcome.partition
                if outcome.lost_block:
                    raise LostBlockError
                if outcome.done and not outcome.error and outcome.summary is not None:
                    executed.add([_note(outcome.summary)])
                    stage.summaries.append(outcome.summary)
                    stage.answer.blocks[partition] = (outcome.tag, outcome.rows)
                    continue
                failures[partition] = failures.get(partition, 0) + 1
                if failures[partition] == TASK_FAILURES_MAX:
                    raise SparkError(f"task of partition {partition} failed: {outcome.error or 'executor lost'}")
                running.append(self._launch(request, partition, function, rows, failures[partition]))
        assert driver.is_alive
        if self._rng.random() < self._options.rerun:
            stage.answer.lose()
        return stage

    def _lose_block(self, request: BatchRequest, function: Any, rows: Rows, executed: Any, stage: Stage) -> None:
        """A cached block is lost: Spark executes its partition again and tells nobody."""
        partition = self._rng.randrange(request.operator.parallelism)
        outcome = self._launch(request, partition, function, rows, TASK_FAILURES_MAX)
        self._scheduler.wait_for(lambda: self._is_over(outcome), LOST_AFTER_S)
        if outcome.summary is not None:
            stage.answer.blocks[partition] = (outcome.tag, outcome.rows)
            if self._rng.random() < 0.7:  # else it happens when the sink reads, or in a task that fails later
                executed.add([_note(outcome.summary)])

    def _is_over(self, outcome: Outcome) -> bool:
        return outcome.done or outcome.executor.is_lost(self._scheduler.now_s)

    def _driver(self) -> Process:
        task = self._scheduler.current
        assert task is not None
        return task.process

    def _launch(self, request: BatchRequest, partition: int, function: Any, rows: Rows, number: int) -> Outcome:
        self._attempts += 1
        tag = self._tokens.token()
        task = TaskRequest(batch=request, partition=partition, tag=tag, task_attempt=self._attempts)
        return self._executor(partition + number).launch(task, self._driver(), function.package().function, rows)

    def _executor(self, wanted: int) -> Executor:
        alive = [one for one in self.executors if not one.is_lost(self._scheduler.now_s)]
        while not alive:
            self.executors.append(self._start())
            alive = self.executors[-1:]
        if self._rng.random() < self._options.moves:
            return self._rng.choice(alive)
        return alive[wanted % len(alive)]


def _note(summary: Summary) -> tuple[str, int, str]:
    return summary.operator, summary.partition, summary.tag
