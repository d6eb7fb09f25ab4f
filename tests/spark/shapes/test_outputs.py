"""Outputs of PyFlink's programs: several streams of one execute, and side outputs without keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.functions.shapes import collected
from varvite.common import JobClient, JobStatus, Types
from varvite.datastream import (
    OutputTag,
    ProcessFunction,
    StreamExecutionEnvironment,
)
from varvite.spark_integration.api.query import VarviteStreamingQuery
from varvite.spark_integration.connectors.sink import ForeachBatchSink
from varvite.storage.errors import InvalidRequestError, UserFunctionError

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("kind", [None, Types.LONG(), Types.ROW_NAMED(["a"], [Types.STRING()])], ids=str)
def test_a_collection_without_elements_is_a_stream_that_ends(env: StreamExecutionEnvironment, kind: Any) -> None:
    empty = env.from_collection([], kind)
    assert collected(empty.map(str), "empty") == []
    assert collected(empty.key_by(lambda value: 0, Types.LONG()).map(str), "keyed") == []
    if kind == Types.LONG():
        assert collected(empty.union(env.from_collection([1], kind)), "united") == [1]


SMALL = OutputTag("small", Types.LONG())
NAMED = OutputTag("named")


class Divided(ProcessFunction[Any, Any]):
    """Large numbers, and small ones and names in side outputs."""

    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Any:
        assert ctx.timer_service().current_processing_time() > 0
        yield NAMED, f"n{value}"
        if value < 10:
            yield SMALL, value
        else:
            yield value


class Timing(ProcessFunction[Any, Any]):
    """Sets a timer, which needs a key."""

    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Any:
        ctx.timer_service().register_event_time_timer(value)
        yield value


def test_functions_without_keys_have_side_outputs(env: StreamExecutionEnvironment) -> None:
    divided = env.from_collection([1, 20, 3, 40], Types.LONG()).process(Divided(), Types.LONG()).name("divide")
    small = divided.get_side_output(SMALL)
    assert collected(divided, "main") == [20, 40]
    assert collected(small.map(lambda x: x + 1), "side") == [2, 4]
    assert collected(divided.get_side_output(NAMED), "names") == ["n1", "n20", "n3", "n40"]
    assert collected(small.key_by(lambda x: 0, Types.LONG()).sum(), "keyed") == [1, 4]
    assert sorted(collected(small.union(divided), "united")) == [1, 3, 20, 40]
    behind = env.from_collection([1, 20], Types.LONG()).key_by(lambda x: 0, Types.LONG()).map(lambda x: x, Types.LONG())
    assert collected(behind.process(Divided()).get_side_output(SMALL), "behind a key") == [1]


def test_timers_of_functions_without_keys_are_errors_that_say_what_to_do(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(UserFunctionError, match="KeyedProcessFunction"):
        collected(env.from_collection([1], Types.LONG()).process(Timing()), "timing")


def test_several_streams_are_written_by_one_execute(
    env: StreamExecutionEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = env.from_collection([1, 2, 3], Types.LONG())
    numbers.print("in")
    sums = numbers.key_by(lambda x: 0, Types.LONG()).sum()
    sums.print("sum")
    sums.map(lambda x: -x, Types.LONG()).print("minus")
    numbers.process(Divided(), Types.LONG()).get_side_output(NAMED).print("named")
    result = env.execute("several")
    lines = capsys.readouterr().out.splitlines()
    by_stream = {name: [line for line in lines if line.startswith(name)] for name in ("in", "sum", "minus", "named")}
    assert by_stream == {
        "in": ["in> 1", "in> 2", "in> 3"], "sum": ["sum> 1", "sum> 3", "sum> 6"],
        "minus": ["minus> -1", "minus> -3", "minus> -6"], "named": ["named> n1", "named> n2", "named> n3"],
    }  # fmt: skip
    assert str(result.get_job_id())
    assert result.job_name == "several"


def test_one_of_several_streams_that_fails_ends_the_others(
    env: StreamExecutionEnvironment, spark: SparkSession
) -> None:
    rates = env.from_dataframe(spark.readStream.format("rate").load()).map(lambda row: 0, Types.LONG())
    rates.key_by(lambda x: x, Types.LONG()).sum().sink_to(ForeachBatchSink(lambda rows, batch: None))
    env.from_collection([0], Types.LONG()).map(lambda x: 1 / x).print()
    client = env.execute_async("fails")
    assert client.get_job_status().result() is JobStatus.RUNNING
    with pytest.raises(UserFunctionError, match="division by zero"):
        client.awaitTermination()
    assert not client.isActive
    assert client.get_job_status().result() is JobStatus.FAILED
    assert isinstance(client.get_job_execution_result().exception(), UserFunctionError)


def test_a_query_is_a_job_client(env: StreamExecutionEnvironment, spark: SparkSession) -> None:
    rates = env.from_dataframe(spark.readStream.format("rate").load()).map(lambda row: 0, Types.LONG())
    rates.key_by(lambda x: x, Types.LONG()).sum().sink_to(ForeachBatchSink(lambda rows, batch: None))
    client = env.execute_async("client")
    assert isinstance(client, JobClient)
    assert not client.get_job_execution_result().done()
    with pytest.raises(InvalidRequestError, match="varvite savepoint create"):
        client.trigger_savepoint()
    client.cancel().result()
    assert client.get_job_status().result() is JobStatus.CANCELED
    assert client.get_job_execution_result().result().get_job_id() == client.get_job_id()


def test_streams_of_one_last_operator_are_one_query_and_its_state_is_kept_once(
    env: StreamExecutionEnvironment, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    env.set_checkpoint_storage(str(tmp_path))
    for numbers in ([1, 2, 3], [4]):
        sums = env.from_collection(numbers, Types.LONG()).key_by(lambda x: 0, Types.LONG()).sum()
        sums.print("sum")
        sums.map(lambda x: -x, Types.LONG()).print("minus")
        sums.filter(lambda x: x > 3).map(str).print("large")
        sums.process(Divided(), Types.LONG()).get_side_output(SMALL).print("small")
        client = env.execute_async("sums")
        assert isinstance(client, VarviteStreamingQuery)
        client.awaitTermination()
    assert capsys.readouterr().out.splitlines() == [
        *("sum> 1", "sum> 3", "sum> 6", "minus> -1", "minus> -3", "minus> -6", "large> 6"),
        *("small> 1", "small> 3", "small> 6", "sum> 10", "minus> -10", "large> 10"),
    ]
    assert [path.name for path in tmp_path.iterdir() if path.name[0] not in "._"] == ["sums"]


def test_streams_of_the_same_sources_without_operators_are_one_query(
    env: StreamExecutionEnvironment, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    env.set_checkpoint_storage(str(tmp_path)).set_parallelism(1)
    rows: dict[str, list[Any]] = {"halves": [], "twice": []}

    def kept(name: str) -> ForeachBatchSink:
        return ForeachBatchSink(lambda df, batch: rows[name].extend(tuple(row) for row in df.collect()))

    for numbers in ([1, 2, 3], [4]):
        source = env.from_collection(numbers, Types.LONG())
        divided = source.process(Divided(), Types.LONG())
        divided.get_side_output(SMALL).print("small")
        source.map(lambda x: (x / 2, str(x)), "half double, text string").sink_to(kept("halves"))
        united = source.union(source.map(lambda x: -x, Types.LONG()))
        united.print("united")
        united.sink_to(kept("twice"))
        client = env.execute_async("branches")
        assert isinstance(client, VarviteStreamingQuery), "one query"
        client.awaitTermination()
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("small")] == ["small> 1", "small> 2", "small> 3", "small> 4"]
    of_union = [f"united> {sign * x}" for x in (1, 2, 3, 4) for sign in (1, -1)]
    assert sorted(line for line in lines if line.startswith("united")) == sorted(of_union)
    assert rows["halves"] == [(0.5, "1"), (1.0, "2"), (1.5, "3"), (2.0, "4")]
    assert sorted(rows["twice"]) == [(x,) for x in (-4, -3, -2, -1, 1, 2, 3, 4)]
    assert [path.name for path in tmp_path.iterdir() if path.name[0] not in "._"] == ["branches"]


def test_a_step_of_one_branch_that_fails_names_itself_and_nothing_is_written(env: StreamExecutionEnvironment) -> None:
    written: list[int] = []
    source = env.from_collection([1, 0], Types.LONG())
    source.sink_to(ForeachBatchSink(lambda df, batch: written.append(df.count())))
    source.map(lambda x: 1 / x, Types.DOUBLE()).name("divide").print()
    with pytest.raises(UserFunctionError, match=r"division by zero.*in step divide"):
        env.execute("fails")
    assert written == []


def test_rows_and_windows_have_several_outputs(env: StreamExecutionEnvironment) -> None:
    windows = env.from_collection(["a", "b", "a"], Types.STRING()).key_by(lambda x: x, Types.STRING()).count_window(1)
    counts = windows.reduce(lambda a, b: a)
    found: list[Any] = []
    counts.sink_to(ForeachBatchSink(lambda rows, batch: found.extend(("rows", *row) for row in rows.collect())))
    named = counts.map(lambda x: (x, 1), "k string, n int")
    named.sink_to(ForeachBatchSink(lambda rows, batch: found.extend(("named", *row) for row in rows.collect())))
    env.execute("rows")
    assert sorted(found) == [*[("named", x, 1) for x in "aab"], *[("rows", x) for x in "aab"]]
