"""The keys of an operator's rows in a state worker, as the function gets them and as an error names them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import cloudpickle

from tests.workers.state_worker_setup import task_request
from varvite.changelog.keyed.backend import KeyedStateBackend
from varvite.changelog.segments.batch import BatchTime
from varvite.changelog.types.dynamic_key import DynamicKeyType
from varvite.changelog.working_stores.hashmap.store import HashMapStore
from varvite.datastream import KeyedProcessFunction
from varvite.spark_integration.messages.protocol import KEY_GROUP_COLUMN
from varvite.spark_integration.worker.runners.operator import OperatorRunner

KIND = DynamicKeyType()
NO_DATE = msgspec.msgpack.encode(msgspec.msgpack.Ext(4, b"NaT"))
"""A key that an earlier version took and that no version can read."""


class Keys(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        if value.v == 13:
            raise ArithmeticError("unlucky")
        if value.v == 14:
            sys.exit("enough")
        yield ctx.get_current_key()


def run(rows: list[tuple[bytes | None, int]]) -> tuple[list[Any], OperatorRunner]:
    type_string = KIND.type_string()
    request = task_request(key_type=type_string, key_columns=("k",), parallelism=1).batch.operator
    backend = KeyedStateBackend(HashMapStore(operator="op", key_type=type_string, low=0, high=8), KIND, "op")
    backend.begin_batch(BatchTime(1000, 50))
    runner = OperatorRunner(request, 0, cloudpickle.dumps(Keys()), backend)
    runner.start(1000, 50)
    columns = {
        "k": pa.array([key for key, _ in rows], pa.binary()),
        "v": pa.array([number for _, number in rows], pa.int64()),
        KEY_GROUP_COLUMN: pa.array([0] * len(rows), pa.int32()),
    }
    out = runner.run(pa.RecordBatch.from_pydict(columns))
    runner.close()
    return out, runner


def test_a_function_gets_the_keys_of_its_rows_and_an_error_names_the_key() -> None:
    out, runner = run([(KIND.freeze(("a", 1)), 1), (None, 2), (KIND.freeze("b"), 13), (KIND.freeze("c"), 3)])
    assert out == [("a", 1), None]
    assert runner.error is not None
    assert (runner.error.exception_type, runner.error.key) == ("builtins.ArithmeticError", "'b'")


def test_a_key_that_cannot_be_read_is_an_error_of_the_user_that_names_the_key() -> None:
    """Naming the key raised the same once more, and the batch ended with an error about corrupt state."""
    out, runner = run([(KIND.freeze("a"), 1), (NO_DATE, 2)])
    assert out == ["a"]
    assert runner.error is not None
    assert runner.error.exception_type == "varvite.storage.errors.InvalidRequestError"
    assert "pass key_type to key_by" in runner.error.message
    assert runner.error.key == repr(NO_DATE)


def test_an_exit_in_a_function_is_an_error_of_the_user_that_names_the_key() -> None:
    """It failed the task, which Spark tried again."""
    out, runner = run([(KIND.freeze("a"), 1), (KIND.freeze("b"), 14), (KIND.freeze("c"), 3)])
    assert out == ["a"]
    assert runner.error is not None
    assert (runner.error.exception_type, runner.error.key) == ("builtins.SystemExit", "'b'")
    assert "sys.exit" in runner.error.traceback
