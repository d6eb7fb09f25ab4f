"""An exception of a task is read from the text that Spark keeps of it."""

from __future__ import annotations

import pytest

from varvite.spark_integration.messages.user_errors import task_error
from varvite.storage.errors import DidNotHappenError, InvalidRequestError

TEXT = """Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure: Lost task 0.3:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "pump.py", line 154, in stream
    raise failure_error(error.failure, task) from None
{raised}
In the state worker:
Traceback (most recent call last):
  File "s3.py", line 1, in get
varvite.storage.errors.DidNotHappenError: what the worker itself said [object_name=chain/2]
\tat org.apache.spark.api.python.BasePythonRunner
"""


def of(raised: str) -> Exception:
    return RuntimeError(TEXT.format(raised=raised))


def test_class_message_and_context_come_back() -> None:
    raised = InvalidRequestError(
        "the clock differs [much]; synchronise it", job="j", partition=1, object_name="chain/1"
    )
    found = task_error(of(f"varvite.storage.errors.InvalidRequestError: {raised}"))
    assert type(found) is InvalidRequestError
    assert found.message == raised.message
    assert found.context == raised.context
    assert str(found) == str(raised)


def test_the_lines_of_the_worker_come_back_as_a_note() -> None:
    found = task_error(of("varvite.storage.errors.DidNotHappenError: the disk is full [partition=1]"))
    assert found is not None
    heading, *_, last = found.__notes__[0].split("\n")
    assert heading == "In the state worker:"
    assert last.endswith("what the worker itself said [object_name=chain/2]"), "without the stack of the JVM"


def test_an_error_without_context_comes_back_after_other_words() -> None:
    found = task_error(of("pyspark.X: varvite.storage.errors.DidNotHappenError: the disk is full"))
    assert type(found) is DidNotHappenError
    assert (found.message, found.context) == ("the disk is full", {})


def test_what_was_raised_last_counts() -> None:
    first = "varvite.storage.errors.DidNotHappenError: first\n\nThe above exception was the direct cause of\n"
    found = task_error(of(first + "varvite.storage.errors.InvalidRequestError: then"))
    assert type(found) is InvalidRequestError


@pytest.mark.parametrize(
    "raised", ["ValueError: x", "varvite.storage.errors.NoSuchClass: x", "varvite.storage.errors.Any: x"]
)
def test_other_failures_stay_what_they_are(raised: str) -> None:
    assert task_error(of(raised)) is None
