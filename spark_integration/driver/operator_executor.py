"""Executes one operator on a batch in Spark: key, shuffle, pump, cache, collect the summaries or all rows.

Invariants: I2 (exactly one summary per partition; output rows are filtered by the winners' row tags, and a row of any
other attempt fails the query), I3 (an attempt that fails is thrown away as a whole).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from pyspark import StorageLevel

from varvite.changelog.commit.batch_result import by_operator
from varvite.spark_integration.driver.answer_size import ANSWER_MAX_BYTES
from varvite.spark_integration.elements.arrow_rows import quoted
from varvite.spark_integration.elements.arrow_task import map_in_arrow
from varvite.spark_integration.messages.operator_summaries import OperatorSummaries
from varvite.spark_integration.messages.protocol import (
    KEY_GROUP_COLUMN,
    LOST_BLOCK,
    PARTITION_COLUMN,
    SUMMARY_COLUMN,
    TAG_COLUMN,
    BatchRequest,
    encode_message,
    has_summary,
    row_tags,
)
from varvite.spark_integration.messages.summary import Summary, decode_summaries
from varvite.spark_integration.messages.user_errors import UserErrorRaised
from varvite.spark_integration.plan.broadcast_input import first_group, to_partitions
from varvite.spark_integration.transport.pump import ExecutionNote, Pump
from varvite.storage.errors import DidNotHappenError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.accumulators import Accumulator
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from varvite.spark_integration.driver.placement.anchor import Anchor
    from varvite.spark_integration.driver.placement.anchors import Anchors
    from varvite.spark_integration.functions.pickling import ShippedFunction
    from varvite.spark_integration.operators.aggregation.map_side_combine import MapSideCombining
    from varvite.spark_integration.plan.operator import OperatorPlan
    from varvite.spark_integration.transport.segment_inbox import SegmentInbox

MULTI_EXECUTOR_LEVEL: Final = StorageLevel.MEMORY_AND_DISK_2
LOCAL_LEVEL: Final = StorageLevel.MEMORY_AND_DISK
RESULT_LIMIT: Final = "spark.driver.maxResultSize"
"""In the message of Spark for results that are larger than the driver takes."""
LIST_LENGTH_MIN: Final = 16
"""IN lists are padded to this length. Above `spark.sql.optimizer.inSetConversionThreshold` (10) they are data; below it
they are generated code, which is compiled anew for each batch."""


class BatchRedoError(DidNotHappenError):
    """This attempt of the batch cannot be committed, nothing was written: execute it again."""


class AnswerTooLargeError(BatchRedoError):
    """The driver does not take so large an answer; nothing was written: Spark's tasks execute the batch again."""


@dataclass(frozen=True, slots=True)
class OperatorTask:
    """One operator to be executed on a batch."""

    plan: OperatorPlan
    rows: DataFrame
    """Its input."""
    request: BatchRequest
    """The request to every task."""
    function: ShippedFunction
    """The user's function."""
    executed: Accumulator[list[ExecutionNote]]
    """Collects (operator, partition, tag) of every execution, retries of cached blocks included."""


@dataclass(frozen=True, slots=True)
class OperatorResult:
    """The answer of one operator's tasks: one summary per partition, in order, and the cached rows."""

    summaries: OperatorSummaries
    answer: DataFrame


@dataclass(frozen=True, slots=True)
class TableResult:
    """The answer of an operator that is in the driver: one summary per partition, in order, and the rows of each."""

    summaries: OperatorSummaries
    rows: tuple[tuple[pa.RecordBatch, ...], ...]


def keyed_input(
    rows: DataFrame,
    key_columns: Sequence[str],
    parallelism: int,
    max_parallelism: int,
    anchor: Anchor | None = None,
    columns_read: Sequence[str] = ("*",),
    *,
    by_partition: bool = False,
) -> DataFrame:
    """The rows with their key group, each in the shuffle partition that owns it; with an anchor, on its executors.

    Each step of a DataFrame costs an analysis of some milliseconds, so `columns_read` (expressions) are chosen here.
    `by_partition`: the key is the number of the partition.
    """
    group = key_group_of(key_columns, max_parallelism, parallelism if by_partition else None)
    keyed = rows.selectExpr(*columns_read, group)
    return to_partitions(keyed, parallelism, max_parallelism, anchor)


def key_group_of(key_columns: Sequence[str], max_parallelism: int, partitions: int | None = None) -> str:
    """The key group of rows with that key, as a named expression; `partitions`: the key is the number of one."""
    if partitions is not None:
        return f"{first_group(quoted(key_columns[0]), partitions, max_parallelism)} AS {KEY_GROUP_COLUMN}"
    # As text: each call of pyspark.sql.functions costs a millisecond or more of class lookups in the JVM.
    keys = ", ".join(quoted(column) for column in key_columns)
    return f"CAST(pmod(xxhash64({keys}), {max_parallelism}L) AS INT) AS {KEY_GROUP_COLUMN}"


def answer_struct(output: StructType) -> StructType:
    """Spark schema of an answer (see `protocol.answer_schema`)."""
    from pyspark.sql.types import BinaryType, LongType, StructField
    from pyspark.sql.types import StructType as Struct

    beside = [StructField(TAG_COLUMN, LongType()), StructField(SUMMARY_COLUMN, BinaryType())]
    return Struct([*output.toNullable().fields, *beside])


class OperatorExecutor:
    """Executes operators; frees on `release` what their attempts have cached."""

    def __init__(
        self,
        level: StorageLevel,
        combining: MapSideCombining,
        anchors: Anchors | None = None,
        inbox: SegmentInbox | None = None,
        *,
        has_copies: bool = False,
    ) -> None:
        """`has_copies`: Spark may run copies of a task at the same time (`spark.speculation`)."""
        self._level = level
        self._anchors = anchors
        self._inbox = inbox
        self._combining = combining
        self._has_copies = has_copies
        self._cached: list[DataFrame] = []

    def run(self, task: OperatorTask) -> OperatorResult:
        """Execute one operator, and keep its rows.

        Raises:
            UserErrorRaised: the user's function raised.
            BatchRedoError: not exactly one summary per partition, a cached block of the operator before was lost and
                made anew, or not the same broadcast rows everywhere.
        """
        request = task.request
        answer = self._persist(self._answer(task), request.operator.parallelism)
        # As Arrow: `collect` pickles, which takes twice as long for summaries that hold large segments.
        summaries = answer.where(f"{SUMMARY_COLUMN} IS NOT NULL").selectExpr(SUMMARY_COLUMN)
        encoded: list[Any] = [row.as_buffer() for batch in _collected(summaries, request) for row in batch.column(0)]
        return OperatorResult(checked_answers(decode_summaries(encoded), request, self._inbox), answer)

    def run_to_driver(self, task: OperatorTask) -> TableResult:
        """Execute one operator, and bring its rows to the driver together with the summaries: in one job, no cache.

        Spark takes one attempt of each task, so rows and summary of a partition are of the same one (I2).

        Raises:
            UserErrorRaised: the user's function raised.
            AnswerTooLargeError: There are more rows than the driver takes.
            BatchRedoError: As `run`.
        """
        request = task.request
        max_bytes = ANSWER_MAX_BYTES // request.operator.parallelism
        try:
            batches = _collected(self._answer(task, max_bytes), request)
        except Exception as error:
            if RESULT_LIMIT not in str(error):
                raise
            raise _too_large(request, RESULT_LIMIT) from error
        encoded, partitions = split_answers(batches)
        checked = checked_answers(decode_summaries(encoded), request, self._inbox)
        if sum(batch.num_rows for batch in chain.from_iterable(partitions)) < checked.total("rows_out"):
            raise _too_large(request, f"{max_bytes} bytes of a partition")
        return TableResult(checked, partitions)

    def _answer(self, task: OperatorTask, answer_max_bytes: int | None = None) -> DataFrame:
        """The output rows and the summaries of an operator, executed when they are read."""
        plan, rows, request = task.plan, task.rows, task.request
        columns_read: Sequence[str] = ("*",)
        if plan.prepare is not None:
            way = self._combining.way(plan.uid)
            if way is not None and plan.prepare.suits(way):
                rows = plan.prepare.combined(rows, way)
            else:
                columns_read = plan.prepare.columns_read()
        parallelism, max_parallelism = request.operator.parallelism, request.operator.max_parallelism
        anchor = None if self._anchors is None else self._anchors.of(parallelism)
        in_order = plan.timestamp_column if request.operator.is_batch else None
        if plan.broadcast is None:
            keyed = keyed_input(
                rows, plan.key_columns, parallelism, max_parallelism, anchor, columns_read,
                by_partition=plan.by_partition,
            )  # fmt: skip
            keyed = keyed if in_order is None else keyed.sortWithinPartitions(quoted(in_order))
        else:
            keyed = plan.broadcast.distributed(rows, parallelism, max_parallelism, anchor, in_order)
        pump = Pump(encode_message(request), task.function, task.executed, answer_max_bytes=answer_max_bytes)
        return map_in_arrow(keyed, pump, answer_struct(plan.output_schema))

    def cache(self, rows: DataFrame) -> tuple[DataFrame, int]:
        """Execute and keep rows that no operator reads; returns their number, too."""
        cached = self._persist(rows, None)
        return cached, cached.count()

    def keep(self, rows: DataFrame) -> DataFrame:
        """The rows of the input for several operators: they are read once, and kept when they are first executed."""
        return self._persist(rows, None)

    def release(self) -> None:
        """Free the cached answers, and the segments that were handed over."""
        while self._cached:
            self._cached.pop().unpersist()
        if self._inbox is not None:
            self._inbox.clear()

    def _persist(self, rows: DataFrame, partitions: int | None) -> DataFrame:
        """Have the rows cached when they are first executed; `partitions` is their number if it must stay.

        A task and its copy may both leave their cached block, and a reader gets either. So a shuffle comes first where
        tasks have copies: of its map outputs Spark reads those of one attempt, the one whose summary reaches the
        driver.
        """
        if self._has_copies:
            rows = rows.selectExpr("*", f"spark_partition_id() AS {PARTITION_COLUMN}")
            if partitions is None:
                rows = rows.repartition(PARTITION_COLUMN)
            else:
                rows = rows.repartitionById(partitions, PARTITION_COLUMN)
            rows = rows.drop(PARTITION_COLUMN)
        cached = rows.persist(self._level)
        self._cached.append(cached)
        return cached


def _collected(rows: DataFrame, request: BatchRequest) -> list[pa.RecordBatch]:
    """The rows, in the order of their partitions; no batch has rows of two."""
    try:
        return collected_batches(rows)
    except Exception as error:
        if LOST_BLOCK not in str(error):
            raise
        raise BatchRedoError(
            "a cached block of the operator before was lost and its partition executed again; the batch is "
            "executed again",
            operator=request.operator.operator,
            batch=request.batch,
            epoch=request.epoch,
        ) from error


def collected_batches(rows: Any) -> list[pa.RecordBatch]:
    """The rows of a DataFrame as Spark sends them to a `mapInArrow`, in the order of their partitions."""
    batches: list[pa.RecordBatch] = rows._collect_as_arrow()  # noqa: SLF001  `toArrow` changes time zones
    return batches


def _too_large(request: BatchRequest, limit: str) -> AnswerTooLargeError:
    return AnswerTooLargeError(
        f"the rows for the sink are more than {limit}; the batch is executed again, and they are cached",
        operator=request.operator.operator,
        batch=request.batch,
        epoch=request.epoch,
    )


def split_answers(
    batches: Sequence[pa.RecordBatch],
) -> tuple[list[Any], tuple[tuple[pa.RecordBatch, ...], ...]]:
    """The encoded summaries, and the output rows of each partition. The summary is a partition's last row.

    Args:
        batches: Answers of all partitions, one after another; no batch has rows of two.
    """
    encoded: list[Any] = []
    partitions: list[tuple[pa.RecordBatch, ...]] = []
    rows: list[pa.RecordBatch] = []
    for batch in batches:
        summaries = batch.column(SUMMARY_COLUMN)
        is_last = has_summary(batch)
        if batch.num_rows > is_last:
            rows.append(batch.slice(0, batch.num_rows - is_last))
        if is_last:
            encoded.append(summaries[-1].as_buffer())
            partitions.append(tuple(rows))
            rows = []
    return encoded, tuple(partitions)


def checked_answers(summaries: list[Summary], request: BatchRequest, inbox: SegmentInbox | None) -> OperatorSummaries:
    """The summaries in order of partition, with their segments, if they can be committed.

    Raises:
        UserErrorRaised: The user's function raised.
        BatchRedoError: Not exactly one summary per partition, a segment is lost, or not the same broadcast rows
            everywhere.
    """
    failed = next((s for s in summaries if s.error is not None), None)
    if failed is not None and failed.error is not None:
        raise UserErrorRaised(failed.error, failed.operator, failed.partition)
    checked = check_summaries(_take_handed_over(summaries, request, inbox), request)
    check_broadcast(checked, request.batch)
    return checked


def _take_handed_over(summaries: list[Summary], request: BatchRequest, inbox: SegmentInbox | None) -> list[Summary]:
    """Take the segments that were handed over from the inbox into their summaries."""
    if inbox is None or not any(s.handed_over_bytes for s in summaries):
        return summaries
    completed = [inbox.complete(summary) for summary in summaries]
    missing = [s.partition for s, c in zip(summaries, completed, strict=True) if c is None]
    if missing:
        raise BatchRedoError(
            f"the segments of partitions {missing} were handed over and are not here any more; the batch is "
            "executed again",
            operator=request.operator.operator,
            batch=request.batch,
            epoch=request.epoch,
        )
    return [summary for summary in completed if summary is not None]


def check_summaries(summaries: Sequence[Summary], request: BatchRequest) -> OperatorSummaries:
    """The summaries in order of partition. Raises `BatchRedoError` unless there is exactly one for each."""
    expected = range(request.operator.parallelism)
    in_order = by_operator(summaries).get(request.operator.operator, [])
    if len(in_order) != len(summaries) or [s.partition for s in in_order] != list(expected):
        raise BatchRedoError(
            f"expected one summary of each of {len(expected)} partitions, got partitions "
            f"{sorted(s.partition for s in summaries)}; the batch is executed again",
            operator=request.operator.operator,
            batch=request.batch,
            epoch=request.epoch,
        )
    return OperatorSummaries.of(request.operator.operator, in_order)


def check_broadcast(summaries: OperatorSummaries, batch: int) -> None:
    """Raise `BatchRedoError` unless all partitions have read the same broadcast rows in the same order."""
    if len({note.broadcast_digest for note in summaries.notes}) > 1:
        raise BatchRedoError(
            "partitions have read different broadcast rows, because Spark has executed a part of the input again; the "
            "batch is executed again",
            operator=summaries.operator,
            batch=batch,
        )


def check_executed(executed: Sequence[ExecutionNote], winners: Sequence[OperatorSummaries], batch: int) -> None:
    """I2 for cached blocks: each partition was executed by its winner only. Raises `BatchRedoError` otherwise.

    A lost cached block makes Spark execute a partition again silently; its rows may differ.
    """
    # A tag is of one attempt of one partition, so tags alone say it when all is well, as nearly always.
    summaries = list(chain.from_iterable(operator.summaries for operator in winners))
    if {s.tag for s in summaries}.issuperset([tag for _, _, tag in executed]):
        return
    tags = {(s.operator, s.partition): s.tag for s in summaries}
    for operator, partition, tag in executed:
        if tags.get((operator, partition), tag) != tag:
            raise BatchRedoError(
                "a cached block was lost and its partition executed again; the batch is executed again",
                operator=operator,
                partition=partition,
                batch=batch,
            )


def winner_rows(result: OperatorResult, output: StructType) -> DataFrame:
    """The output rows of the committed attempts; reading a block of any other attempt fails the query (I2)."""
    lost = f"{LOST_BLOCK} after the commit; the query must be restarted to redo the batch"
    rows = _tagged_rows(result, lost).selectExpr(*[quoted(f.name) for f in output.fields])
    # Spark knows at once that there are none, and starts no job for them.
    return rows if result.summaries.total("rows_out") else rows.limit(0)


def chained_rows(result: OperatorResult) -> DataFrame:
    """The output rows as input of the next operator, which fails if it reads a block of another attempt (I2).

    If the output of the next operator was lost as well, the sink may be the first to fail, after the commit.
    """
    lost = f"{LOST_BLOCK}; the batch is executed again, or redone by a restart of the query if it is committed already"
    return _tagged_rows(result, lost).drop(TAG_COLUMN, SUMMARY_COLUMN)


def _tagged_rows(result: OperatorResult, lost: str) -> DataFrame:
    return result.answer.where(winner_condition(result.summaries, lost))


def winner_condition(summaries: OperatorSummaries, lost: str) -> str:
    """SQL that is true for output rows of these attempts, and fails with `lost` at any row of another attempt.

    The summary row is checked as well, so that an attempt without output rows is noticed.
    """
    # Spark puts a short list's numbers into the code that it generates, which it then compiles anew in each batch; a
    # long list becomes a set beside the code. No tag is negative.
    padding = range(-1, len(summaries.summaries) - LIST_LENGTH_MIN - 1, -1)
    tags = ", ".join(f"{tag}L" for tag in (*row_tags([s.tag for s in summaries.summaries]), *padding))
    failed = f"CAST(raise_error('{lost}') AS BOOLEAN)"
    return f"CASE WHEN {TAG_COLUMN} IN ({tags}) THEN {SUMMARY_COLUMN} IS NULL ELSE {failed} END"
