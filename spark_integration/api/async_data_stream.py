"""`AsyncDataStream`: applies an `AsyncFunction` to a stream."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from varvite.changelog.api.time_spans import milliseconds_of
from varvite.spark_integration.functions.async_io import (
    NO_RETRY_STRATEGY,
    AsyncFunction,
    AsyncRetryPredicate,
    AsyncRetryStrategy,
    AsyncWait,
    NoRetryStrategy,
    WaitSettings,
)
from varvite.spark_integration.functions.checkpointed import refuse_checkpointed
from varvite.spark_integration.functions.stateless import check_function
from varvite.spark_integration.plan.operator import elements_of
from varvite.spark_integration.plan.stateless import step
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from varvite.changelog.api.time_spans import TimeLike
    from varvite.spark_integration.api.stream import DataStream


class AsyncDataStream:
    """Waits for the results of an `AsyncFunction`, whose calls for many elements run at the same time."""

    @staticmethod
    def unordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: TimeLike,
        capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream:
        """The elements that the function gives, in the order in which its calls end.

        Args:
            data_stream: Its elements; keys play no part.
            async_function: An instance; it is copied (pickled) now.
            timeout: Time for the call of an element, then `AsyncFunction.timeout` is called; 0: no limit.
            capacity: Calls at the same time in each task.
            output_type: Type of what it gives; see `DataStream.map`.

        Raises (as do the others):
            InvalidRequestError: Any of these cannot be right.
        """
        return _waiting(data_stream, async_function, timeout, NO_RETRY_STRATEGY, capacity, output_type, ordered=False)

    @staticmethod
    def unordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: TimeLike,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream:
        """As `unordered_wait`; a strategy says which calls are made again. The timeout includes all of an element."""
        return _waiting(
            data_stream, async_function, timeout, async_retry_strategy, capacity, output_type, ordered=False
        )

    @staticmethod
    def ordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: TimeLike,
        capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream:
        """As `unordered_wait`, in the order of the elements."""
        return _waiting(data_stream, async_function, timeout, NO_RETRY_STRATEGY, capacity, output_type, ordered=True)

    @staticmethod
    def ordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: TimeLike,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream:
        """As `unordered_wait_with_retry`, in the order of the elements."""
        return _waiting(data_stream, async_function, timeout, async_retry_strategy, capacity, output_type, ordered=True)


def _waiting(
    stream: DataStream,
    function: AsyncFunction[Any, Any],
    timeout: TimeLike,
    strategy: AsyncRetryStrategy[Any],
    capacity: int,
    output_type: Any,
    *,
    ordered: bool,
) -> DataStream:
    check_function(function, AsyncFunction, "AsyncDataStream", callables=False)
    if not inspect.iscoroutinefunction(function.async_invoke):
        raise InvalidRequestError(
            f"async_invoke of {type(function).__name__} is no coroutine: write async def async_invoke(self, value)"
        )
    refuse_checkpointed([function], "AsyncDataStream")
    timeout_ms = milliseconds_of(timeout)
    if timeout_ms is None:
        raise InvalidRequestError(f"timeout is {timeout!r}; give a span of time: Time.seconds(5)")
    if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1:
        raise InvalidRequestError(f"capacity is {capacity!r}; give a number of calls, at least 1")
    if not isinstance(strategy, AsyncRetryStrategy) or not isinstance(
        strategy.get_retry_predicate(), AsyncRetryPredicate
    ):
        raise InvalidRequestError(
            f"{strategy!r} is no retry strategy with a predicate: AsyncRetryStrategy.fixed_delay()"
        )
    if timeout_ms <= 0 and not isinstance(strategy, NoRetryStrategy):
        raise InvalidRequestError(f"timeout is {timeout!r}; a strategy that retries needs one above 0")
    wait = AsyncWait(function, WaitSettings(timeout_ms, capacity, ordered, strategy))
    node = step(stream.transformation, "async_wait", wait, elements_of(output_type))
    return stream.followed_by(node)
