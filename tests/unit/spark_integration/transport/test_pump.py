"""Rows that the pump lets through."""

from __future__ import annotations

import pickle
import struct

import pyarrow as pa
import pytest

from tests.workers.state_worker_setup import FUNCTION, batch_request, task_request
from varvite.spark_integration.messages.protocol import KEY_GROUP_COLUMN, PARTITION_COLUMN, TaskRequest, encode_message
from varvite.spark_integration.transport.pump import ExecutionNotes, Pump, failure_error, own_rows
from varvite.spark_integration.transport.pump import task_request as make_task_request
from varvite.spark_integration.worker.process.request_handler import describe_failure
from varvite.storage.clock import SystemTokens
from varvite.storage.errors import CorruptDataError, DidNotHappenError, InvalidRequestError, InvariantError


def batch(key_groups: list[int | None], **columns: list[int]) -> pa.RecordBatch:
    groups = pa.array(key_groups, pa.int32())
    return pa.RecordBatch.from_arrays(
        [*(pa.array(c) for c in columns.values()), groups], names=[*columns, KEY_GROUP_COLUMN]
    )


TASK = task_request(partition=1, parallelism=2, max_parallelism=8)


def test_rows_of_the_partition_pass_without_the_partition_column() -> None:
    rows = own_rows(batch([4, 7, 5], value=[1, 2, 3], **{PARTITION_COLUMN: [1, 1, 1]}), TASK)
    assert rows.to_pydict() == {"value": [1, 2, 3], KEY_GROUP_COLUMN: [4, 7, 5]}


def test_the_null_row_of_an_empty_partition_is_dropped() -> None:
    assert own_rows(batch([None], value=[0]), TASK).num_rows == 0
    assert own_rows(batch([None, 4], value=[0, 1]), TASK).to_pydict()["value"] == [1]


@pytest.mark.parametrize("key_groups", [[3], [4, 3], [0, 7], [4, 8]])
def test_rows_of_another_partition_fail_the_task(key_groups: list[int | None]) -> None:
    with pytest.raises(DidNotHappenError, match="partition 1"):
        own_rows(batch(key_groups, value=list(range(len(key_groups)))), TASK)


def test_input_without_key_groups_is_a_bug() -> None:
    with pytest.raises(InvariantError, match=KEY_GROUP_COLUMN):
        own_rows(pa.record_batch({"value": [1]}), TASK)


def test_each_task_has_a_tag_of_its_own() -> None:
    request = batch_request()
    tasks: list[TaskRequest] = [make_task_request(request, 0, 1, SystemTokens()) for _ in range(2)]
    assert tasks[0].tag != tasks[1].tag
    assert len(tasks[0].tag) == 32


def test_a_pump_travels_to_the_task_but_runs_only_there() -> None:
    pump = pickle.loads(pickle.dumps(Pump(encode_message(batch_request()), FUNCTION)))
    with pytest.raises(InvalidRequestError, match="outside of a Spark task"):
        next(pump(iter(())))


def test_execution_notes_accumulate_in_one_list_and_every_task_begins_with_its_own() -> None:
    """Copying the list for each of thousands of tasks took time in the square of their number."""
    notes = ExecutionNotes()
    zero = notes.zero([("o", 0, "t")])
    assert notes.addInPlace(zero, [("o", 1, "u")]) is zero
    assert zero == [("o", 1, "u")]
    assert notes.zero(zero) == []


def test_an_error_keeps_class_and_context_over_the_socket() -> None:
    error = failure_error(describe_failure(CorruptDataError("bad", object_name="chain/1", batch=77)), TASK)
    assert type(error) is CorruptDataError
    assert error.context == {
        "object_name": "chain/1",
        "batch": 77,
        "job": "job",
        "operator": "count",
        "partition": 1,
        "epoch": 1,
    }


def test_an_error_that_cannot_be_pickled_is_described() -> None:
    class LocalError(CorruptDataError):
        pass

    error = failure_error(describe_failure(LocalError("bad")), TASK)
    assert type(error) is DidNotHappenError
    assert "LocalError: bad" in error.message


@pytest.mark.parametrize(
    "error", [TypeError("x"), KeyError("x"), struct.error("x"), pa.ArrowInvalid("x"), OverflowError()]
)
def test_an_error_that_comes_again_is_not_retryable(error: Exception) -> None:
    """Found as a supervisor that starts a job for ever whose rows make the same error each time."""
    assert type(failure_error(describe_failure(error), TASK)) is InvariantError


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("of a library"), OSError(28, "No space left on device")])
def test_an_error_that_may_pass_is_retryable(error: Exception) -> None:
    assert type(failure_error(describe_failure(error), TASK)) is DidNotHappenError
