"""`partition_custom`: each element passes through the partition that the partitioner chooses, as in Flink."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from varvite.changelog.types.factory import Types
from varvite.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from varvite.datastream import CheckpointedFunction, DataStream, KeySelector, Partitioner, StreamExecutionEnvironment
from varvite.datastream.functions import ProcessFunction, RuntimeContext
from varvite.spark_integration.driver.operator_executor import key_group_of
from varvite.spark_integration.plan.graph import plan_graph
from varvite.storage.errors import InvalidRequestError, UserFunctionError
from varvite.testing import OperatorHarness

PAIRS = [("a", 0), ("b", 0), ("c", 1), ("d", 1), ("e", 2), ("f", 7), ("g", 7), ("h", 8), ("i", 8), ("j", 9)]
"""Of PyFlink's own test."""
PAIR = Types.TUPLE([Types.STRING(), Types.INT()])


class Second(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value[1]


TIMES = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())


class Remainder(Partitioner):
    """Counts what it has chosen: an object that has to be opened."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.calls = 0

    def partition(self, key: int, num_partitions: int) -> int:
        self.calls += 1
        return key % num_partitions

    def close(self) -> None:
        assert self.calls > 0


class Number(KeySelector[Any, int]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.position = 1

    def get_key(self, value: Any) -> int:
        return value[self.position]


class Subtask(ProcessFunction[Any, Any]):
    """Yields each element with the instance that has processed it, and its number there."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.index = runtime_context.get_index_of_this_subtask()
        self.parallelism = runtime_context.get_number_of_parallel_subtasks()
        self.seen = 0

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        self.seen += 1
        yield value, ctx.timestamp(), self.index, self.parallelism, self.seen


def run(build: Callable[[DataStream], DataStream], elements: Any = PAIRS, **options: Any) -> list[Any]:
    with OperatorHarness(build, PAIR, **options) as harness:
        return harness.process_batch(elements)


@pytest.mark.parametrize("parallelism", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("max_parallelism", [8, 100, 128])
def test_elements_are_processed_in_the_partition_that_was_chosen(parallelism: int, max_parallelism: int) -> None:
    output = run(
        lambda stream: stream.partition_custom(Remainder(), Number()).process(Subtask()),
        parallelism=parallelism, max_parallelism=max_parallelism,
    )  # fmt: skip
    assert sorted(value for value, *_ in output) == PAIRS
    for value, timestamp, index, parallel, _ in output:
        assert (index, parallel, timestamp) == (value[1] % parallelism, parallelism, None)
    for partition in range(parallelism):
        of_partition = [(value, seen) for value, _, index, _, seen in output if index == partition]
        chosen = [pair for pair in PAIRS if pair[1] % parallelism == partition]
        assert of_partition == list(zip(chosen, range(1, len(chosen) + 1), strict=True)), "in the order of the input"


def test_callables_are_taken_and_elements_keep_their_type_and_their_time() -> None:
    def build(stream: DataStream) -> DataStream:
        timed = stream.assign_timestamps_and_watermarks(TIMES)
        parted = timed.partition_custom(lambda key, parts: np.int32(key == "j") * (parts - 1), lambda pair: pair[0])
        assert parted.get_type() == PAIR
        return parted.process(Subtask())

    output = run(build, [("j", 10), ("k", 20)], parallelism=4)
    assert sorted(output) == [(("j", 10), 10, 3, 4, 1), (("k", 20), 20, 0, 4, 1)]


def test_sql_and_the_harness_give_a_partition_the_same_key_group() -> None:
    assert key_group_of(["k"], 128, 3).startswith("CAST((`k` * 128L + 2L) DIV 3L AS INT) AS ")
    for parts in range(1, 130):
        for partition in {0, parts // 2, parts - 1}:
            group = (partition * 130 + parts - 1) // parts
            assert group < 130
            assert group * parts // 130 == partition


@pytest.mark.parametrize("wrong", [-1, 3, 1.0, "1", None])
def test_a_number_that_is_no_partition_is_an_error_that_says_the_range(wrong: Any) -> None:
    expected = r"gave .* for the key 0 and 3 partitions: give an int from 0 to 2.*partition_custom"
    with pytest.raises(UserFunctionError, match=expected):
        run(lambda stream: stream.partition_custom(lambda key, parts: wrong, Number()), parallelism=3)


def test_an_error_of_the_partitioner_names_the_step_and_the_element() -> None:
    with pytest.raises(UserFunctionError, match=r"ZeroDivisionError.*partition_custom.*'a', 0"):
        run(lambda stream: stream.partition_custom(lambda key, parts: parts // key, lambda pair: pair[1]))


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment(None)  # type: ignore[arg-type]


@pytest.fixture
def pairs(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection(PAIRS, PAIR)


def partitions(*ends: DataStream, parallelism: int = 7) -> list[int | None]:
    settings = ends[0].get_execution_environment().graph_settings.with_parallelism(parallelism)
    main, *sides = [end.transformation for end in ends]
    return [operator.parallelism for operator in plan_graph(main, settings, sides).operators]


def test_the_number_of_partitions_is_that_of_the_next_function(pairs: DataStream) -> None:
    """PyFlink's rule, from its own test: the function behind it has set_parallelism(5), the one before it 4."""

    def parted() -> DataStream:
        return pairs.map(lambda pair: pair, PAIR).set_parallelism(4).partition_custom(Remainder(), Number())

    assert partitions(parted().map(str).set_parallelism(5)) == [5]
    assert partitions(parted().map(str).set_parallelism(5).map(len).set_parallelism(2)) == [5]
    assert partitions(parted().map(str).map(len).set_parallelism(2)) == [7]
    assert partitions(parted().set_parallelism(3)) == [3]
    assert partitions(parted().key_by(lambda pair: pair[0]).map(str).set_parallelism(2)) == [7, 2]
    assert partitions(parted()) == [7]


def test_functions_of_different_parallelism_behind_one_are_refused(pairs: DataStream) -> None:
    parted = pairs.partition_custom(Remainder(), Number())
    first, second = parted.map(str).set_parallelism(5), parted.map(len).set_parallelism(5)
    assert partitions(first, second) == [5]
    second.set_parallelism(6)
    with pytest.raises(InvalidRequestError, match=r"parallelism \[5, 6\].*same set_parallelism"):
        partitions(first, second)


def test_time_stamps_are_assigned_before_it(pairs: DataStream) -> None:
    late = pairs.partition_custom(Remainder(), Number()).assign_timestamps_and_watermarks(TIMES)
    with pytest.raises(InvalidRequestError, match="before"):
        partitions(late)


def test_it_changes_no_uid_of_the_operators_behind_it(pairs: DataStream) -> None:
    def uids(stream: DataStream) -> list[str]:
        counted = stream.key_by(lambda pair: pair[0]).map(str)
        settings = counted.get_execution_environment().graph_settings
        return [operator.uid for operator in plan_graph(counted.transformation, settings).operators]

    (plain,) = uids(pairs)
    before, same = uids(pairs.partition_custom(Remainder(), Number()))
    assert before.startswith("partition_custom-")
    assert same == plain


def test_a_plan_shows_it(env: StreamExecutionEnvironment, pairs: DataStream) -> None:
    env.set_parallelism(4)
    pairs.partition_custom(Remainder(), Number()).map(str).set_parallelism(2).print()
    nodes = json.loads(env.get_execution_plan())["nodes"]
    assert [(node["type"], node["parallelism"]) for node in nodes[:3]] == [
        ("source", 4), ("partition_custom", 2), ("map", 2),
    ]  # fmt: skip
    assert nodes[1]["predecessors"][0]["ship_strategy"] == "CUSTOM"


def test_what_is_no_partitioner_or_has_no_place_is_refused(pairs: DataStream) -> None:
    class Kept(Remainder, CheckpointedFunction):
        def snapshot_state(self, context: Any) -> None: ...
        def initialize_state(self, context: Any) -> None: ...

    for call, remedy in (
        (lambda: pairs.partition_custom(1, Number()), "a Partitioner or a callable, not int"),  # type: ignore[arg-type]
        (lambda: pairs.partition_custom(Remainder(), "f1"), "a KeySelector or a callable, not str"),
        (lambda: pairs.partition_custom(Remainder, Number()), r"Remainder\(\)"),  # type: ignore[arg-type]
        (lambda: pairs.partition_custom(Kept(), Number()), "CheckpointedFunction"),
        (lambda: pairs.key_by(lambda pair: pair[0]).partition_custom(Remainder(), Number()), "KeyedStream"),
    ):
        with pytest.raises(InvalidRequestError, match=remedy):
            call()
