"""A batch gives the same rows and the same state by either way: in the driver if it is small, or by Spark's tasks.

By the second way the rows are cached for the sink, or come to the driver with the summaries.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.conftest import FileStream
from tests.spark.functions.broadcast import RULES, Checked
from tests.spark.functions.small_batches import Counts, DiesOnce, InTask, PerCount, Raises, Repeats, Running, Schemas
from tests.spark.functions.timers import RemindLater, SumUntilTimer
from varvite import Sink, StreamExecutionEnvironment, register_data_sources
from varvite.changelog.commit.base_decision import SinkCommit
from varvite.common import Types
from varvite.datastream import DataStream
from varvite.spark_integration.api.query import VarviteStreamingQuery
from varvite.spark_integration.driver import batch_executor, operator_executor
from varvite.spark_integration.driver.operator_executor import BatchRedoError
from varvite.storage.errors import UserFunctionError

pytestmark = [pytest.mark.spark, pytest.mark.fixed_storage]
Rows = list[tuple[Any, ...]]
RUNNING = "k string, n bigint, total bigint"
DRIVER, TASKS = "driver", "spark"
COLLECTED = "collected"
"""Spark's tasks, for a sink that brings all rows to the driver."""


class Kept(Sink):
    """Keeps the rows of each batch, and by which method they came."""

    def __init__(self, *, brings_rows_to_driver: bool = False) -> None:
        self.brings_rows_to_driver = brings_rows_to_driver
        self.batches: dict[int, Rows] = {}
        self.tables = 0
        self.is_local: bool | None = None
        """The last DataFrame is made of rows in the driver."""

    def rows(self) -> Rows:
        """Of all batches: how many there are is a matter of time where the job has heartbeats."""
        return sorted((row for rows in self.batches.values() for row in rows), key=repr)

    def write(self, df: DataFrame, commit: SinkCommit) -> None:
        self.is_local = "LocalRelation" in df._jdf.queryExecution().optimizedPlan().toString()
        self.batches[commit.batch] = sorted(map(tuple, df.collect()), key=repr)

    def write_table(self, table: pa.Table, commit: SinkCommit) -> None:
        self.tables += 1
        super().write_table(table, commit)


@dataclass
class Program:
    """A job on files of rows (k, v, at), a batch each; every `run` is a new start."""

    spark: SparkSession
    directory: Path
    way: str = DRIVER
    conf: dict[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        self.directory.mkdir()
        self.stream = FileStream(self.spark, self.directory / "input", "k string, v long, at timestamp")
        self.sink = Kept(brings_rows_to_driver=self.way == COLLECTED)
        self.query: VarviteStreamingQuery | None = None
        self.env = self.environment()

    def add(self, *rows: tuple[str | None, int]) -> None:
        self.stream.add(*[json.dumps({"k": k, "v": v, "at": f"2026-01-01T00:00:{v % 60:02d}Z"}) for k, v in rows])

    def environment(self) -> StreamExecutionEnvironment:
        env = StreamExecutionEnvironment.get_execution_environment(self.spark)
        env.configure("execution.checkpointing.dir", str(self.directory / "state")).set_parallelism(2)
        env.configure("materializer.mode", "off")
        env.configure("execution.small-batch.max-rows", "20000" if self.way == DRIVER else "0")
        env.configure(self.conf)
        return env

    def run(self, build: Callable[[DataStream], Any]) -> list[Rows]:
        """Rows of each batch so far."""
        self.env = self.environment()
        stream = build(self.env.from_dataframe(self.stream.read()))
        writer = stream.foreach_batch(self.sink).query_name("job").trigger(availableNow=True)
        self.query = writer.option("checkpointLocation", str(self.directory / "checkpoint")).start()
        self.query.awaitTermination()
        return [rows for _, rows in sorted(self.sink.batches.items())]

    @property
    def way_of_batches(self) -> str:
        """As statistics have it."""
        return DRIVER if self.way == DRIVER else TASKS

    def ways(self) -> list[str]:
        assert self.query is not None
        return [batch.way for batch in self.query.checkpoint_statistics.history()]

    def state(self, name: str) -> Rows:
        """A keyed state of the job."""
        read = self.spark.read.format("varvite-state").options(job="job", state=name)
        return sorted((tuple(row) for row in read.load(str(self.directory / "state")).collect()), key=repr)


BATCHES: list[list[tuple[str | None, int]]] = [
    [("a", 1), ("b", 2), ("a", 3), (None, 4)],
    [("c", 5), ("a", 6)],
    [(None, 7), ("d", 8), ("b", 9), ("b", 10), ("e", 11)],
]


@pytest.fixture(autouse=True)
def _sources(spark: SparkSession) -> None:
    register_data_sources(spark)


def both_ways(
    spark: SparkSession, directory: Path, build: Callable[[DataStream], Any], state: str | None
) -> list[Rows]:
    """Run a program by both ways, the second half after a restart; all are equal."""
    programs = [Program(spark, directory / way, way) for way in (DRIVER, TASKS, COLLECTED)]
    for program in programs:
        for batches in (BATCHES[:2], BATCHES[2:]):
            for batch in batches:
                program.add(*batch)
            program.run(build)
            assert set(program.ways()) == {program.way_of_batches}
    driver, tasks, collected = programs
    assert driver.sink.rows() == tasks.sink.rows() == collected.sink.rows()
    assert state is None or driver.state(state) == tasks.state(state) == collected.state(state) != []
    assert (driver.sink.tables, tasks.sink.tables) == (len(driver.sink.batches), 0)
    if len(collected.sink.batches) == len(BATCHES):  # otherwise each batch may be of a run of its own
        assert collected.sink.tables == len(BATCHES) - 2, "nothing is known of a run's first batch"
    assert (driver.sink.is_local, tasks.sink.is_local) == (True, False)
    return [rows for _, rows in sorted(driver.sink.batches.items())]


def running(stream: DataStream) -> Any:
    return stream.key_by("k").process(Running(), RUNNING, uid="running")


def test_state_per_key(spark: SparkSession, tmp_path: Path) -> None:
    found = both_ways(spark, tmp_path, running, "total")
    assert found[1] == [("a", 3, 10), ("c", 1, 5)]


def test_two_operators_after_one_another(spark: SparkSession, tmp_path: Path) -> None:
    def chained(stream: DataStream) -> Any:
        return running(stream).key_by("n").process(PerCount(), "n bigint, keys bigint, total bigint", uid="per count")

    found = both_ways(spark, tmp_path, chained, "keys")
    assert [row[:2] for row in found[0]] == [(1, 1), (1, 2), (1, 3), (2, 1)]


def test_streams_meet_behind_operators(spark: SparkSession, tmp_path: Path) -> None:
    """One operator reads outputs of two others, and the source beside them."""
    pair = Types.TUPLE([Types.STRING(), Types.LONG()])

    def meeting(stream: DataStream) -> Any:
        pairs = stream.map(lambda row: (row.k or "none", row.v), pair)
        keyed = pairs.key_by(lambda each: each[0], Types.STRING())
        totals, largest = keyed.sum(1).uid("totals"), keyed.max(1).uid("largest")
        met = totals.union(largest, pairs).key_by(lambda each: each[0], Types.STRING())
        return met.process(Counts(), pair).uid("met")

    found = both_ways(spark, tmp_path, meeting, "count")
    assert found[1] == sorted([("a", 10), ("a", 6), ("a", 6), ("c", 5), ("c", 5), ("c", 5)], key=repr)


def test_aggregates(spark: SparkSession, tmp_path: Path) -> None:
    """Only the columns that they read go to the state workers."""

    def aggregated(stream: DataStream) -> Any:
        return (
            stream.with_watermark("at", "1 second")
            .key_by("k")
            .aggregate(n="count", total=("v", "sum"), latest=("at", "max"), uid="aggregates")
        )

    found = both_ways(spark, tmp_path, aggregated, None)
    assert [row[:3] for row in found[1]] == [("a", 3, 10), ("c", 1, 5)]


@pytest.mark.long
def test_timers_of_event_time(spark: SparkSession, tmp_path: Path) -> None:
    def timed(stream: DataStream) -> Any:
        watched = stream.with_watermark("at", "1 second")
        return watched.key_by("k").process(SumUntilTimer(), "k string, at bigint, n bigint, domain string", uid="timed")

    assert any(both_ways(spark, tmp_path, timed, "total"))


def test_columns_and_their_types_are_the_same_for_a_vectorized_function(spark: SparkSession, tmp_path: Path) -> None:
    found = {}
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        for way in (DRIVER, TASKS):
            program = Program(spark, tmp_path / way, way)
            program.add(*BATCHES[0])
            found[way] = program.run(lambda s: s.key_by("k").process(Schemas(), "text string", uid="schemas"))
            assert program.ways() == [way]
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert found[DRIVER] == found[TASKS]
    assert "America/New_York" in found[DRIVER][0][0][0]


def test_rows_of_a_broadcast_stream_come_first_to_all_partitions(spark: SparkSession, tmp_path: Path) -> None:
    found = []
    for way in (DRIVER, TASKS):
        program = Program(spark, tmp_path / way, way)
        rules = FileStream(spark, tmp_path / way / "rules", "name string, limit long")
        for batch in BATCHES:
            program.add(*batch)
        for rule in ("low", "high", "mid"):
            rules.add(json.dumps({"name": rule, "limit": len(rule)}))

        def ruled(stream: DataStream, program: Program = program, rules: FileStream = rules) -> Any:
            broadcast = program.env.from_dataframe(rules.read()).broadcast(RULES)
            return (
                stream.key_by("k")
                .connect(broadcast)
                .process(Checked(), "what string, n long, rules string", uid="rules")
            )

        found.append(program.run(ruled))
        assert set(program.ways()) == {way}
    assert found[0] == found[1]
    assert [len(rows) for rows in found[0]] == [len(batch) + 2 for batch in BATCHES]


def stateless(stream: DataStream) -> Any:
    return stream.filter(lambda row: row.v > 1).map(lambda row: (row.k, row.v), "k string, v long")


@pytest.mark.parametrize("way", [DRIVER, TASKS])
def test_a_batch_has_the_session_of_its_query(spark: SparkSession, tmp_path: Path, way: str) -> None:
    """Views and settings of a function are not those of the program, and the program's session stays the active one."""
    seen: list[tuple[Rows, str | None]] = []

    def look(df: DataFrame, _: int) -> None:
        df.createOrReplaceTempView("rows_of_batch")
        rows = df.sparkSession.sql("SELECT count(*) FROM rows_of_batch").collect()
        seen.append(([tuple(row) for row in rows], df.sparkSession.conf.get("spark.sql.adaptive.enabled")))
        df.sparkSession.conf.set("spark.sql.shuffle.partitions", "7")

    program = Program(spark, tmp_path / way, way)
    program.add(("a", 1), ("b", 2))
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    stream = program.env.from_dataframe(program.stream.read()).key_by("k").process(Running(), RUNNING, uid="running")
    behind = stream.key_by("n").process(PerCount(), "n bigint, keys bigint, total bigint", uid="behind")
    query = behind.foreach_batch(look).query_name("job").trigger(availableNow=True).option(
        "checkpointLocation", str(tmp_path / "checkpoint")
    ).start()  # fmt: skip
    query.awaitTermination()
    assert [batch.way for batch in query.checkpoint_statistics.history()] == [way]
    assert seen == [([(2,)], "false")]
    assert not spark.catalog.tableExists("rows_of_batch")
    assert spark.conf.get("spark.sql.shuffle.partitions") == partitions
    assert SparkSession.getActiveSession() is spark


def test_a_job_without_state(spark: SparkSession, tmp_path: Path) -> None:
    found = []
    for way in (DRIVER, TASKS, COLLECTED):
        program = Program(spark, tmp_path / way, way)
        for batch in BATCHES:
            program.add(*batch)
        found.append(program.run(stateless))
        assert program.ways() == [program.way_of_batches] * 3
    assert found[0] == found[1] == found[2]
    assert found[0][0] == [("a", 3), ("b", 2), (None, 4)]


def test_a_function_finds_its_task_and_its_lines_reach_the_log(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = []
    for way in (DRIVER, TASKS):
        program = Program(spark, tmp_path / way, way)
        program.add(("a", 70), ("b", 71), ("c", 72))
        output = "k string, partition int, attempt int, batch string, ours boolean"
        found.append(program.run(lambda s, output=output: s.key_by("k").process(InTask(), output, uid="task")))
        if way == DRIVER:  # Spark's Python workers write to where the JVM does
            assert "row 71" in capfd.readouterr().err
    assert found[0] == found[1]
    assert {row[3:] for row in found[0][0]} == {("0", True)}


def test_accumulators_count_each_row_once(spark: SparkSession, tmp_path: Path) -> None:
    for way in (DRIVER, TASKS, COLLECTED):
        rows = spark.sparkContext.accumulator(0)
        program = Program(spark, tmp_path / way, way)
        for batch in BATCHES:
            program.add(*batch)
        program.run(lambda s, rows=rows: s.key_by("k").process(Running(rows), RUNNING, uid="running"))
        assert rows.value == sum(map(len, BATCHES))


@pytest.mark.parametrize("way", [DRIVER, TASKS, COLLECTED])
def test_an_error_of_the_function_is_the_users_and_the_batch_is_done_again_later(
    spark: SparkSession, tmp_path: Path, way: str
) -> None:
    program = Program(spark, tmp_path / way, way)
    program.add(("a", 1))
    program.add(("a", 12), ("b", 13))
    with pytest.raises(UserFunctionError, match="13 is unlucky") as raised:
        program.run(lambda s: s.key_by("k").process(Raises(), RUNNING, uid="running"))
    assert raised.value.context["operator"] == "running"
    assert isinstance(raised.value.__cause__, ArithmeticError)
    assert program.run(running) == [[("a", 1, 1)], [("a", 2, 13), ("b", 1, 13)]]


@pytest.mark.parametrize("way", [DRIVER, TASKS, COLLECTED])
def test_a_state_worker_that_is_killed_in_a_batch_restores_and_goes_on(
    spark: SparkSession, tmp_path: Path, way: str
) -> None:
    program = Program(spark, tmp_path / way, way)
    for batch in BATCHES:
        program.add(*batch)
    dies = DiesOnce(tmp_path / "marker", 6)
    found = program.run(lambda s: s.key_by("k").process(dies, RUNNING, uid="running"))
    assert (tmp_path / "marker").exists()
    assert found[1] == [("a", 3, 10), ("c", 1, 5)]
    assert sum(map(len, found)) == sum(map(len, BATCHES))
    assert set(program.ways()) == {program.way_of_batches}


def test_rows_that_come_to_the_driver_cost_one_spark_job(spark: SparkSession, tmp_path: Path) -> None:
    jobs, tracker = {}, spark.sparkContext.statusTracker()
    for way in (TASKS, COLLECTED):
        program = Program(spark, tmp_path / way, way)
        for batch in (*BATCHES, *BATCHES):
            program.add(*batch)
        program.run(running)
        assert program.query is not None
        jobs[way] = len(tracker.getJobIdsForGroup(str(program.query.runId)))
    assert jobs == {TASKS: 2 * 6, COLLECTED: 2 + 5}


@pytest.mark.parametrize("limit", ["of Spark", "of varvite"])
def test_a_batch_with_more_rows_than_the_driver_takes_is_executed_again_and_cached(
    spark: SparkSession, tmp_path: Path, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def count(sink: Kept, df: DataFrame, commit: SinkCommit) -> None:
        sink.batches[commit.batch] = [(df.count(),)]

    monkeypatch.setattr(Kept, "write", count)
    program = Program(spark, tmp_path / "job", COLLECTED)
    rows: list[tuple[str | None, int]] = [(f"key {number}", number) for number in range(2, 2_000)]
    for batch in (BATCHES[1], rows, BATCHES[1]):
        program.add(*batch)
    settings: Any = spark._jsc.sc().conf()
    if limit == "of Spark":
        settings.set("spark.driver.maxResultSize", "30k")
    else:
        monkeypatch.setattr(operator_executor, "ANSWER_MAX_BYTES", 30_000)
    try:
        found = program.run(running)
    finally:
        settings.remove("spark.driver.maxResultSize")
    assert found == [[(2,)], [(1_998,)], [(2,)]]
    assert program.query is not None
    assert [batch.attempts for batch in program.query.checkpoint_statistics.history()] == [1, 2, 1]
    assert program.sink.tables == 0


@pytest.mark.parametrize("build", [running, stateless])
def test_a_batch_with_too_many_rows_goes_on_by_sparks_tasks(spark: SparkSession, tmp_path: Path, build: Any) -> None:
    """The batch after it is expected to be as large."""
    program = Program(spark, tmp_path / "job", conf={"execution.small-batch.max-rows": "4"})
    for batch in (*BATCHES, [("b", 3)], [("b", 2)]):
        program.add(*batch)
    found = program.run(build)
    assert program.ways() == [DRIVER, DRIVER, TASKS, TASKS, DRIVER]
    if build is running:
        assert found[2] == sorted([("b", 2, 11), ("b", 3, 21), ("d", 1, 8), ("e", 1, 11), (None, 2, 11)], key=repr)
        assert found[3:] == [[("b", 4, 24)], [("b", 5, 26)]]
    else:
        assert [len(rows) for rows in found] == [3, 2, 5, 1, 1]


def test_a_batch_with_too_large_an_answer_is_executed_again_by_sparks_tasks(
    spark: SparkSession, tmp_path: Path
) -> None:
    program = Program(spark, tmp_path / "job", conf={"execution.small-batch.max-size": "1kb"})
    program.add(("a", 1))
    program.add(("a", 2))
    found = program.run(lambda s: s.key_by("k").process(Repeats(), RUNNING, uid="running"))
    assert found == [[("a", 1, 1)] * 1000, [("a", 2, 3)] * 1000]
    assert program.ways() == [TASKS, TASKS]
    assert program.query is not None
    assert [batch.attempts for batch in program.query.checkpoint_statistics.history()] == [2, 1]


def test_an_attempt_may_take_another_way_than_the_one_before(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt of the second batch is the driver's and is given up when it has answered."""
    attempt, refused = batch_executor.BatchExecutor._attempt_small, list[int]()

    def refusing(self: Any, rows: Any, requests: Any) -> Any:
        if requests[0].batch == 1 and requests[0].attempt:
            return None
        answered = attempt(self, rows, requests)
        if requests[0].batch == 1:
            refused.append(1)
            raise BatchRedoError("refused by the test")
        return answered

    monkeypatch.setattr(batch_executor.BatchExecutor, "_attempt_small", refusing)
    program = Program(spark, tmp_path / "job")
    for batch in BATCHES:
        program.add(*batch)
    found = program.run(running)
    assert refused == [1]
    assert program.ways() == [DRIVER, TASKS, DRIVER]
    assert found[1] == [("a", 3, 10), ("c", 1, 5)]
    assert found[2][0] == ("b", 2, 11)


def test_a_batch_of_heartbeats_alone_fires_timers_without_a_spark_job(spark: SparkSession, tmp_path: Path) -> None:
    program = Program(spark, tmp_path / "job")
    program.add(("a", 1500), ("b", 1500))
    stream = program.env.from_dataframe(program.stream.read())
    reminded = stream.key_by("k").process(RemindLater(), "k string, domain string", uid="reminder")
    writer = reminded.foreach_batch(program.sink).query_name("job")
    query = writer.option("checkpointLocation", str(program.directory / "checkpoint")).start()
    group, tracker = str(query.runId), spark.sparkContext.statusTracker()
    try:
        wait_until(lambda: len(query.checkpoint_statistics.history()) >= 1)
        jobs = set(tracker.getJobIdsForGroup(group))
        assert jobs
        wait_until(lambda: len(program.sink.rows()) == 2 and len(query.checkpoint_statistics.history()) >= 4)
        batches = query.checkpoint_statistics.history()
        assert set(tracker.getJobIdsForGroup(group)) == jobs
        assert {batch.way for batch in batches} == {DRIVER}
    finally:
        query.stop()
    assert program.sink.rows() == [("a", "PROCESSING_TIME"), ("b", "PROCESSING_TIME")]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
