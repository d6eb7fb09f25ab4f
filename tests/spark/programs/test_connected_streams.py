"""Streams that meet: unions and connected streams, from several sources, with state, time, restarts and errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.functions.connected import Pairs, Sums, Twice
from tests.spark.functions.stream import Count, KeyAndTime, Second, Unlucky
from tests.tidy.pages.doc_blocks import ROOT, blocks_of
from varvite.common import Types, WatermarkStrategy
from varvite.datastream import DataStream, StreamExecutionEnvironment
from varvite.storage.errors import UserFunctionError

pytestmark = pytest.mark.spark
PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
NO_WATERMARK = -(1 << 63)


@pytest.fixture
def kept(spark: SparkSession, tmp_path: Path) -> Callable[[], StreamExecutionEnvironment]:
    """Environments of one job with storage that stays: each is a new start of the program."""

    def start() -> StreamExecutionEnvironment:
        env = StreamExecutionEnvironment.get_execution_environment(spark)
        env.set_checkpoint_storage(tmp_path / "state").configure("materializer.mode", "off")
        return env.set_parallelism(2)

    return start


def collected(stream: DataStream, name: str = "job") -> list[Any]:
    with stream.execute_and_collect(name) as elements:
        return list(elements)


def test_the_programs_of_the_page_run(spark: SparkSession, tmp_path: Path) -> None:
    assert SparkSession.getActiveSession() is spark, "the programs find the session by themselves"
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks_of(
        "docs/guide/connected-streams.md", (ROOT / "docs" / "guide" / "connected-streams.md").read_text()
    ):
        text = block.text.replace("file:///var/lib/varvite", f"file://{tmp_path}/varvite")
        exec(compile(text, block.name, "exec", dont_inherit=True), names)


def test_a_union_counts_the_elements_of_all_its_streams(kept: Callable[[], StreamExecutionEnvironment]) -> None:
    def run() -> list[Any]:
        env = kept()
        words = env.from_collection(["a b", "b"]).flat_map(str.split)
        letters = env.from_collection(["b", "c"])
        # The last is a second way from the first source.
        whole = words.union(letters, words.filter(lambda word: word == "a")).map(str.upper)
        return sorted(collected(whole.key_by(lambda word: word).map(Count())))

    assert run() == [("A", 1), ("A", 2), ("B", 1), ("B", 2), ("B", 3), ("C", 1)]
    assert run() == [("A", 3), ("A", 4), ("B", 4), ("B", 5), ("B", 6), ("C", 2)], "the state of the job goes on"


def test_a_union_needs_no_operator_and_its_errors_say_the_step(kept: Callable[[], StreamExecutionEnvironment]) -> None:
    env = kept()
    numbers = env.from_collection([1, 13], Types.LONG())
    assert sorted(collected(numbers.union(numbers))) == [1, 1, 13, 13]
    with pytest.raises(UserFunctionError, match="13 is unlucky in step careful, at element 13"):
        collected(numbers.union(numbers.map(Unlucky(), Types.LONG()).name("careful")))


def test_rows_of_a_dataframe_and_a_collection_share_state(
    kept: Callable[[], StreamExecutionEnvironment], rows_of_k: Any
) -> None:
    env = kept()
    rows = env.from_dataframe(rows_of_k.read()).key_by("k")
    pairs = env.from_collection([("a", 10), ("d", 20)], PAIR).key_by("f0")
    stream = rows.connect(pairs).map(Sums(), Types.TUPLE([Types.LONG(), Types.STRING(), Types.LONG()]))
    found: list[Any] = []
    writer = stream.foreach_batch(lambda df, _: found.extend(df.collect()))
    location = env.code_level().values["execution.checkpointing.dir"]
    writer.query_name("sums").option("checkpointLocation", f"{location}-spark").trigger(availableNow=True)
    writer.start().awaitTermination()
    last = {key: max(total for _, k, total in found if k == key) for _, key, _ in found}
    assert last == {"a": 14, "b": 2, "c": 4, "d": 20}
    assert sorted(number for number, _, _ in found) == [1, 1, 1, 1, 2, 2]


def test_both_streams_have_the_keys_state_and_timers(kept: Callable[[], StreamExecutionEnvironment]) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())

    def run(first: list[Any], second: list[Any]) -> list[Any]:
        env = kept()
        streams = [env.from_collection(e, PAIR).assign_timestamps_and_watermarks(strategy) for e in (first, second)]
        connected = streams[0].connect(streams[1]).key_by(lambda x: x[0][0], lambda x: x[0][0], Types.STRING())
        return sorted(map(repr, collected(connected.process(Pairs()))))

    assert run([("a", 100)], [("a1", 200), ("b1", 7)]) == [
        "('pair', 'a', [100], ['a1'])",
        "('pair', 'a', [100], ['a1'])",
        "('pair', 'b', [], ['b1'])",
        f"('seen', 'a', 100, {NO_WATERMARK})",
        f"('seen', 'a', 200, {NO_WATERMARK})",
        f"('seen', 'b', 7, {NO_WATERMARK})",
    ], "timers fire when the collections end"
    assert run([("b", 300)], [("c1", 9)]) == [
        "('pair', 'b', [300], ['b1'])",
        "('pair', 'c', [], ['c1'])",
        f"('seen', 'b', 300, {NO_WATERMARK})",
        f"('seen', 'c', 9, {NO_WATERMARK})",
    ]


def test_time_stamps_of_united_streams_and_two_of_three_flat_mapped(
    kept: Callable[[], StreamExecutionEnvironment],
) -> None:
    env = kept()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
    timed = env.from_collection([("a", 100)], PAIR).assign_timestamps_and_watermarks(strategy)
    plain = env.from_collection([("b", 50)], PAIR)
    found = collected(timed.union(plain).key_by(lambda pair: pair[0]).process(KeyAndTime()), "stamps")
    assert sorted(found) == [("a", "str", 100, NO_WATERMARK), ("b", "str", None, NO_WATERMARK)]
    twice = timed.key_by("f0").connect(plain.union(plain).key_by("f0")).flat_map(Twice())
    assert collected(twice, "twice") == [("b", 50)] * 4
