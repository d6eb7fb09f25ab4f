"""Failures inside a batch: workers killed at every step, lost blocks, failing sinks, lost replies."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.conftest import FileStream
from tests.spark.functions.small import Counting, CountRows, Dying, DyingAt, Failing, Hanging, Mute
from tests.spark.keyed_jobs import BACKENDS, IN_MEMORY, KeyedJob, Sums, in_order, kill_state_workers, state_workers
from tests.workers.state_worker_setup import eventually
from varvite import StreamExecutionEnvironment
from varvite.changelog.chain.reader import ChainReader
from varvite.spark_integration.connectors.spark_progress import SparkCheckpoint
from varvite.spark_integration.driver import batch_executor, job_start
from varvite.spark_integration.driver.batch_executor import BatchExecutor
from varvite.spark_integration.driver.operator_executor import BatchRedoError, OperatorResult
from varvite.storage.errors import (
    CorruptDataError,
    FencedError,
    InvalidRequestError,
    MayHaveHappenedError,
    UserFunctionError,
)
from varvite.storage.format import layout
from varvite.storage.format.records import ORIGIN, Commit
from varvite.storage.object_stores.open import open_store
from varvite.storage.object_stores.prefixed import PrefixedStore

pytestmark = [pytest.mark.spark, pytest.mark.long]
EARLY = "state.changelog.dstl.dfs.preemptive-persist-threshold"


def test_a_user_error_arrives_with_traceback_key_operator_and_batch(spark: SparkSession, tmp_path: Path) -> None:
    job = KeyedJob(spark, tmp_path, function=Failing())
    job.add(("a", 1), ("b", 2))
    job.add(("a", 3), ("unlucky", 13))
    with pytest.raises(UserFunctionError, match=r"(?s)13 is unlucky.*unlucky.*functions/small\.py") as raised:
        job.run()
    assert isinstance(raised.value.__cause__, ArithmeticError)
    assert {k: raised.value.context[k] for k in ("job", "operator", "batch")} == {
        "job": "job",
        "operator": "sums",
        "batch": 1,
    }
    job.function = Sums()
    job.run()
    assert job.rows() == in_order(job.expected), "the failed batch left nothing behind"


def test_a_value_that_cannot_be_read_arrives_as_the_users_error_and_is_not_tried_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Found as a retryable error, with which a supervisor would start the job for ever."""
    stream = FileStream(spark, tmp_path / "input", "k string, v int")
    stream.add('{"k": "a", "v": 1}', '{"k": "a", "v": 5000000}')
    rows = stream.read().selectExpr("k", "date_add(DATE'1970-01-01', v) AS day", "v")
    env = StreamExecutionEnvironment.get_execution_environment(spark)
    env.configure("execution.checkpointing.dir", str(tmp_path / "state"))
    made = env.from_dataframe(rows).key_by("k").process(Sums(), "k string, total bigint", uid="sums")
    writer = made.foreach_batch(lambda rows, batch: None).query_name("job").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(InvalidRequestError, match=r"'day' of type date.*15659-07-15") as raised:
        query.awaitTermination()
    assert {k: raised.value.context[k] for k in ("job", "operator", "batch")} == {
        "job": "job",
        "operator": "sums",
        "batch": 0,
    }


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_state_worker_that_dies_inside_the_function_is_replaced_and_its_task_tried_again(
    spark: SparkSession, tmp_path: Path, backend: str
) -> None:
    job = KeyedJob(spark, tmp_path, backend=BACKENDS[backend], function=Dying(tmp_path / "died", at=13))
    job.add(("a", 1), ("b", 2), ("c", 3))
    job.add(("a", 4), ("b", 13), ("c", 5), ("d", 6))
    job.add(("a", 7), ("b", 8))
    job.run()
    assert (tmp_path / "died").exists()
    assert job.rows() == in_order(job.expected)


@pytest.mark.parametrize("stops", [pytest.param(True, id="stopped"), pytest.param(False, id="sleeps")])
def test_stop_ends_a_batch_that_does_not_end_and_the_next_run_executes_it(
    spark: SparkSession, tmp_path: Path, stops: bool
) -> None:
    """Found as a stop that did not return, and workers that stayed."""
    kill_state_workers(spark)  # those of other tests
    marker = tmp_path / "hang"
    marker.touch()
    spark.conf.set("spark.sql.streaming.stopTimeout", "1s")
    job = KeyedJob(spark, tmp_path, function=Hanging(marker, stops=stops))
    job.add(("a", 1), ("b", 2))
    job.add(("a", 13), ("b", 3))
    query = job.start()
    assert eventually((tmp_path / "entered").exists, timeout_s=60)
    started_s = time.monotonic()
    query.stop()
    spark.conf.set("spark.sql.streaming.stopTimeout", "30s")
    assert time.monotonic() - started_s < 60
    assert not query.isActive
    assert query.exception() is None
    assert eventually(lambda: not state_workers(spark), timeout_s=30), "no worker of the job is left"
    marker.unlink()
    job.run()
    assert job.rows() == in_order(job.expected)


@pytest.mark.parametrize(
    ("point", "changelog"),
    [
        ("worker.after_early_part", True),
        ("worker.before_segment_upload", True),
        ("worker.after_segment_upload", True),
        ("worker.before_segment_upload", False),
        ("worker.after_segment_upload", False),
        ("worker.before_summary", True),
        ("worker.after_summary", True),
        ("worker.after_summary", False),
    ],
)
def test_a_state_worker_killed_at_a_step_of_the_protocol_loses_and_doubles_nothing(
    spark: SparkSession, tmp_path: Path, point: str, changelog: bool
) -> None:
    died = tmp_path / "died"
    conf = {"checkpoint.inline-size-max": "0 b", "state.changelog.dstl.dfs.batch.persist-size-threshold": "0 b"}
    if point == "worker.after_early_part":
        conf[EARLY] = "1 b"
    job = KeyedJob(spark, tmp_path, changelog=changelog, function=DyingAt(point, died), conf=conf)
    job.add(("a", 1), ("b", 2), ("c", 3))
    job.add(("a", 4), ("b", 13), ("c", 5), *[(f"key-{i}", i) for i in range(200)])
    job.add(("a", 7), ("b", 8))
    job.run()
    assert eventually(died.exists, 20)
    assert job.rows() == in_order(job.expected)


@pytest.mark.fixed_storage  # it looks at segments
def test_a_long_batch_uploads_early_and_its_parts_alone_restore_it(spark: SparkSession, tmp_path: Path) -> None:
    rows = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(rows)
    function = Dying(tmp_path / "died", at=399)
    job = KeyedJob(spark, tmp_path, backend=BACKENDS["rocksdb"], function=function, conf={EARLY: "1 b"})
    job.add(("a", 1), ("b", 2))
    job.add(*[(f"key-{i % 7}", i % 400) for i in range(800)])
    try:
        spark.conf.set(rows, "50")
        job.run()
    finally:
        spark.conf.set(rows, before)
    assert (tmp_path / "died").exists(), "a worker has died in the midst of its parts"
    uploaded = [len(part.uploaded) for part in newest_commit(tmp_path).parts]
    assert max(uploaded) >= 3
    kill_state_workers(spark)
    job.backend, job.conf = BACKENDS["hashmap"], {}
    job.add(*[(f"key-{i}", i) for i in range(8)], ("a", 3))
    assert not IN_MEMORY & job.restored(job.run()).keys()
    assert job.rows() == in_order(job.expected)


def newest_commit(tmp_path: Path) -> Commit:
    """The newest entry of the job's chain, when the job has ended."""
    job_id = json.loads(_job_header(tmp_path))["job_id"]
    head = ChainReader(PrefixedStore(open_store(str(tmp_path / "state")), "job"), job_id).head()
    assert isinstance(head, Commit)
    return head


def test_a_sink_that_fails_after_the_commit_gets_the_batch_again_and_lists_do_not_grow_twice(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = KeyedJob(spark, tmp_path)
    job.add(("a", 1), ("b", 2))
    job.add(("a", 3))

    def failing(rows: DataFrame, batch: int) -> None:
        job.collect(rows, batch)
        if batch == 1:
            raise OSError("the sink is full")

    words = r"^the function of foreach_batch raised builtins\.OSError: the sink is full \[job=job, batch=1, epoch=1\]$"
    with pytest.raises(UserFunctionError, match=words) as raised:
        job.run(failing)
    assert isinstance(raised.value.__cause__, OSError)
    job.add(("a", 4), ("b", 5))
    job.run()
    assert [batch for batch, _ in job.received] == [0, 1, 1, 2]
    assert job.rows() == in_order(job.expected)


def test_a_batch_whose_offsets_cannot_be_read_is_not_committed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = KeyedJob(spark, tmp_path)
    job.add(("a", 1))
    job.add(("a", 2), ("b", 3))
    readable = SparkCheckpoint.source_hash

    def damaged(checkpoint: SparkCheckpoint, batch: int) -> str:
        if batch == 1:
            raise CorruptDataError("the offsets are damaged")
        return readable(checkpoint, batch)

    with monkeypatch.context() as patched:
        patched.setattr(SparkCheckpoint, "source_hash", damaged)
        with pytest.raises(CorruptDataError, match="the offsets are damaged") as raised:
            job.run()
    assert raised.value.context["batch"] == 1
    assert newest_commit(tmp_path).batch == 0
    job.run()
    assert job.rows() == in_order(job.expected)


@pytest.mark.parametrize("kind", ["many actions", "limit", "none"])
def test_the_function_runs_once_for_each_row_whatever_the_sink_does(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    job = KeyedJob(spark, tmp_path, function=Counting(tmp_path / "calls"))

    def sink(rows: DataFrame, batch: int) -> None:
        if kind == "many actions":
            assert rows.count() == rows.count() == len(rows.collect())
        elif kind == "limit":
            rows.limit(1).collect()

    job.add(*[(f"key-{i % 5}", i) for i in range(40)])
    job.add(("key-1", 100))
    job.run(sink)
    assert len((tmp_path / "calls").read_text().splitlines()) == 41
    job.add(("key-1", 101), ("key-2", 102))
    job.run()
    assert in_order(job.received[-1][1]) == in_order(job.expected[-2:])


@pytest.mark.spark_tasks
def test_a_cached_output_block_lost_before_the_sink_fails_the_query_and_the_restart_repairs_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = KeyedJob(spark, tmp_path)
    job.add(("a", 1), ("b", 2))
    job.add(("a", 3), ("c", 4))

    def losing(rows: DataFrame, batch: int) -> None:
        if batch == 1:
            rows.sparkSession.catalog.clearCache()
        job.collect(rows, batch)

    with pytest.raises(Exception, match=r"cached output block was lost|lost this output"):
        job.run(losing)
    job.add(("a", 5))
    job.run()
    assert job.rows() == in_order(job.expected)


@pytest.mark.spark_tasks
def test_a_lost_output_block_that_is_made_anew_without_rows_fails_the_query_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = KeyedJob(spark, tmp_path, function=Mute(tmp_path / "muted"))
    job.add(("a", 1), ("b", 2))
    job.add(("a", 3), ("c", 4))

    def losing(rows: DataFrame, batch: int) -> None:
        if batch == 1:
            (tmp_path / "muted").touch()
            rows.sparkSession.catalog.clearCache()
        job.collect(rows, batch)

    with pytest.raises(Exception, match=r"cached output block was lost|lost this output"):
        job.run(losing)
    (tmp_path / "muted").unlink()
    job.run()
    assert job.rows() == in_order(job.expected)


@pytest.mark.spark_tasks
@pytest.mark.parametrize(
    ("again", "is_united"),
    [
        ("with rows", True),
        ("without rows", False),
        pytest.param("with rows", False, marks=pytest.mark.rare),
        pytest.param("without rows", True, marks=pytest.mark.rare),
    ],
)
def test_an_upstream_partition_that_runs_again_redoes_the_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: str, *, is_united: bool
) -> None:
    lost: list[int] = []
    chained_rows, muted = batch_executor.chained_rows, tmp_path / "muted"
    attempt = BatchExecutor.attempt

    def attempting(self: BatchExecutor, *batch: Any) -> list[OperatorResult]:
        muted.unlink(missing_ok=True)
        return attempt(self, *batch)

    def losing(result: OperatorResult) -> DataFrame:
        if not lost:
            lost.append(1)
            if again == "without rows":
                muted.touch()
            result.answer.unpersist(blocking=True)
        return chained_rows(result)

    # What the driver hears of executions gets lost with a task that fails after it has put the block into the cache.
    monkeypatch.setattr(batch_executor, "check_executed", lambda *_: None)
    monkeypatch.setattr(batch_executor, "chained_rows", losing)
    monkeypatch.setattr(BatchExecutor, "attempt", attempting)
    job = KeyedJob(spark, tmp_path, function=Mute(muted))
    job.add(("a", 1), ("b", 2), ("a", 3))
    stream = job.environment().from_dataframe(job.stream.read())
    first = stream.key_by("k").process(job.function, job.output, uid="first")
    if is_united:
        first = first.union(first.filter(lambda row: False))
    second = first.key_by("k").process(CountRows(), "k string, rows long", uid="second")
    writer = second.foreach_batch(job.collect).query_name("job").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    query.awaitTermination()
    assert [s.attempts for s in query.checkpoint_statistics.history()] == [2]
    assert job.rows() == [("a", 1), ("a", 2), ("b", 1)]


@pytest.mark.spark_tasks
def test_a_function_instance_with_fields_of_a_dropped_attempt_is_not_used_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[int] = []
    check = batch_executor.check_executed

    def refusing(executed: Any, winners: Any, batch: int) -> None:
        check(executed, winners, batch)
        if batch == 1 and not refused:
            refused.append(batch)
            raise BatchRedoError("refused by the test")

    monkeypatch.setattr(batch_executor, "check_executed", refusing)
    job = KeyedJob(spark, tmp_path, function=Counting(tmp_path / "calls"), parallelism=1)
    job.add(("a", 1), ("a", 2))
    job.add(("a", 3))
    job.run()
    calls = [line.split() for line in (tmp_path / "calls").read_text().splitlines()]
    assert [(v, of_instance) for _, _, _, v, of_instance in calls] == [("1", "1"), ("2", "2"), ("3", "3"), ("3", "1")]
    assert job.rows() == in_order(job.expected)


class LosingReplies:
    """An object store whose put-if-absent of one chain entry happens, but is answered with a failure."""

    def __init__(self, inner: Any, seq: int, replace_with: bytes | None = None) -> None:
        self._inner = inner
        self._name = layout.chain(seq)
        self._replace_with = replace_with
        self.lost = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        if name.endswith(self._name) and not self.lost:
            self.lost += 1
            self._inner.put_if_absent(name, self._replace_with or data)
            raise MayHaveHappenedError("the reply was lost", object_name=name)
        return self._inner.put_if_absent(name, data)


def test_a_lost_reply_of_the_commit_is_settled_by_reading_back(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LosingReplies(open_store(str(tmp_path / "state")), seq=3)
    monkeypatch.setattr(job_start, "open_store", lambda url, options=None: store)
    job = KeyedJob(spark, tmp_path)
    job.add(("a", 1))
    job.add(("a", 2), ("b", 3))
    job.add(("a", 4))
    query = job.run()
    assert store.lost == 1
    assert [s.seq for s in query.checkpoint_statistics.history()] == [2, 3, 4]
    assert job.rows() == in_order(job.expected)


def test_a_driver_that_loses_its_slot_stops_without_calling_the_sink(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from varvite.storage.format.records import Fence, encode_entry

    job = KeyedJob(spark, tmp_path)
    job.add(("a", 1))
    job.run()
    job_id = json.loads(_job_header(tmp_path))["job_id"]
    fence = Fence(seq=4, token="f" * 32, job_id=job_id, parent=ORIGIN, keep_from=0, time_ms=0, commit=ORIGIN)
    store = LosingReplies(open_store(str(tmp_path / "state")), seq=4, replace_with=encode_entry(fence))
    monkeypatch.setattr(job_start, "open_store", lambda url, options=None: store)
    job.add(("a", 2))
    with pytest.raises(FencedError, match="took over"):
        job.run()
    assert [batch for batch, _ in job.received] == [0]


def _job_header(tmp_path: Path) -> bytes:
    from varvite.storage.format.frame import unframe

    path = tmp_path / "state" / "job" / "job.json"
    return unframe(b"JOBR", 1, path.read_bytes(), "job.json").header
