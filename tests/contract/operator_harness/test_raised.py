"""Everything that a user's function raises, at any place, is a `UserFunctionError` that names the line."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

from varvite.datastream import KeyedProcessFunction, RuntimeContext
from varvite.storage.errors import UserFunctionError
from varvite.testing import OperatorHarness


class Panic(BaseException):
    """As pyo3's."""


class Raising(KeyedProcessFunction[str, Row, Any]):
    """Raises at one place; `process_element` is a generator."""

    def __init__(self, place: str, kind: type[BaseException]) -> None:
        self._place = place
        self._kind = kind

    def _reach(self, place: str) -> None:
        if place == self._place:
            raise self._kind

    def open(self, runtime_context: RuntimeContext) -> None:
        self._reach("open")

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        self._reach("process_element")
        ctx.timer_service().register_processing_time_timer(1)
        yield (value.k,)
        self._reach("after a row")

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        self._reach("on_timer")
        yield (str(timestamp),)


PLACES = ("open", "process_element", "after a row", "on_timer")
KINDS = (ValueError, GeneratorExit, SystemExit, StopIteration, asyncio.CancelledError, Panic)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_an_error_of_the_function(place: str, kind: type[BaseException]) -> None:
    """A `GeneratorExit` was an error that Spark tries again."""

    def run() -> None:
        with OperatorHarness.of_function(Raising(place, kind), "k", "k string", "k string") as harness:
            harness.process_element(("a",))
            harness.set_processing_time(10)

    with pytest.raises(UserFunctionError) as caught:
        run()
    assert kind.__name__ in str(caught.value)


class Closing(KeyedProcessFunction[str, Row, Any]):
    """Raises when it is closed."""

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        del ctx
        yield (value.k,)

    def close(self) -> None:
        raise ConnectionError("the database is gone")


class ClosingProcessor(StatefulProcessor):
    """The same for Spark."""

    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        del rows, timerValues
        yield Row(k=key[0])

    def close(self) -> None:
        raise ConnectionError("the database is gone")


@pytest.mark.parametrize("function", [Closing(), ClosingProcessor()], ids=lambda f: type(f).__name__)
def test_what_close_raises_is_logged_and_fails_no_batch(function: Any, caplog: pytest.LogCaptureFixture) -> None:
    """An instance lives from batch to batch, and is closed when no batch runs that could fail."""
    with OperatorHarness.of_function(function, "k", "k string", "k string") as harness:
        assert harness.process_batch([("a",)]) == [("a",)]
        harness.crash()
        assert harness.process_batch([("b",)])[-1] == ("b",)
    assert "close() of the function of operator" in caplog.text
    assert "the database is gone" in caplog.text
