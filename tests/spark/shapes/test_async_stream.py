"""`AsyncDataStream` in jobs: before and behind stateful operators, and errors that say where they come from."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.spark.functions.shapes import PAIR, Timed, collected
from varvite.common import Time, Types
from varvite.datastream import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    DataStream,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from varvite.datastream.async_retry_predicates import empty_result_predicate
from varvite.storage.errors import UserFunctionError

pytestmark = pytest.mark.spark
TEN = Time.seconds(10)


class Lookup(AsyncFunction[Any, Any]):
    """The pair and its double, later pairs sooner; none for a key that is not known; nothing at first for 3."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.tried: set[int] = set()
        self.parallelism = runtime_context.get_number_of_parallel_subtasks()

    async def async_invoke(self, value: Any) -> Any:
        await asyncio.sleep(0.02 / value[1])
        if value[0] == "broken":
            raise ConnectionError("the service is away")
        if value[1] == 3 and 3 not in self.tried:
            self.tried.add(3)
            return []
        return [] if value[0] == "unknown" else [value, (value[0], 2 * value[1])]


def doubled(*pairs: Any) -> list[Any]:
    return [each for pair in pairs for each in (pair, (pair[0], 2 * pair[1]))]


RETRIES = AsyncRetryStrategy.fixed_delay(2, 1, empty_result_predicate, None)


def test_services_are_called_before_and_behind_operators(timed_pairs: DataStream) -> None:
    ordered = AsyncDataStream.ordered_wait_with_retry(timed_pairs, Lookup(), TEN, RETRIES, 3, PAIR)
    pairs = [("a", 1), ("b", 2), ("a", 4), ("a", 7), ("b", 13)]
    assert collected(ordered, "ordered") == doubled(*pairs)
    unordered = AsyncDataStream.unordered_wait(timed_pairs, Lookup(), TEN, output_type=PAIR)
    assert sorted(collected(unordered, "unordered")) == sorted(doubled(*pairs))
    times = collected(unordered.key_by("f0").process(Timed()), "times")
    assert sorted(times)[:3] == [(("a", 1), 1000), (("a", 2), 1000), (("a", 4), 4000)]
    sums = timed_pairs.key_by("f0").sum(1)
    behind = AsyncDataStream.ordered_wait(sums, Lookup(), TEN, 2, PAIR)
    assert collected(behind, "behind") == doubled(("a", 1), ("b", 2), ("a", 5), ("a", 12), ("b", 15))
    again = behind.key_by("f0").process(Timed())
    assert min(collected(again, "behind and timed")) == (("a", 1), 1000)


def test_retries_and_results_without_elements(env: StreamExecutionEnvironment) -> None:
    pairs = env.from_collection([("a", 3), ("unknown", 1), ("b", 2)], PAIR)
    with_retry = AsyncDataStream.unordered_wait_with_retry(pairs, Lookup(), TEN, RETRIES, output_type=PAIR)
    assert sorted(collected(with_retry, "retried")) == sorted(doubled(("a", 3), ("b", 2)))
    without = AsyncDataStream.unordered_wait(pairs, Lookup(), TEN, output_type=PAIR)
    assert sorted(collected(without, "once")) == doubled(("b", 2))
    untyped = AsyncDataStream.ordered_wait(pairs.key_by("f0"), Lookup(), TEN)
    assert collected(untyped.map(str), "any objects") == ["('b', 2)", "('b', 4)"]


@pytest.mark.parametrize("is_behind", [False, True])
def test_an_error_names_step_and_element(env: StreamExecutionEnvironment, *, is_behind: bool) -> None:
    pairs = env.from_collection([("a", 1), ("broken", 1)], PAIR)
    read = pairs.key_by("f0").sum(1) if is_behind else pairs
    stream = AsyncDataStream.ordered_wait(read, Lookup(), TEN, output_type=PAIR).name("lookup")
    with pytest.raises(UserFunctionError, match=r"the service is away.*in step lookup, at element \('broken', 1\)"):
        collected(stream, "fails")


class Stuck(AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> Any:
        await asyncio.Event().wait()


def test_a_service_that_does_not_answer_fails_the_job(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_collection([1], Types.LONG())
    with pytest.raises(UserFunctionError, match=r"TimeoutError: async_invoke of Stuck has taken too long for 1"):
        collected(AsyncDataStream.unordered_wait(numbers, Stuck(), Time.milliseconds(50)), "stuck")
