"""An error in a job is reported at the line that is wrong, at the latest at `start()`, before anything happens."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  as everybody writes it

from tests.spark.conftest import FileStream
from tests.spark.functions.processors import OUTPUT, EveryMethod, counted
from varvite.spark_integration.api import writer as writer_module
from varvite.spark_integration.api.environment import StreamExecutionEnvironment
from varvite.spark_integration.api.stream import DataStream
from varvite.spark_integration.api.writer import StreamWriter
from varvite.spark_integration.connectors.heartbeats.heartbeat import HEARTBEAT_COLUMN
from varvite.spark_integration.functions.keyed import KeyedProcessFunction
from varvite.spark_integration.options.checkpoint_storage import FileSystemCheckpointStorage
from varvite.spark_integration.options.executor_share import memory_warning
from varvite.spark_integration.options.state_backends import EmbeddedRocksDBStateBackend, HashMapStateBackend
from varvite.spark_integration.plan.job import JobPlan
from varvite.storage.errors import InvalidRequestError

pytestmark = pytest.mark.spark


class Same(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield value.k, value.v


class Whole(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield tuple(value)


@pytest.fixture
def env(spark: SparkSession, tmp_path: Path) -> StreamExecutionEnvironment:
    made = StreamExecutionEnvironment.get_execution_environment(spark)
    return made.set_checkpoint_storage(tmp_path / "state")


@pytest.fixture
def stream(env: StreamExecutionEnvironment, rows_of_k: Any) -> DataStream:
    return env.from_dataframe(rows_of_k.read())


@pytest.fixture
def processed(stream: DataStream) -> DataStream:
    return stream.key_by("k").process(Same(), "k string, v long", uid="same")


@pytest.fixture
def writer(processed: DataStream, tmp_path: Path) -> StreamWriter:
    """A writer that lacks nothing."""
    made = processed.foreach_batch(lambda rows, batch: None).query_name("job")
    return made.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)


def plan_of(writer: StreamWriter, spark: SparkSession) -> JobPlan:
    """The plan that `start` makes."""
    return writer._plan(spark, dict(writer._options))[0]


def test_the_environment_takes_the_active_session(spark: SparkSession) -> None:
    assert StreamExecutionEnvironment.get_execution_environment().spark is spark


def test_getters_give_numbers_as_pyflinks_do(env: StreamExecutionEnvironment) -> None:
    """`env.get_parallelism() // 2` was a TypeError."""
    assert (env.get_parallelism(), env.get_max_parallelism(), env.get_checkpoint_interval()) == (2, -1, -1)
    env.set_parallelism(5).set_max_parallelism(64).enable_checkpointing(250)
    assert (env.get_parallelism(), env.get_max_parallelism(), env.get_checkpoint_interval()) == (5, 64, 250)


def test_a_dataframe_that_does_not_stream_is_refused(env: StreamExecutionEnvironment, spark: SparkSession) -> None:
    with pytest.raises(InvalidRequestError, match="readStream"):
        env.from_dataframe(spark.range(1))
    with pytest.raises(InvalidRequestError, match="list"):
        env.from_dataframe([1, 2])  # type: ignore[arg-type]


def test_reserved_columns_of_the_input_are_refused(env: StreamExecutionEnvironment, rows_of_k: Any) -> None:
    with pytest.raises(InvalidRequestError, match="__varvite_tag"):
        env.from_dataframe(rows_of_k.read().withColumn("__varvite_tag", F.lit(1)))


def test_a_missing_key_column_is_said_at_key_by(stream: DataStream) -> None:
    with pytest.raises(InvalidRequestError, match="did you mean 'k'"):
        stream.key_by("kk")


def test_columns_are_found_as_spark_finds_them(stream: DataStream) -> None:
    """Found as refusals of what groupBy takes: a list, and names in another case."""
    for key in (["v", "k"], ("v", "k")):
        assert stream.key_by(key)._key.columns == ("v", "k")
    assert stream.key_by("K", "V")._key.columns == ("k", "v")
    with pytest.raises(InvalidRequestError, match="column twice"):
        stream.key_by("k", "K")


def test_the_update_mode_is_taken_where_it_was_asked_for(stream: DataStream, writer: StreamWriter) -> None:
    """Found as a refusal: every Spark program with Update has it in both places."""
    for mode, taken in (("Update", True), ("update", True), ("Append", False)):
        made = stream.key_by("k").transform_with_state(EveryMethod(), OUTPUT, mode, "None", uid="op")
        end = made.foreach_batch(lambda rows, batch: None)
        if taken:
            assert end.output_mode("update").outputMode("Append") is end
        else:
            with pytest.raises(InvalidRequestError, match="output mode"):
                end.output_mode("update")
    with pytest.raises(InvalidRequestError, match="output mode"):
        writer.output_mode("update")


def test_keywords_are_taken_in_both_spellings(stream: DataStream) -> None:
    keyed = stream.key_by("k")
    spark_spelling: Any = {"statefulProcessor": EveryMethod(), "outputStructType": OUTPUT, "outputMode": "Update",
                           "timeMode": "ProcessingTime", "initialState": None, "eventTimeColumnName": ""}  # fmt: skip
    for method in (keyed.transform_with_state, keyed.transform_with_state_in_pandas):
        assert method(**spark_spelling, uid=method.__name__)._transformation.is_update  # type: ignore[attr-defined]
    of_function: Any = {"func": counted, "outputStructType": OUTPUT, "stateStructType": "n bigint",
                        "outputMode": "append", "timeoutConf": "NoTimeout"}  # fmt: skip
    assert not keyed.apply_in_pandas_with_state(**of_function, uid="f")._transformation.is_update  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="outputMode and output_mode"):
        keyed.transform_with_state(**spark_spelling, output_mode="Append")
    with pytest.raises(TypeError, match="statefulProcesor"):
        keyed.transform_with_state(statefulProcesor=1)  # type: ignore[call-arg]


def test_the_checkpoint_location_and_the_format_are_taken_as_spark_takes_them(
    processed: DataStream, spark: SparkSession, tmp_path: Path
) -> None:
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "root") + "/")
    try:
        writer = processed.format("PARQUET").query_name("job")
        assert plan_of(writer, spark).checkpoint_location == str(tmp_path / "root" / "job")
        own = writer.option("checkpointLocation", str(tmp_path / "own"))
        assert plan_of(own, spark).checkpoint_location == str(tmp_path / "own")
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")


def test_a_processor_that_cannot_be_pickled_is_named(stream: DataStream) -> None:
    processor = EveryMethod()
    processor.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(InvalidRequestError, match=r"EveryMethod cannot be sent.*init\(\)"):
        stream.key_by("k").transform_with_state(processor, OUTPUT, uid="op")


def test_a_key_that_cannot_be_one_is_said_at_key_by(env: StreamExecutionEnvironment, rows_of_k: Any) -> None:
    frame = rows_of_k.read().withColumn("d", F.col("v").cast("double")).withColumn("m", F.create_map("k", "v"))
    for column in ("d", "m"):
        with pytest.raises(InvalidRequestError, match="cannot be a key"):
            env.from_dataframe(frame).key_by(column)


@pytest.mark.parametrize("schema", ["k strng", "a int,", "bigint", ""])
def test_a_bad_output_schema_is_said_at_process(stream: DataStream, schema: str) -> None:
    with pytest.raises(InvalidRequestError, match="output schema"):
        stream.key_by("k").process(Same(), schema, uid="same")


def test_a_uid_is_required_and_unique(stream: DataStream, processed: DataStream) -> None:
    with pytest.raises(InvalidRequestError, match="uid"):
        stream.key_by("k").process(Same(), "k string, v long")
    with pytest.raises(InvalidRequestError, match="'same'"):
        processed.key_by("v").process(Same(), "k string, v long", uid="same")


def test_operators_follow_one_another_on_the_schema_of_the_one_before(
    processed: DataStream, spark: SparkSession, tmp_path: Path
) -> None:
    second = processed.key_by("v", "k").process(Same(), "x double", uid="second", name="Second")
    writer = second.foreach_batch(lambda rows, batch: None).query_name("job")
    plan = plan_of(writer.option("checkpointLocation", str(tmp_path / "c")), spark)
    assert [(o.uid, o.name, o.key_columns) for o in plan.operators] == [
        ("same", "same", ("k",)),
        ("second", "Second", ("v", "k")),
    ]
    assert plan.output_schema.names == ["x"]
    assert len(list(processed._transformation.lineage())) == 2, "the stream before is what it was"


def test_a_plan_has_everything_that_a_run_needs(writer: StreamWriter, spark: SparkSession, tmp_path: Path) -> None:
    plan = plan_of(writer.option("parallelism.default", "3"), spark)
    assert (plan.job, plan.parallelism, plan.watermark_delay_ms) == ("job", 3, None)
    assert plan.checkpoint_location == str(tmp_path / "checkpoint")
    assert plan.config.storage_url == str(tmp_path / "state")
    assert plan.materializer_config.job == "job"
    assert isinstance(cloudpickle.loads(plan.operators[0].function.function), Same)


def test_parallelism_comes_from_spark_unless_it_is_set(writer: StreamWriter, spark: SparkSession) -> None:
    assert plan_of(writer, spark).parallelism == 2
    writer._environment.set_parallelism(5)
    assert plan_of(writer, spark).parallelism == 5


def test_event_time_is_the_column_with_a_watermark(
    env: StreamExecutionEnvironment, rows_of_k: Any, spark: SparkSession, tmp_path: Path
) -> None:
    frame = rows_of_k.read().withColumn("ts", F.timestamp_seconds("v")).withWatermark("ts", "10 minutes")
    first = env.from_dataframe(frame).key_by("k").process(Same(), "k string, ts timestamp", uid="one")
    second = first.key_by("k").process(Same(), "k string, v long", uid="two")
    writer = second.foreach_batch(lambda rows, batch: None).query_name("job")
    plan = plan_of(writer.option("checkpointLocation", str(tmp_path / "c")), spark)
    assert (plan.watermark_delay_ms, plan.has_watermark, plan.is_spark_watermark) == (600_000, True, True)
    assert [o.timestamp_column for o in plan.operators] == ["ts", "ts"]


def test_a_watermark_is_named_once_and_on_the_input(
    env: StreamExecutionEnvironment, rows_of_k: Any, spark: SparkSession, tmp_path: Path
) -> None:
    stream = env.from_dataframe(rows_of_k.read().withColumn("ts", F.timestamp_seconds("v")))
    named = stream.with_watermark("ts", "5 s")
    processed = named.key_by("k").process(Same(), "k string, ts timestamp", uid="one")
    writer = processed.foreach_batch(lambda rows, batch: None).query_name("job")
    plan = plan_of(writer.option("checkpointLocation", str(tmp_path / "c")), spark)
    assert (plan.watermark_delay_ms, plan.operators[0].timestamp_column) == (5_000, "ts")
    assert (plan.has_watermark, plan.is_spark_watermark) == (True, False)
    for wrong in (named, processed):
        with pytest.raises(InvalidRequestError, match="with_watermark"):
            wrong.with_watermark("ts", "5 s")
    writer = stream.key_by("k").process(Same(), "k string", uid="two").foreach_batch(lambda rows, batch: None)
    unnamed = plan_of(writer.query_name("other").option("checkpointLocation", str(tmp_path / "d")), spark)
    assert (unnamed.watermark_delay_ms, unnamed.operators[0].timestamp_column) == (None, None)
    assert not unnamed.has_watermark


def test_heartbeats_come_with_the_option(writer: StreamWriter, spark: SparkSession) -> None:
    plan = plan_of(writer, spark)
    assert not plan.heartbeat
    assert plan.input.columns == ["k", "v"]
    plan = plan_of(writer.option("pipeline.heartbeat.enabled", "true"), spark)
    assert plan.heartbeat
    assert plan.input.columns == ["k", "v", HEARTBEAT_COLUMN]


def test_code_beats_query_option_beats_session(
    writer: StreamWriter, spark: SparkSession, env: StreamExecutionEnvironment
) -> None:
    spark.conf.set("spark.varvite.state.changelog.enabled", "true")
    spark.conf.set("spark.varvite.state.backend.type", "rocksdb")
    try:
        assert plan_of(writer, spark).config.changelog_enabled
        assert plan_of(writer, spark).config.backend_type == "rocksdb"
        writer.option("state.changelog.enabled", "false")
        assert not plan_of(writer, spark).config.changelog_enabled
        env.enable_changelog_state_backend(True).set_state_backend(HashMapStateBackend())
        assert plan_of(writer, spark).config.changelog_enabled
        assert plan_of(writer, spark).config.backend_type == "hashmap"
    finally:
        spark.conf.unset("spark.varvite.state.changelog.enabled")
        spark.conf.unset("spark.varvite.state.backend.type")


def test_a_misspelt_key_in_the_session_stops_the_start(writer: StreamWriter, spark: SparkSession) -> None:
    spark.conf.set("spark.varvite.state.changelog.enable", "true")
    try:
        with pytest.raises(InvalidRequestError, match=r"did you mean spark\.varvite\.state\.changelog\.enabled"):
            writer.start()
    finally:
        spark.conf.unset("spark.varvite.state.changelog.enable")


def test_the_environment_keeps_what_code_says(env: StreamExecutionEnvironment) -> None:
    assert env.is_changelog_state_backend_enabled() is None
    assert env.enable_changelog_state_backend(False).is_changelog_state_backend_enabled() is False
    assert env.configure("state.changelog.enabled", None).is_changelog_state_backend_enabled() is None
    backend = EmbeddedRocksDBStateBackend()
    assert env.get_state_backend() is None
    assert env.set_state_backend(backend).get_state_backend() is backend
    env.get_checkpoint_config().set_checkpoint_storage(FileSystemCheckpointStorage("s3://bucket/dir"))
    assert env.get_checkpoint_config().get_checkpoint_storage() == FileSystemCheckpointStorage("s3://bucket/dir")
    values = env.configure({"spark.varvite.parallelism.default": "4", "state.backend": "hashmap"}).code_level().values
    assert (values["parallelism.default"], values["state.backend.type"]) == (4, "hashmap")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda env: env.configure("state.changelog.enabeld", True),
        lambda env: env.configure("state.backend.type", "memory"),
        lambda env: env.set_parallelism(0),
        lambda env: env.set_max_parallelism(1 << 20),
        lambda env: env.set_state_backend("rocksdb"),
    ],
    ids=["key", "value", "parallelism", "max-parallelism", "backend"],
)
def test_a_wrong_setting_is_said_at_its_line(env: StreamExecutionEnvironment, wrong: Callable[[Any], Any]) -> None:
    with pytest.raises(InvalidRequestError):
        wrong(env)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda writer: writer.option("state.changelog.enabeld", "true"),
        lambda writer: writer.option("stat.changelog.enabled", "true"),
        lambda writer: writer.output_mode("complete"),
        lambda writer: writer.trigger(continuous="1 second"),
        lambda writer: writer.trigger(processingTime="1 second", availableNow=True),
        lambda writer: writer.trigger(),
        lambda writer: writer.query_name("a/b"),
        lambda writer: writer.format("parket"),
        lambda writer: writer.foreach_batch("print"),
    ],
    ids=["option", "slip", "mode", "continuous", "two-triggers", "no-trigger", "name", "format", "function"],
)
def test_a_wrong_call_of_the_writer_is_said_at_its_line(writer: StreamWriter, wrong: Callable[[Any], Any]) -> None:
    with pytest.raises(InvalidRequestError):
        wrong(writer)


def test_what_is_missing_is_said_at_start(processed: DataStream, tmp_path: Path) -> None:
    location = str(tmp_path / "c")
    nothing = lambda rows, batch: None  # noqa: E731
    missing = {
        r"query_name\(": processed.foreach_batch(nothing).option("checkpointLocation", location),
        "set option": processed.foreach_batch(nothing).query_name("job"),
        "chekpointLocation": processed.foreach_batch(nothing).query_name("job").option("chekpointLocation", location),
        "no meaning": processed.foreach_batch(nothing)
        .query_name("job")
        .option("checkpointLocation", location)
        .option("header", True),
        "needs a directory": processed.format("csv").query_name("job").option("checkpointLocation", location),
        "where the rows go": processed.write_stream.query_name("job").option("checkpointLocation", location),
    }
    for message, writer in missing.items():
        with pytest.raises(InvalidRequestError, match=message):
            writer.start()
    assert not (tmp_path / "state").exists()
    assert not (tmp_path / "c").exists()


def test_the_storage_must_be_set(processed: DataStream, spark: SparkSession, rows_of_k: Any, tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(spark)
    stream = env.from_dataframe(rows_of_k.read()).key_by("k").process(Same(), "k string, v long", uid="same")
    writer = stream.foreach_batch(lambda rows, batch: None).query_name("job")
    with pytest.raises(InvalidRequestError, match=r"execution\.checkpointing\.dir"):
        writer.option("checkpointLocation", str(tmp_path / "c")).start()


def test_an_operator_cannot_have_more_partitions_than_key_groups(
    env: StreamExecutionEnvironment, processed: DataStream, tmp_path: Path
) -> None:
    env.set_max_parallelism(4)
    writer = processed.set_parallelism(5).foreach_batch(lambda rows, batch: None).query_name("job")
    with pytest.raises(InvalidRequestError, match="only 4 key groups"):
        writer.option("checkpointLocation", str(tmp_path / "c")).start()
    assert not (tmp_path / "state").exists()


def test_an_output_column_named_like_the_partition_column_is_refused(stream: DataStream, tmp_path: Path) -> None:
    made = stream.key_by("k").process(Same(), "k string, Batch_Id long", uid="same").format("parquet")
    with pytest.raises(InvalidRequestError, match="batch_id"):
        made.query_name("job").option("checkpointLocation", str(tmp_path / "c")).start(str(tmp_path / "out"))


def test_a_name_that_is_running_is_refused_before_the_running_query_is_fenced(
    writer: StreamWriter, rows_of_k: Any, tmp_path: Path
) -> None:
    running = rows_of_k.read().writeStream.foreachBatch(lambda rows, batch: None).queryName("job")
    query = running.option("checkpointLocation", str(tmp_path / "other")).start()
    try:
        with pytest.raises(InvalidRequestError, match="is running"):
            writer.start()
    finally:
        query.stop()
    assert not (tmp_path / "state").exists()


def test_a_trigger_that_spark_refuses_takes_no_chain_over(writer: StreamWriter, tmp_path: Path) -> None:
    """It fenced off whichever run of the job was going on elsewhere."""
    with pytest.raises(Exception, match="bananas"):
        writer.trigger(processingTime="5 bananas").start()
    assert (tmp_path / "state" / "job" / "job.json").exists()
    assert not (tmp_path / "state" / "job" / "chain").exists()


def test_a_limit_of_pythons_memory_is_said_at_the_start(
    writer: StreamWriter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"spark.executor.pyspark.memory": "2g"}  # it is fixed when the application starts
    monkeypatch.setattr(writer_module, "memory_warning", lambda _: memory_warning(given.get))
    writer.start().awaitTermination()
    assert "spark.executor.pyspark.memory=2g limits the address space" in caplog.text


@pytest.mark.parametrize("is_mapped", [False, True])
def test_columns_may_have_dots_and_backticks_in_their_names(
    spark: SparkSession, env: StreamExecutionEnvironment, tmp_path: Path, *, is_mapped: bool
) -> None:
    """The first batch failed with an error of PySpark's about a column that nobody had asked for."""
    rows = FileStream(spark, tmp_path / "dotted", "`k.a` string, `v``b` long")
    rows.add('{"k.a": "x", "v`b": 7}')
    env.configure("materializer.mode", "off").set_parallelism(1)
    stream = env.from_dataframe(rows.read())
    keyed = stream.map(lambda row: row).key_by(lambda row: row["k.a"]) if is_mapped else stream.key_by("k.a")
    first = keyed.process(Whole(), "`k.c` string, `v.d` long", uid="first")
    second = first.key_by("k.c").process(Whole(), "`k.e` string, `v.f` long", uid="second")
    found: list[Any] = []
    writer = second.foreach_batch(lambda df, _: found.extend(df.collect())).query_name("job")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert [row.asDict() for row in found] == [{"k.e": "x", "v.f": 7}]
