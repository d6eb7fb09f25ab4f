"""Spark, simulated as far as varvite's driver sees it: executions on executors, and a sink.

The coordinator and `BatchExecutor` are the product's; in the place of Spark's actions on an operator there is
`SimulatedExecution`, which runs tasks on simulated executors: tasks are tried again when they fail, given up when their
executor does not answer, and run twice when a cached block is lost.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from tests.simulation.system.function import key_group
from varvite.changelog.commit.base_decision import SinkCommit, SparkProgress
from varvite.spark_integration.connectors.sink import Sink
from varvite.spark_integration.driver.operator_executor import (
    BatchRedoError,
    OperatorResult,
    check_broadcast,
    check_summaries,
)
from varvite.spark_integration.elements.side_by_side import INPUT_COLUMN, rows_column
from varvite.spark_integration.messages.protocol import KEY_COLUMN, KEY_GROUP_COLUMN, LOST_BLOCK, row_tags
from varvite.spark_integration.messages.summary import Summary
from varvite.spark_integration.messages.user_errors import UserErrorRaised
from varvite.spark_integration.plan.broadcast_input import BROADCAST, OWN

if TYPE_CHECKING:
    from pathlib import Path

    from tests.simulation.system.oracle import Oracle
    from tests.simulation.system.scheduler import Scheduler
    from tests.simulation.system.spark.cluster import Cluster
    from tests.simulation.system.spark.location import CheckpointLocation
    from varvite.spark_integration.driver.operator_executor import OperatorTask

TASK_FAILURES_MAX = 4


class SparkError(Exception):
    """Spark ends the query."""


class LostBlockError(Exception):
    """A task reads a cached block of an attempt that is not the winner."""


class RunCheckpoint:
    """The checkpoint location as the coordinator reads it; `progress` may be set to what it is not (I11)."""

    def __init__(self, location: CheckpointLocation) -> None:
        self.location = location
        self.forged: SparkProgress | None = None

    def known_query_id(self) -> str | None:
        return self.location.query_id

    def source_files(self, batch: int) -> None:
        """The source keeps a list of files."""

    def source_hash(self, batch: int) -> str:
        return self.forged.source_hash if self.forged else self.location.source_hash(batch)

    def progress(self, batch: int) -> SparkProgress:
        return self.forged or self.location.progress(batch)


class _Accumulator:
    aid = None
    """PySpark does not know it."""

    def __init__(self, value: Any, parameter: Any) -> None:
        self.value = value
        self._parameter = parameter

    def add(self, more: Any) -> None:
        self.value = self._parameter.addInPlace(self.value, more)


class _Broadcast:
    def __init__(self, value: Any) -> None:
        self.value = value

    def destroy(self) -> None:
        """Nothing is held."""


class SparkContext:
    """The part of Spark's context that the driver uses."""

    master = "local[2]"

    def __init__(self, directory: Path) -> None:
        self._temp_dir = str(directory)

    def accumulator(self, value: Any, parameter: Any) -> Any:
        return _Accumulator(value, parameter)

    def broadcast(self, value: Any) -> Any:
        return _Broadcast(value)


class SparkConf:
    """Settings of a session."""

    def __init__(self) -> None:
        self.getAll = {
            "spark.sql.execution.arrow.maxBytesPerBatch": "67108864",
            "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        }

    def get(self, key: str, *default: str | None) -> str | None:
        return self.getAll.get(key, *default) if default else self.getAll[key]

    def set(self, key: str, value: str) -> None:
        self.getAll[key] = value


class Session:
    """A session, of a driver that has a directory for what goes with its process."""

    def __init__(self, directory: Path) -> None:
        self.sparkContext = SparkContext(directory)
        self.conf = SparkConf()


class Rows(Protocol):
    """Input of an operator."""

    cluster: Cluster
    lose: Callable[[], None]
    """Lose a part of them, which Spark then makes anew."""

    def of(self, partition: int, parallelism: int, max_parallelism: int) -> list[pa.RecordBatch]:
        """A partition's rows, in Arrow batches of two."""
        ...


class InputRows:
    """The rows of a batch: (key, number)."""

    def __init__(self, session: Session, cluster: Cluster, rows: Sequence[tuple[str, int]]) -> None:
        self.sparkSession = session
        self.cluster = cluster
        self.rows = rows
        self.lose: Callable[[], None] = lambda: None

    def of(self, partition: int, parallelism: int, max_parallelism: int) -> list[pa.RecordBatch]:
        return _arrow_batches(_own_rows(self.rows, partition, parallelism, max_parallelism))


class RuledRows(InputRows):
    """The same beside the rows of a broadcast stream, which every partition reads, now and then in another order.

    Args:
        broadcast: What each broadcast row says.
        rng: For the order.
        disorder: How likely a partition reads them otherwise, because Spark has made a part of the input anew.
    """

    def __init__(
        self,
        session: Session,
        cluster: Cluster,
        rows: Sequence[tuple[str, int]],
        broadcast: Sequence[int],
        rng: random.Random,
        disorder: float,
    ) -> None:
        super().__init__(session, cluster, rows)
        self._broadcast = broadcast
        self._rng = rng
        self._disorder = disorder

    def of(self, partition: int, parallelism: int, max_parallelism: int) -> list[pa.RecordBatch]:
        own = _own_rows(self.rows, partition, parallelism, max_parallelism)
        read = list(self._broadcast)
        if self._rng.random() < self._disorder:
            read = self._rng.choice([read[::-1], read[:-1]])
        both = [*((BROADCAST, ("", number)) for number in read), *((OWN, row) for row in own)]
        return [_side_by_side(both[i : i + 2]) for i in range(0, len(both), 2)]


def _own_rows(
    rows: Sequence[tuple[str, int]], partition: int, parallelism: int, max_parallelism: int
) -> list[tuple[str, int]]:
    return [row for row in rows if key_group(row[0]) * parallelism // max_parallelism == partition]


def _side_by_side(rows: Sequence[tuple[int, tuple[str, int]]]) -> pa.RecordBatch:
    own = [{"k": key, "n": number} if stream == OWN else None for stream, (key, number) in rows]
    broadcast = [{"n": number} if stream == BROADCAST else None for stream, (_, number) in rows]
    keys = [key if stream == OWN else None for stream, (key, _) in rows]
    columns = {
        INPUT_COLUMN: pa.array([stream for stream, _ in rows], pa.int32()),
        rows_column(OWN): pa.array(own, pa.struct({"k": pa.string(), "n": pa.int64()})),
        rows_column(BROADCAST): pa.array(broadcast, pa.struct({"n": pa.int64()})),
        KEY_COLUMN: pa.array(keys, pa.string()),
        KEY_GROUP_COLUMN: pa.array([key_group(key) for _, (key, _) in rows], pa.int32()),
    }
    return pa.RecordBatch.from_pydict(columns)


def _arrow_batches(rows: Sequence[tuple[str, int]]) -> list[pa.RecordBatch]:
    return [_arrow(rows[i : i + 2]) for i in range(0, len(rows), 2)]


def _arrow(rows: Sequence[tuple[str, int]]) -> pa.RecordBatch:
    columns = {
        "k": pa.array([key for key, _ in rows], pa.string()),
        "n": pa.array([number for _, number in rows], pa.int64()),
        KEY_GROUP_COLUMN: pa.array([key_group(key) for key, _ in rows], pa.int32()),
    }
    return pa.RecordBatch.from_pydict(columns)


@dataclass
class Answer:
    """The cached answer of an operator, which another one may read."""

    cluster: Cluster
    blocks: dict[int, tuple[int, list[tuple[str, int]]]]
    """By partition: row tag and output rows."""
    lose: Callable[[], None] = lambda: None
    """Lose a block."""
    winners: frozenset[int] = frozenset()
    """Row tags that a block may have, when rows of it are read."""

    def rows(self) -> list[tuple[str, int]]:
        """Rows of all blocks. Raises `LostBlockError`."""
        if not self.winners.issuperset(tag for tag, _ in self.blocks.values()):
            raise LostBlockError
        return [row for _, (_, rows) in sorted(self.blocks.items()) for row in rows]

    def of(self, partition: int, parallelism: int, max_parallelism: int) -> list[pa.RecordBatch]:
        return _arrow_batches(_own_rows(self.rows(), partition, parallelism, max_parallelism))


class SimulatedExecution:
    """In the place of `OperatorExecutor`."""

    def __init__(self, *_: object, **__: object) -> None:
        """Nothing is cached yet."""

    def run(self, task: OperatorTask) -> Any:
        rows: Any = task.rows
        function: Any = task.function
        executed: Any = task.executed
        request = task.request
        try:
            stage = rows.cluster.execute(request, function, rows, executed)
        except LostBlockError as error:
            raise BatchRedoError("a cached block was lost") from error
        for summary in stage.summaries:
            if summary.error is not None:
                raise UserErrorRaised(summary.error, summary.operator, summary.partition)
        checked = check_summaries(stage.summaries, request)
        check_broadcast(checked, request.batch)
        return OperatorResult(checked, stage.answer)  # type: ignore[arg-type]

    def release(self) -> None:
        """Nothing is cached."""


class NoSmallBatches:
    """In the place of `SmallBatches`: Spark's tasks, which fail in more ways, execute every batch."""

    @staticmethod
    def create(*_: object) -> None:
        """No batch is small."""


def chained_rows(result: OperatorResult) -> Answer:
    """In the place of `operator_executor.chained_rows`: a block of any other attempt fails who reads it."""
    answer: Any = result.answer
    answer.winners = frozenset(row_tags([summary.tag for summary in result.summaries.summaries]))
    return answer


def winner_rows(result: OperatorResult, _schema: object) -> Answer:
    """In the place of `operator_executor.winner_rows`."""
    return chained_rows(result)


class SimulatedSink(Sink):
    """Keeps the output of the newest seq of each batch; may tell what it holds."""

    def __init__(self, scheduler: Scheduler, oracle: Oracle, epoch: Any, *, tells: bool) -> None:
        self._scheduler = scheduler
        self._oracle = oracle
        self._epoch = epoch
        self._tells = tells

    def write(self, df: Any, commit: SinkCommit) -> None:
        self._oracle.sink_begins(self._epoch(), commit.batch, commit.seq)
        self._scheduler.pause(f"sink {commit.batch} at {commit.seq}")
        try:
            rows = df.rows()
        except LostBlockError as error:
            raise SparkError(f"{LOST_BLOCK} after the commit") from error
        self._oracle.sink_holds(commit, rows)
        self._scheduler.pause("sink done")

    def last_committed(self) -> SinkCommit | None:
        return self._oracle.last_output if self._tells else None


class Stage:
    """Answers of the tasks of a stage."""

    def __init__(self, cluster: Cluster) -> None:
        self.summaries: list[Summary] = []
        self.answer = Answer(cluster, {})
