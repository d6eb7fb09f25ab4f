"""`AsyncFunction` with PyFlink's names, strategies to retry it, and `AsyncWait`, which calls it for many elements.

The calls run in an event loop of the task, which is open as long as the function. A batch of elements ends when all its
calls have: so their results are part of the batch, as those of any function.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from varvite.changelog.api.functions import Function
from varvite.spark_integration.functions.returned import returned
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from varvite.spark_integration.functions.keyed import RuntimeContext

    ResultPredicate: TypeAlias = Callable[[list[Any]], bool]
    ExceptionPredicate: TypeAlias = Callable[[Exception], bool]

_CANCEL_TIMEOUT_S: Final = 5.0
"""Time in which a coroutine has to end that was cancelled; one that takes longer is left."""
IN = TypeVar("IN")
OUT = TypeVar("OUT")


class AsyncFunction(Function, Generic[IN, OUT]):
    """A coroutine for each element, which waits for a service while those of other elements go on."""

    @abstractmethod
    async def async_invoke(self, value: IN) -> list[OUT]:
        """The elements that take the place of this one."""

    def timeout(self, value: IN) -> list[OUT]:
        """The elements that take the place of one whose coroutine takes too long. Raises `TimeoutError` by default."""
        raise TimeoutError(f"async_invoke of {type(self).__name__} has taken too long for {value!r}")


class AsyncRetryPredicate(ABC, Generic[OUT]):
    """Tells if a call is worth another one."""

    @abstractmethod
    def result_predicate(self) -> ResultPredicate | None:
        """Returns a function that is true for results to retry; None: there are none."""

    @abstractmethod
    def exception_predicate(self) -> ExceptionPredicate | None:
        """Returns a function that is true for errors to retry; None: there are none."""


class AsyncRetryStrategy(ABC, Generic[OUT]):
    """Decides if and when a call is made again."""

    @abstractmethod
    def can_retry(self, current_attempts: int) -> bool:
        """True if there may be another attempt after so many."""

    @abstractmethod
    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """Milliseconds to wait after so many attempts."""

    @abstractmethod
    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        """The predicate of results and errors."""

    @staticmethod
    def no_restart() -> NoRetryStrategy[Any]:
        """A strategy of one attempt."""
        return NO_RETRY_STRATEGY

    @staticmethod
    def fixed_delay(
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: ResultPredicate | None,
        exception_predicate: ExceptionPredicate | None,
    ) -> FixedDelayRetryStrategy[Any]:
        """A strategy with the same wait between attempts."""
        return FixedDelayRetryStrategy(max_attempts, backoff_time_millis, result_predicate, exception_predicate)

    @staticmethod
    def exponential_backoff(
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: ResultPredicate | None,
        exception_predicate: ExceptionPredicate | None,
    ) -> ExponentialBackoffDelayRetryStrategy[Any]:
        """A strategy with a longer wait after each attempt."""
        return ExponentialBackoffDelayRetryStrategy(
            max_attempts, initial_delay, max_retry_delay, multiplier, result_predicate, exception_predicate
        )


class RetryPredicate(AsyncRetryPredicate[OUT]):
    """Two functions as a predicate."""

    def __init__(
        self, result_predicate: ResultPredicate | None, exception_predicate: ExceptionPredicate | None
    ) -> None:
        self._result_predicate = result_predicate
        self._exception_predicate = exception_predicate

    def result_predicate(self) -> ResultPredicate | None:
        return self._result_predicate

    def exception_predicate(self) -> ExceptionPredicate | None:
        return self._exception_predicate


class NoRetryStrategy(AsyncRetryStrategy[OUT]):
    """One attempt."""

    def can_retry(self, current_attempts: int) -> bool:  # noqa: ARG002
        return False

    def get_backoff_time_millis(self, current_attempts: int) -> int:  # noqa: ARG002
        return -1

    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        return RetryPredicate(None, None)


NO_RETRY_STRATEGY: NoRetryStrategy[Any] = NoRetryStrategy()


class _LimitedRetryStrategy(AsyncRetryStrategy[OUT]):
    """A number of attempts, and what is worth another one."""

    def __init__(self, max_attempts: int, predicate: RetryPredicate[OUT]) -> None:
        self._max_attempts = max_attempts
        self._predicate = predicate

    def can_retry(self, current_attempts: int) -> bool:
        return current_attempts <= self._max_attempts

    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        return self._predicate


class FixedDelayRetryStrategy(_LimitedRetryStrategy[OUT]):
    """The same wait between attempts."""

    def __init__(
        self,
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: ResultPredicate | None,
        exception_predicate: ExceptionPredicate | None,
    ) -> None:
        """Set numbers and predicates.

        Args:
            max_attempts: Attempts after the first one; at least 1.
            backoff_time_millis: Wait, milliseconds; at least 1.
            result_predicate: True for results to retry; None: there are none.
            exception_predicate: True for errors to retry; None: there are none.

        Raises:
            InvalidRequestError: A number is too small.
        """
        _check_positive(max_attempts=max_attempts, backoff_time_millis=backoff_time_millis)
        super().__init__(max_attempts, RetryPredicate(result_predicate, exception_predicate))
        self._backoff_ms = backoff_time_millis

    def get_backoff_time_millis(self, current_attempts: int) -> int:  # noqa: ARG002
        return self._backoff_ms


class ExponentialBackoffDelayRetryStrategy(_LimitedRetryStrategy[OUT]):
    """A wait that is multiplied after each attempt, up to a limit; each element has waits of its own."""

    def __init__(
        self,
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: ResultPredicate | None,
        exception_predicate: ExceptionPredicate | None,
    ) -> None:
        """Set numbers and predicates.

        Args:
            max_attempts: Attempts after the first one; at least 1.
            initial_delay: Wait after the first attempt, milliseconds; above 0.
            max_retry_delay: Longest wait, milliseconds; above 0.
            multiplier: Of the wait; above 0.
            result_predicate: True for results to retry; None: there are none.
            exception_predicate: True for errors to retry; None: there are none.

        Raises:
            InvalidRequestError: A number is too small.
        """
        _check_positive(
            max_attempts=max_attempts,
            initial_delay=initial_delay,
            max_retry_delay=max_retry_delay,
            multiplier=multiplier,
        )
        super().__init__(max_attempts, RetryPredicate(result_predicate, exception_predicate))
        self._initial_ms, self._limit_ms, self._multiplier = initial_delay, max_retry_delay, multiplier

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        wait_ms = self._initial_ms
        for _ in range(current_attempts - 1):
            wait_ms = int(min(wait_ms * self._multiplier, self._limit_ms))
        return wait_ms


def _check_positive(**numbers: float) -> None:
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, (int, float)) or number <= 0:
            raise InvalidRequestError(f"{name} is {number!r}; give a number above 0")


def empty_result_predicate(result: list[Any] | None) -> bool:
    """True for no result."""
    return not result


def has_exception_predicate(error: Exception | None) -> bool:
    """True for every error."""
    return error is not None


def exception_type_predicate(error: Exception | None, expected_error_type: type[Exception]) -> bool:
    """True for errors of a class."""
    return isinstance(error, expected_error_type)


class ElementError(Exception):
    """The call for an element raised its cause."""

    def __init__(self, position: int, cause: Exception) -> None:
        super().__init__(position, cause)
        self.position = position
        self.cause = cause


@dataclass(frozen=True, slots=True)
class WaitSettings:
    """Limits of the calls."""

    timeout_ms: int
    """Time for an element, retries included; at most 0: there is no limit."""
    capacity: int
    """Calls at the same time, at least 1."""
    is_ordered: bool
    """Results are in the order of the elements; else in that in which the calls end."""
    strategy: AsyncRetryStrategy[Any]


class AsyncWait(Function):
    """Calls an `AsyncFunction` for many elements at once."""

    def __init__(self, function: AsyncFunction[Any, Any], settings: WaitSettings) -> None:
        self.function = function
        """The user's."""
        self._settings = settings
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self, runtime_context: RuntimeContext) -> None:
        self._loop = asyncio.new_event_loop()
        self.function.open(runtime_context)

    def results(self, elements: Sequence[Any]) -> list[tuple[int, list[Any]]]:
        """The position of each element with the elements that take its place, in the order of the output.

        Raises:
            ElementError: A call raised.
        """
        if self._loop is None:
            raise InvalidRequestError("the function is not open")
        return self._loop.run_until_complete(self._all(elements))

    def close(self) -> None:
        loop, self._loop = self._loop, None
        try:
            self.function.close()
        finally:
            if loop is not None:
                loop.run_until_complete(_cancel(asyncio.all_tasks(loop)))
                loop.close()

    def __del__(self) -> None:
        """Free the loop of an instance that is discarded without `close` (I4)."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.close()

    async def _all(self, elements: Sequence[Any]) -> list[tuple[int, list[Any]]]:
        completed: list[tuple[int, list[Any]]] = []
        running: set[asyncio.Task[None]] = set()
        try:
            for position, element in enumerate(elements):
                if len(running) >= self._settings.capacity:
                    running = await _still_running(running)
                running.add(asyncio.create_task(self._complete(position, element, completed)))
            while running:
                running = await _still_running(running)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        return sorted(completed, key=itemgetter(0)) if self._settings.is_ordered else completed

    async def _complete(self, position: int, element: Any, completed: list[tuple[int, list[Any]]]) -> None:
        timeout_ms = self._settings.timeout_ms
        attempts = asyncio.create_task(self._attempts(element))
        try:
            await asyncio.wait([attempts], timeout=timeout_ms / 1000 if timeout_ms > 0 else None)
            is_late = not attempts.done()
            completed.append(
                (position, self._checked(self.function.timeout(element) if is_late else attempts.result()))
            )
        except Exception as error:
            raise ElementError(position, error) from error
        finally:
            attempts.cancel()

    async def _attempts(self, element: Any) -> Any:
        """The result of the last attempt. Raises its error."""
        strategy = self._settings.strategy
        predicate = strategy.get_retry_predicate()
        of_result, of_error = predicate.result_predicate(), predicate.exception_predicate()
        attempts = 1
        while True:
            try:
                result = await self.function.async_invoke(element)
            except Exception as error:
                if of_error is None or not of_error(error) or not strategy.can_retry(attempts):
                    raise
            else:
                if of_result is None or not of_result(result) or not strategy.can_retry(attempts):
                    return result
            await asyncio.sleep(strategy.get_backoff_time_millis(attempts) / 1000)
            attempts += 1

    def _checked(self, result: Any) -> list[Any]:
        name = type(self.function).__name__
        if result is None:
            raise InvalidRequestError(
                f"The result of AsyncFunction cannot be none: let async_invoke and timeout of {name} return a list, [] "
                "for no element"
            )
        try:
            return list(returned(result))
        except InvalidRequestError as error:
            raise InvalidRequestError(
                f"The result of AsyncFunction should be of list type: let async_invoke and timeout of {name} return "
                f"[value], not {result!r}"
            ) from error


async def _cancel(left: set[asyncio.Task[Any]]) -> None:
    """End calls that took too long, and what the function has begun by itself."""
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=_CANCEL_TIMEOUT_S)


async def _still_running(running: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
    """Wait until one has ended; those that have not. Raises the error of one that has."""
    done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    return running
