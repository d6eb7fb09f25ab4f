"""Way of a function's exception from a state worker to the user."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import TYPE_CHECKING

import pytest
from pyspark import cloudpickle

from tests.workers.state_worker_setup import filled
from varvite.spark_integration.messages.protocol import UserError, decode_message, encode_message
from varvite.spark_integration.messages.summary import Summary
from varvite.spark_integration.messages.user_errors import user_code_raises, user_error, user_function_error
from varvite.spark_integration.plan.function_chain import ChainPlace, FunctionChain, Step, StepError
from varvite.storage.errors import IncompatibleError, UserFunctionError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator


def raised(error: BaseException, key: str | None) -> Exception:
    summary = filled(Summary, operator="sums", partition=3, error=user_error(error, key))
    return user_function_error(summary, "job", 7)


def test_state_that_is_declared_otherwise_than_stored_is_raised_as_it_is() -> None:
    found = raised(IncompatibleError("declared otherwise", operator="sums"), None)
    assert isinstance(found, IncompatibleError)
    assert found.message == "declared otherwise"
    assert found.context == {"operator": "sums", "job": "job", "partition": 3, "batch": 7}


@pytest.mark.parametrize(
    ("error", "key"), [(IncompatibleError("a value cannot be loaded"), "'a'"), (ArithmeticError("unlucky"), None)]
)
def test_everything_else_is_an_error_of_the_function_with_its_cause(error: Exception, key: str | None) -> None:
    found = raised(error, key)
    assert isinstance(found, UserFunctionError)
    assert str(error) in found.message
    assert type(found.__cause__) is type(error)
    assert (f"at key {key}" in found.message) == (key is not None)


class NoTextError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class ExitingError(Exception):
    def __str__(self) -> str:
        raise SystemExit

    def __reduce__(self) -> str:
        raise GeneratorExit


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no file \udcff"), r"no file \udcff"),
        (NoTextError(), "its text cannot be made"),
        (ExitingError(), "its text cannot be made"),
    ],
    ids=["surrogate", "no text", "exit"],
)
def test_an_error_whose_text_cannot_be_encoded_or_made_arrives_all_the_same(error: Exception, said: str) -> None:
    """The state worker failed over it, and the user saw neither the error nor the line."""
    travelled = decode_message(encode_message(user_error(error, "'a'")), UserError)
    assert said in travelled.message
    assert said in str(raised(error, "'a'"))


def exit_now(_: object) -> bool:
    sys.exit(3)


def cancelled(_: object) -> bool:
    raise asyncio.CancelledError


class PanicException(BaseException):
    """As pyo3's."""


def panicked(_: object) -> bool:
    raise PanicException("called `Option::unwrap()` on a `None` value")


def interrupted(_: object) -> bool:
    raise KeyboardInterrupt


def opened_chain(function: Callable[[object], bool]) -> FunctionChain:
    step = Step("filter", "filter", cloudpickle.dumps(function))
    chain = FunctionChain((step,), None, ChainPlace(0, 1, 8, {}))
    chain.open()
    return chain


def closed(_: object) -> bool:
    raise GeneratorExit


@pytest.mark.parametrize("function", [exit_now, cancelled, panicked, closed])
def test_an_exit_in_a_function_is_an_error_of_the_user_with_the_element(function: Callable[[object], bool]) -> None:
    """It failed the task, which Spark tried again, and the query ended without a word of the user's line."""
    with pytest.raises(StepError, match="filter") as caught:
        opened_chain(function).run([7])
    assert isinstance(caught.value.cause, (SystemExit, asyncio.CancelledError, PanicException, GeneratorExit))
    assert caught.value.element == "7"
    assert function.__name__ in str(raised(caught.value.cause, None))


def test_an_interrupt_is_the_functions_where_no_key_can_have_made_it() -> None:
    """State workers do not hear Ctrl-C; the user's own process does, in `varvite.testing`."""
    chain = opened_chain(interrupted)
    with pytest.raises(KeyboardInterrupt):
        chain.run([7])
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(StepError, match="filter"):
            chain.run([7])
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_end_of_a_generator_is_no_error_of_the_function() -> None:
    def closed() -> Generator[int]:
        try:
            yield 1
        except user_code_raises():
            pytest.fail("the one who reads it has enough")

    generator = closed()
    next(generator)
    generator.close()


def test_a_generator_exit_of_called_code_is_an_error_of_the_function() -> None:
    """It was a `DidNotHappenError` that Spark tried again, without a word of the user's line."""

    def ours() -> Generator[str]:
        try:
            closed(None)
        except user_code_raises() as error:
            yield type(error).__name__

    assert list(ours()) == ["GeneratorExit"]
