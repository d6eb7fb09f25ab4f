"""Functions that wait for services: many calls at once, order, timeouts, retries and errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from pyspark import cloudpickle

from varvite.common import Time, Types
from varvite.datastream import AsyncDataStream, AsyncFunction, AsyncRetryStrategy, CheckpointedFunction
from varvite.datastream.async_retry_predicates import (
    empty_result_predicate,
    exception_type_predicate,
    has_exception_predicate,
)
from varvite.datastream.async_retry_strategies import (
    NO_RETRY_STRATEGY,
    ExponentialBackoffDelayRetryStrategy,
    NoRetryStrategy,
    RetryPredicate,
)
from varvite.spark_integration.api.environment import StreamExecutionEnvironment
from varvite.spark_integration.functions.async_io import AsyncWait, WaitSettings
from varvite.spark_integration.functions.keyed import RuntimeContext
from varvite.spark_integration.plan.function_chain import ChainPlace, FunctionChain, Step, StepError
from varvite.storage.errors import InvalidRequestError

SECONDS = 5.0
"""Long enough for any call that a test waits for."""


class Service(AsyncFunction[int, Any]):
    """A service whose answers a test arranges: an answer for a number comes when those in `after` of it have come."""

    def __init__(self, answer: Callable[[int, int], Any], after: dict[int, int] | None = None) -> None:
        self.answer, self.after = answer, after or {}

    def open(self, runtime_context: RuntimeContext) -> None:
        self.running, self.most = 0, 0
        self.attempts: dict[int, int] = {}
        self.come: dict[int, asyncio.Event] = {}

    async def async_invoke(self, value: int) -> Any:
        self.attempts[value] = self.attempts.get(value, 0) + 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if value in self.after:
                await asyncio.wait_for(self._event(self.after[value]).wait(), SECONDS)
            else:
                await asyncio.sleep(0)
            return self.answer(value, self.attempts[value])
        finally:
            self.running -= 1
            self._event(value).set()

    def _event(self, value: int) -> asyncio.Event:
        return self.come.setdefault(value, asyncio.Event())


class Patient(Service):
    def timeout(self, value: int) -> Any:
        return [f"{value} is late"]


def run(
    function: AsyncFunction[Any, Any],
    elements: list[Any],
    *,
    timeout_ms: int = 0,
    capacity: int = 100,
    is_ordered: bool = False,
    strategy: AsyncRetryStrategy[Any] = NO_RETRY_STRATEGY,
) -> tuple[list[Any], list[int | None] | None, Any]:
    """Output and time stamps of elements whose stamps are ten times their value, and the function that ran."""
    wait = AsyncWait(function, WaitSettings(timeout_ms, capacity, is_ordered, strategy))
    step = Step("async_wait", "ask", cloudpickle.dumps(wait))
    chain = FunctionChain([step], None, ChainPlace(0, 1, 128, {}))
    chain.open()
    try:
        output, stamps = chain.run(elements, [10 * element for element in elements])
        return output, stamps, chain._functions[0].function
    finally:
        chain.close()


def test_calls_run_at_the_same_time_and_results_come_as_they_end_or_in_order() -> None:
    backwards = {1: 2, 2: 3}  # 1 waits for 2, and 2 for 3
    twice = Service(lambda value, _: [value] * (value - 1), backwards)
    assert run(twice, [1, 2, 3])[:2] == ([3, 3, 2], [30, 30, 20])
    assert run(twice, [1, 2, 3], is_ordered=True)[:2] == ([2, 3, 3], [20, 30, 30])
    assert run(twice, [])[0] == []


@pytest.mark.parametrize("capacity", [1, 3])
def test_no_more_calls_run_at_once_than_the_capacity(capacity: int) -> None:
    output, _, function = run(Service(lambda value, _: [value]), list(range(20)), capacity=capacity)
    assert sorted(output) == list(range(20))
    assert function.most == capacity


def test_a_call_that_takes_too_long_gives_what_timeout_says() -> None:
    never = {1: 1}
    assert run(Patient(lambda value, _: [value], never), [1, 2], timeout_ms=30, is_ordered=True)[0] == ["1 is late", 2]
    with pytest.raises(StepError, match="too long") as failed:
        run(Service(lambda value, _: [value], never), [1], timeout_ms=30)
    assert isinstance(failed.value.cause, TimeoutError)
    assert failed.value.where == "in step ask, at element 1"


def test_a_timeout_of_the_function_itself_is_its_error() -> None:
    def refuse(value: int, attempt: int) -> Any:
        raise TimeoutError("of the service")

    with pytest.raises(StepError) as failed:
        run(Patient(refuse), [1], timeout_ms=60_000)
    assert str(failed.value.cause) == "of the service"


def test_an_error_ends_the_other_calls() -> None:
    def answer(value: int, attempt: int) -> Any:
        raise SystemExit(3) if value == 9 else ZeroDivisionError(value)

    with pytest.raises(StepError) as failed:
        run(Service(answer, {1: 1}), [1, 2])
    assert (type(failed.value.cause), failed.value.element) == (ZeroDivisionError, "2")
    with pytest.raises(StepError) as ended:
        run(Service(answer), [9])
    assert isinstance(ended.value.cause, SystemExit)


@pytest.mark.parametrize(
    ("result", "message"),
    [(None, "cannot be none"), (3, "should be of list type"), ("abc", "should be of list type")],
)
def test_a_result_is_a_list(result: Any, message: str) -> None:
    for function in (Service(lambda value, _: result), Wrong(result)):
        with pytest.raises(StepError) as failed:
            run(function, [1], timeout_ms=20)
        assert isinstance(failed.value.cause, InvalidRequestError)
        assert message in str(failed.value.cause)
        assert type(function).__name__ in str(failed.value.cause)


class Wrong(AsyncFunction[int, Any]):
    """Never answers; the answer for that is wrong."""

    def __init__(self, result: Any) -> None:
        self.result = result

    async def async_invoke(self, value: int) -> Any:
        await asyncio.Event().wait()

    def timeout(self, value: int) -> Any:
        return self.result


def test_an_instance_that_is_discarded_frees_its_loop(recwarn: pytest.WarningsRecorder) -> None:
    wait = AsyncWait(Service(lambda value, _: [value]), WaitSettings(0, 1, True, NO_RETRY_STRATEGY))
    wait.open(None)  # type: ignore[arg-type]
    assert wait.results([1]) == [(0, [1])]
    loop: Any = wait._loop
    del wait
    assert loop.is_closed()
    with pytest.raises(InvalidRequestError, match="not open"):
        AsyncWait(Service(lambda value, _: [value]), WaitSettings(0, 1, True, NO_RETRY_STRATEGY)).results([1])
    assert not recwarn.list


def test_results_and_errors_are_retried_as_the_strategy_says() -> None:
    def answer(value: int, attempt: int) -> Any:
        if attempt < 3:
            if value == 2:
                raise ConnectionError(attempt)
            return []
        return [(value, attempt)]

    def strategy(attempts: int, of_result: Any = None, of_error: Any = None) -> AsyncRetryStrategy[Any]:
        return AsyncRetryStrategy.fixed_delay(attempts, 1, of_result, of_error)

    both = strategy(2, empty_result_predicate, has_exception_predicate)
    assert run(Service(answer), [1, 2], strategy=both, timeout_ms=60_000, is_ordered=True)[0] == [(1, 3), (2, 3)]
    once = strategy(1, empty_result_predicate, None)
    output, _, function = run(Service(answer), [1], strategy=once, timeout_ms=60_000)
    assert (output, function.attempts) == ([], {1: 2}), "the last result counts when attempts are used up"
    of_class = strategy(5, None, partial(exception_type_predicate, expected_error_type=ConnectionError))
    assert run(Service(answer), [2], strategy=of_class, timeout_ms=60_000)[0] == [(2, 3)]
    other = strategy(5, None, partial(exception_type_predicate, expected_error_type=KeyError))
    with pytest.raises(StepError) as failed:
        run(Service(answer), [2], strategy=other, timeout_ms=60_000)
    assert isinstance(failed.value.cause, ConnectionError)


def test_the_timeout_includes_retries() -> None:
    forever = AsyncRetryStrategy.fixed_delay(1_000_000, 1, empty_result_predicate, None)
    assert run(Patient(lambda value, _: []), [1], strategy=forever, timeout_ms=40)[0] == ["1 is late"]
    slow = AsyncRetryStrategy.fixed_delay(1, 3_600_000, empty_result_predicate, None)
    assert run(Patient(lambda value, _: []), [1], strategy=slow, timeout_ms=40)[0] == ["1 is late"]


def test_strategies_are_pyflinks() -> None:
    growing = AsyncRetryStrategy.exponential_backoff(4, 100, 500, 1.7, None, None)
    assert [growing.get_backoff_time_millis(attempt) for attempt in (1, 2, 3, 4)] == [100, 170, 289, 491]
    assert growing.get_backoff_time_millis(5) == 500
    assert growing.get_backoff_time_millis(2) == 170, "elements do not share their waits"
    assert [growing.can_retry(attempt) for attempt in (1, 4, 5)] == [True, True, False]
    fixed = AsyncRetryStrategy.fixed_delay(2, 50, None, None)
    assert [fixed.can_retry(attempt) for attempt in (2, 3)] == [True, False]
    assert fixed.get_backoff_time_millis(9) == 50
    none = AsyncRetryStrategy.no_restart()
    assert isinstance(none, NoRetryStrategy)
    assert (none.can_retry(1), none.get_backoff_time_millis(1)) == (False, -1)
    for wrong in ((0, 1), (1, 0), (1, -5)):
        with pytest.raises(InvalidRequestError, match="above 0"):
            AsyncRetryStrategy.fixed_delay(*wrong, None, None)
    with pytest.raises(InvalidRequestError, match="multiplier"):
        ExponentialBackoffDelayRetryStrategy(1, 1, 1, 0, None, None)
    assert empty_result_predicate([]) is empty_result_predicate(None) is True  # type: ignore[arg-type]
    assert has_exception_predicate(None) is False


class Checkpointed(AsyncFunction[int, int], CheckpointedFunction):
    async def async_invoke(self, value: int) -> list[int]:
        return [value]

    def initialize_state(self, context: Any) -> None: ...

    def snapshot_state(self, context: Any) -> None: ...


class Plain(AsyncFunction[int, int]):
    def async_invoke(self, value: int) -> Any:
        return [value]


class NoPredicate(NoRetryStrategy[Any]):
    def get_retry_predicate(self) -> Any:
        return None


def test_what_cannot_be_right_is_refused_at_the_call() -> None:
    env = StreamExecutionEnvironment(None)  # type: ignore[arg-type]
    stream: Any = env.from_collection([1], Types.LONG())
    service: Any = Service(lambda value, _: [value])
    five = Time.seconds(5)
    retries = AsyncRetryStrategy.fixed_delay(1, 1, None, None)
    for arguments, message in (
        ((Service, five), "takes an instance"),
        ((lambda value: [value], five), "takes an AsyncFunction"),
        ((Plain(), five), "async def async_invoke"),
        ((Checkpointed(), five), "CheckpointedFunction"),
        ((service, 5), r"Time\.seconds"),
        ((service, five, 0), "capacity"),
        ((service, five, True), "capacity"),
    ):
        for method in (AsyncDataStream.unordered_wait, AsyncDataStream.ordered_wait):
            with pytest.raises(InvalidRequestError, match=message):
                method(stream, *arguments)
    for with_retry in (AsyncDataStream.unordered_wait_with_retry, AsyncDataStream.ordered_wait_with_retry):
        for strategy, timeout in ((None, five), (NoPredicate(), five), (retries, Time.seconds(0))):
            with pytest.raises(InvalidRequestError, match=r"strategy"):
                with_retry(stream, service, timeout, strategy)
    assert RetryPredicate(None, None).result_predicate() is None
    assert AsyncDataStream.ordered_wait(stream, service, Time.seconds(0), 1, Types.LONG()).get_name() == "async_wait"
