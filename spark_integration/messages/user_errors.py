"""A user function's exception as it reaches the user: with key, operator and batch, and the original as its cause.

State that the function declares in `open` otherwise than it is stored is another matter: that error is raised as it is.
"""

from __future__ import annotations

import pickle
import re
import signal
import sys
import traceback
from typing import Final

from pyspark import cloudpickle

from varvite.spark_integration.messages.protocol import UserError
from varvite.spark_integration.processes import end_if_forked
from varvite.storage import errors
from varvite.storage.errors import (
    CONTEXT_FIELDS,
    IncompatibleError,
    InvalidRequestError,
    UserFunctionError,
    VarviteError,
)


def user_code_raises() -> tuple[type[BaseException], ...]:
    """Classes of exceptions that are the user's error, evaluated by `except` while one is raised.

    `sys.exit()` is neither our process's end nor tried again, and classes like that of a panic in a library in Rust, or
    of a timeout in gevent, are no `Exception`s. A `GeneratorExit` that no called code has raised is what closes a
    generator of ours. A `KeyboardInterrupt` is the function's only where no key can have made it: not in the user's own
    process (`varvite.testing`).
    """
    error = sys.exception()
    is_key = isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    return () if is_key or _closes_generator(error) else (BaseException,)


def _closes_generator(error: BaseException | None) -> bool:
    """Is this the end of the generator that catches it, and not an exception of code that it has called?"""
    if not isinstance(error, GeneratorExit):
        return False
    return error.__traceback__ is None or error.__traceback__.tb_next is None


def message_of(error: BaseException) -> str:
    """The text of an exception, whatever it is, so that it can be encoded."""
    try:
        return _encodable(str(error))
    except user_code_raises():
        return "(its text cannot be made)"


def traceback_of(error: BaseException) -> str:
    """Its traceback, as text that can be encoded."""
    return _encodable("".join(traceback.format_exception(error)))


def _encodable(text: str) -> str:
    """A text without lone surrogates, which names of files may have, and which have no encoding."""
    return text.encode(errors="backslashreplace").decode()


class UserErrorRaised(Exception):  # noqa: N818  not an error of ours: it carries one out of the attempt
    """A user's function raised, in an operator or in a chain of functions between operators."""

    def __init__(self, error: UserError, operator: str | None, partition: int) -> None:
        super().__init__(operator)
        self.error = error
        self.operator = operator
        self.partition = partition


READING: Final = "while rows of the input were read"
"""Place of an error that no function has raised: the input itself is wrong."""


def user_function_error(
    raised_in: UserErrorRaised, job: str, batch: int
) -> UserFunctionError | IncompatibleError | InvalidRequestError:
    """The error that the user gets to see."""
    error = raised_in.error
    key = "" if error.key is None else f" at key {error.key}"
    where = f" {error.where}" if error.where else ""
    raised = UserFunctionError(
        f"the user's function raised {error.exception_type}: {error.message}{key}{where}\n\n{error.traceback}",
        job=job,
        operator=raised_in.operator,
        partition=raised_in.partition,
        batch=batch,
    )
    if error.pickled is not None:
        try:
            cause = pickle.loads(error.pickled)  # noqa: S301  made by this job's own worker from its own function
        except user_code_raises():  # a class that only exists on the executor
            cause = None
        of_no_function = (IncompatibleError, InvalidRequestError) if error.where == READING else IncompatibleError
        if isinstance(cause, of_no_function) and error.key is None:
            cause.with_context(job=job, operator=raised_in.operator, partition=raised_in.partition, batch=batch)
            return cause
        if isinstance(cause, BaseException):
            raised.__cause__ = cause
    return raised


def user_error(error: BaseException, key: str | None, where: str = "") -> UserError:
    """An exception of user code in a form that travels."""
    end_if_forked()
    try:
        pickled: bytes | None = cloudpickle.dumps(error)
        pickle.loads(pickled)  # noqa: S301  what cannot be loaded here cannot be loaded by the driver
    except user_code_raises():
        pickled = None
    return UserError(
        exception_type=f"{type(error).__module__}.{type(error).__qualname__}",
        message=message_of(error),
        traceback=traceback_of(error),
        key=key,
        pickled=pickled,
        where=where,
    )


WORKER_NOTE: Final = "In the state worker:"
"""Heads the note of an error of a state worker: its traceback there, or the last lines of the log."""
TRIED_AGAIN: Final = (
    "Spark tries the task again while it has attempts left (spark.task.maxFailures; local[N] makes just one); if it "
    "has none, start the query again"
)
"""Advice in an error of a task that has lost its state worker; nothing was changed."""
_RAISED: Final = re.compile(
    rf"^(?:.*: )?varvite\.storage\.errors\.(\w+): (.*?)(?: \[((?:{'|'.join(CONTEXT_FIELDS)})=[^\]\n]*)\])?$",
    re.MULTILINE,
)
_NUMBERS: Final = frozenset({"partition", "batch", "epoch"})


def task_error(failure: Exception) -> VarviteError | None:
    """The error that a task raised, with what it knew of its context; None if it was none of ours."""
    text, _, note = str(failure).partition(f"\n{WORKER_NOTE}\n")
    matches = list(_RAISED.finditer(text))
    if not matches:
        return None
    name, message, context = matches[-1].groups()  # the last one of a chain of causes is what was raised
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, VarviteError)):
        return None
    error = kind(message).with_context(**_context(context or ""))
    lines = note.partition("\n\tat ")[0].strip()  # behind it is the stack of the JVM
    if lines:
        error.add_note(f"{WORKER_NOTE}\n{lines}")
    return error


def _context(text: str) -> dict[str, str | int]:
    pairs = (pair.partition("=") for pair in text.split(", ") if pair)
    return {
        field: int(value) if field in _NUMBERS and value.isdigit() else value
        for field, _, value in pairs
        if field in CONTEXT_FIELDS
    }
