"""Programs in PyFlink's style, with the whole path under them: steps before and after keys, state, restarts, errors."""

from __future__ import annotations

import ast
import datetime as dt
import logging
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.functions.stream import (
    Count,
    FirstOfKey,
    KeyAndTime,
    Placed,
    Second,
    Tagged,
    Times,
    Unlucky,
    UnluckyWhile,
)
from tests.workers.state_worker_setup import eventually
from varvite.common import Duration, Row, Types, WatermarkStrategy
from varvite.datastream import DataStream, StreamExecutionEnvironment
from varvite.spark_integration.api.query import VarviteStreamingQuery
from varvite.storage.errors import UserFunctionError

pytestmark = pytest.mark.spark
NO_WATERMARK = -(1 << 63)


@pytest.fixture
def env(spark: SparkSession) -> StreamExecutionEnvironment:
    """No storage, no parallelism: what a program has that sets nothing (the session sets 2 partitions)."""
    return StreamExecutionEnvironment.get_execution_environment(spark)


@pytest.fixture
def kept(spark: SparkSession, tmp_path: Path) -> Callable[[], StreamExecutionEnvironment]:
    """Environments of one job with storage that stays: each is a new start of the program."""

    def start() -> StreamExecutionEnvironment:
        env = StreamExecutionEnvironment.get_execution_environment(spark)
        env.set_checkpoint_storage(tmp_path / "state").configure("materializer.mode", "off")
        return env.set_parallelism(1)

    return start


def collected(stream: DataStream, name: str = "job") -> list[Any]:
    with stream.execute_and_collect(name) as elements:
        return list(elements)


def test_print_shows_the_partition_and_execute_leaves_nothing_behind(
    env: StreamExecutionEnvironment, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "varvite.spark_integration.api.job_execution")
    stream = env.from_collection([1, 2, 3, 1, 2, 1]).map(lambda x: (x, 1)).key_by(lambda x: x[0]).map(Count())
    stream.print()
    stream.map(lambda pair: pair[1]).filter(lambda count: count > 9)  # not printed: not executed
    result = env.execute("printed")
    assert (result.job_name, result.get_net_runtime() >= 0) == ("printed", True)
    lines = capsys.readouterr().out.splitlines()
    expected = [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (3, 1)]
    assert sorted(line.split("> ")[1] for line in lines) == [f"(({x}, 1), {n})" for x, n in expected]
    assert {line.split("> ")[0] for line in lines} <= {"1", "2"}
    (used,) = [record.args[1] for record in caplog.records if isinstance(record.args, tuple)]
    assert not Path(str(used)).exists(), "the temporary state goes with the job"


def test_steps_before_between_and_after_stateful_operators(env: StreamExecutionEnvironment) -> None:
    env.set_parallelism(1)
    stream = (
        env.from_collection(["b a", "a", "", "c a b"])
        .flat_map(str.split)
        .key_by(lambda word: word)
        .map(Count())
        .name("counting")
        .filter(lambda pair: pair[1] < 3)
        .map(Tagged("late"), output_type=Types.STRING())
        .name("tagging")
        .key_by(lambda text: text[2], Types.STRING())
        .filter(FirstOfKey())
        .set_parallelism(2)
        .map(lambda text: Row(text=text, n=len(text)), Types.ROW_NAMED(["text", "n"], [Types.STRING(), Types.LONG()]))
        .key_by("n")
        .flat_map(Times())
    )
    found = collected(stream)
    assert {row.text for row in found} == {f"('{word}', 1) late of tagging" for word in "abc"}
    assert sorted(Counter(found).values()) == [1, 2, 3], "one key: the first row comes once, the next one twice"


def test_a_program_without_state_runs_and_its_errors_are_its_own(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_collection([3, 1, 13, 2], Types.LONG())
    assert collected(numbers.map(lambda x: x * 2).filter(lambda x: x > 2)) == [6, 26, 4]
    assert numbers.execute_and_collect(limit=2) == [3, 1]
    with pytest.raises(
        UserFunctionError, match="ArithmeticError: 13 is unlucky in step careful, at element 13"
    ) as error:
        collected(numbers.map(Unlucky()).name("careful"))
    assert isinstance(error.value.__cause__, ArithmeticError)
    assert error.value.context["job"] == "job"


@pytest.mark.long
@pytest.mark.parametrize("small", [True, False], ids=["driver", "tasks"])
def test_functions_run_in_the_partition_that_a_partitioner_chooses(
    env: StreamExecutionEnvironment, capsys: pytest.CaptureFixture[str], small: bool
) -> None:
    """Of two streams before the first operator, and behind one."""
    env.configure("execution.small-batch.max-rows", 1_000 if small else 0)
    numbers = [0, 0, 1, 1, 2, 7, 7, 8, 8, 9]
    stream = env.from_collection(numbers, Types.LONG())
    parted = stream.union(stream).partition_custom(lambda key, parts: (key + 1) % parts, lambda x: x + 2)
    counted = parted.map(Placed()).set_parallelism(3).key_by(lambda pair: pair[1]).map(Count())
    back = counted.partition_custom(lambda key, parts: parts - 1 - key, lambda pair: pair[0][1])
    back.map(Placed()).set_parallelism(3).print("placed")
    env.execute("placed")
    places = Counter((x, x % 3) for x in numbers * 2)
    lines = [line.partition("> ") for line in capsys.readouterr().out.splitlines()]
    found = [(partition, ast.literal_eval(element)) for partition, _, element in lines]
    assert Counter(pair for _, ((pair, _), _) in found) == places
    for partition, ((pair, _), place) in found:
        assert (place, partition) == (2 - pair[1], f"placed:{place + 1}")


@pytest.mark.long
@pytest.mark.spark_tasks
def test_an_error_in_rows_without_state_that_are_made_anew_is_not_lost(
    env: StreamExecutionEnvironment, rows_of_k: Any, tmp_path: Path
) -> None:
    unlucky, lost, written = tmp_path / "unlucky", list[int](), list[Any]()

    def losing(rows: DataFrame, batch: int) -> None:
        if batch == 1 and not lost:
            lost.append(batch)
            unlucky.touch()
            rows.sparkSession.catalog.clearCache()
        written.append((batch, sorted(tuple(row) for row in rows.collect())))

    def run() -> None:
        env.set_checkpoint_storage(tmp_path / "state")
        stream = env.from_dataframe(rows_of_k.read()).map(UnluckyWhile(unlucky))
        writer = stream.foreach_batch(losing).query_name("lost").trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "spark")).start().awaitTermination()

    with pytest.raises(Exception, match=r"cached rows were lost.* is unlucky now in step"):
        run()
    unlucky.unlink()
    run()
    assert [batch for batch, _ in written] == [0, 1, 2]
    assert all(rows for _, rows in written)


@pytest.mark.parametrize("where", ["before", "key", "inside", "after"])
def test_an_error_says_where_it_was_raised(env: StreamExecutionEnvironment, where: str) -> None:
    numbers = env.from_collection([1, 13, 2], Types.LONG())
    at = "at element 13"
    program = {
        "before": lambda: numbers.map(Unlucky()).key_by(lambda x: x).map(Count()),
        "key": lambda: numbers.key_by(lambda x: x if x != 13 else [x]).map(Count()),
        "inside": lambda: numbers.key_by(lambda x: x).map(Unlucky()).uid("unlucky"),
        "after": lambda: numbers.key_by(lambda x: x).map(Count()).map(lambda p: p[0]).map(Unlucky()),
    }[where]
    expected = {"before": f"in step map, {at}", "key": f"key_by, {at}.*", "inside": "at key 13", "after": at}
    with pytest.raises(UserFunctionError, match=expected[where]) as error:
        collected(program())
    if where == "inside":
        assert error.value.context["operator"] == "unlucky"
    if where == "key":
        assert "pass key_type" in str(error.value)


def test_keys_are_what_the_function_gave(env: StreamExecutionEnvironment) -> None:
    given = [1, 1.0, True, "1", None, b"1", (1, None), dt.date(2013, 1, 1)]
    found = collected(env.from_collection([*given, *given]).key_by(lambda x: x).map(Count()))
    assert sorted(count for _, count in found) == [1] * 8 + [2] * 8
    keys = collected(env.from_collection(given).key_by(lambda x: x).process(KeyAndTime()))
    assert sorted((repr(key), kind) for key, kind, _, _ in keys) == sorted((repr(k), type(k).__name__) for k in given)


def test_time_stamps_reach_the_function_and_each_collection_begins_without_a_watermark(
    kept: Callable[[], StreamExecutionEnvironment],
) -> None:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(4)).with_timestamp_assigner(Second())

    def run(*pairs: tuple[str, int]) -> list[Any]:
        stream = kept().from_collection(pairs).assign_timestamps_and_watermarks(strategy).map(lambda pair: pair[0])
        return collected(stream.key_by(str).process(KeyAndTime()))

    assert run(("a", 100), ("b", 50)) == [("a", "str", 100, NO_WATERMARK), ("b", "str", 50, NO_WATERMARK)]
    assert run(("c", 70)) == [("c", "str", 70, NO_WATERMARK)], "the state goes on; each collection has its own time"


def test_a_restart_keeps_the_state_under_generated_uids(
    kept: Callable[[], StreamExecutionEnvironment], tmp_path: Path
) -> None:
    first = kept().from_collection(["a", "b", "a"]).key_by(lambda x: x).map(Count())
    assert collected(first, "words") == [("a", 1), ("b", 1), ("a", 2)]
    again = kept().from_collection(["a", "b", "a"]).map(str.upper).map(str.lower).key_by(lambda x: x).map(Count())
    assert collected(again, "words") == [("a", 3), ("b", 2), ("a", 4)], "stateless steps came, the state stayed"
    assert not list((tmp_path / "state" / "_spark" / "words" / "collection").iterdir()), "what was read is gone"


def test_a_failed_run_goes_on_with_its_collection(kept: Callable[[], StreamExecutionEnvironment]) -> None:
    """The batch that failed is executed again, with the function that is right now, and nothing comes twice."""
    numbers = [1, 13, 1]
    with pytest.raises(UserFunctionError):
        collected(kept().from_collection(numbers).key_by(lambda x: x).map(Unlucky()), "resumed")
    assert collected(kept().from_collection(numbers).key_by(lambda x: x).map(Count()), "resumed") == [
        (1, 1), (13, 1), (1, 2),
    ]  # fmt: skip


STOPPED = """
import contextlib, faulthandler
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tests.spark.functions.stream import Count
from varvite.datastream import StreamExecutionEnvironment
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
env = StreamExecutionEnvironment.get_execution_environment(spark).set_parallelism(1)
rows = env.from_dataframe(spark.readStream.format("rate").load())
elements = rows.map(lambda row: "all").key_by(lambda x: x).map(Count()).execute_and_collect("counted")
assert next(elements) == ("all", 1)
faulthandler.dump_traceback_later(60, exit=True)
spark.stop()
with contextlib.suppress(StreamingQueryException):
    list(elements)
"""


@pytest.mark.long
def test_whoever_reads_elements_does_not_wait_after_the_end_of_spark(tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(__file__).parents[3]), *(p for p in sys.path if p)])
    environment = {**os.environ, "PYTHONPATH": path, "SPARK_LOCAL_DIRS": str(tmp_path)}
    environment["PYSPARK_PYTHON"] = sys.executable
    done = subprocess.run(
        [sys.executable, "-c", STOPPED], env=environment, timeout=300, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_collection_stays_if_sparks_own_handle_stops_the_query_inside_its_batch(
    kept: Callable[[], StreamExecutionEnvironment], spark: SparkSession, tmp_path: Path
) -> None:
    """Spark calls that an orderly end; it executes the batch again at the next start.

    By Spark's tasks: a batch in the driver may end in spite of the interrupt.
    """
    entered, stopped = threading.Event(), threading.Event()
    received: list[tuple[Any, ...]] = []

    def start(sink: Callable[[DataFrame, int], None]) -> VarviteStreamingQuery:
        keyed = kept().from_collection(["a", "b", "a"]).key_by(lambda x: x)
        counted = keyed.map(Count(), Types.TUPLE([Types.STRING(), Types.LONG()]))
        writer = counted.foreach_batch(sink).query_name("interrupted").option("execution.small-batch.max-rows", 0)
        return writer.option("checkpointLocation", str(tmp_path / "spark")).start()

    def slow(rows: DataFrame, batch: int) -> None:
        entered.set()
        stopped.wait(100)

    query = start(slow)
    assert entered.wait(100)
    (handle,) = spark.streams.active
    stopping = threading.Thread(target=handle.stop)
    stopping.start()
    assert eventually(handle._jsq.streamingQuery().queryExecutionThread().isInterrupted, 60)
    stopped.set()
    query.awaitTermination()
    stopping.join(60)
    assert not list((tmp_path / "spark" / "commits").glob("[0-9]*")), "the batch has ended, so this shows nothing"
    assert list((tmp_path / "spark" / "collection").glob("*.parquet"))
    start(lambda rows, batch: received.extend(tuple(row) for row in rows.collect())).awaitTermination()
    assert sorted(received) == [("a", 1), ("a", 2), ("b", 1)]
    assert not list((tmp_path / "spark" / "collection").glob("*.parquet"))


def test_elements_are_columns_for_a_writer(
    env: StreamExecutionEnvironment, rows_of_k: Any, tmp_path: Path, spark: SparkSession
) -> None:
    """Rows in, a computed key, typed elements out, and Spark's own file format behind."""
    written: list[Any] = []
    kinds = Types.ROW_NAMED(["odd", "keys", "sums"], [
        Types.BOOLEAN(), Types.LIST(Types.STRING()), Types.MAP(Types.STRING(), Types.LONG())])  # fmt: skip
    stream = (
        env.from_dataframe(rows_of_k.read())
        .key_by(lambda row: row.v % 2 == 1, key_type=Types.BOOLEAN())
        .reduce(lambda a, b: (a.k + b.k, a.v + b.v))
        .map(lambda row: (row.v % 2 == 1, list(row.k), {row.k: row.v}), kinds)
    )

    def keep(rows: DataFrame, batch: int) -> None:
        written.extend((batch, *row) for row in rows.collect())

    env.set_checkpoint_storage(tmp_path / "state")
    writer = stream.foreach_batch(keep).query_name("columns").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "spark")).start()
    query.awaitTermination()
    assert stream.schema.simpleString() == "struct<odd:boolean,keys:array<string>,sums:map<string,bigint>>"
    assert sorted(written) == [
        (0, False, ["b"], {"b": 2}),
        (0, True, ["a"], {"a": 1}),
        (1, False, ["a", "a"], {"aa": 4}),
        (2, False, ["b", "c"], {"bc": 6}),
    ]
