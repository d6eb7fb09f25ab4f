"""Rows that cannot be read are the user's error: it names operator, column, type and value, and is not retryable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from varvite import KeyedProcessFunction
from varvite.changelog.types.factory import Types
from varvite.spark_integration.api.stream import DataStream
from varvite.spark_integration.functions.connected import KeyedCoProcessFunction
from varvite.storage.errors import InvalidRequestError, RetryableError
from varvite.testing import OperatorHarness

DAYS = pa.array([0, 5_000_000], pa.int32()).cast(pa.date32())
MOMENTS = pa.array([0, 300_000_000_000_000_000], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
TEXTS = pa.StringArray.from_buffers(2, pa.array([0, 1, 4], pa.int32()).buffers()[1], pa.py_buffer(b"a\xff\x1b["))
arrow: Any = pa
VALUES = {
    "date": DAYS,
    "timestamp": MOMENTS,
    "string": TEXTS,
    "array<date>": arrow.ListArray.from_arrays([0, 1, 2], DAYS),
    "struct<d:timestamp>": arrow.StructArray.from_arrays([MOMENTS], names=["d"]),
    "map<string,date>": arrow.MapArray.from_arrays([0, 1, 2], ["a", "b"], DAYS),
}
SEEN = {"date": "15659-07-15", "timestamp": "300000000000000000", "string": "ff", "array<date>": "15659-07-15",
        "struct<d:timestamp>": "11476-", "map<string,date>": "15659-07-15"}  # fmt: skip


class Same(KeyedProcessFunction[Any, Any, Any]):
    """Yields the keys."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        yield (value.k,)


class Processor(StatefulProcessor):
    """Yields nothing."""

    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        return iter(())


class Both(KeyedCoProcessFunction[Any, Any, Any, Any]):
    """Takes everything."""

    def process_element1(self, value: Any, ctx: Any) -> None:
        pass

    def process_element2(self, value: Any, ctx: Any) -> None:
        pass


OUT = "k string"
ONE_INPUT: dict[str, Callable[[DataStream], DataStream]] = {
    "process": lambda s: s.key_by("k").process(Same(), OUT, uid="op"),
    "key": lambda s: s.key_by("v").process(Same(), OUT, uid="op"),
    "map": lambda s: s.map(lambda row: row, "k string, v int").key_by("k").process(Same(), OUT, uid="op"),
    "key function": lambda s: s.key_by(lambda row: row.k, Types.STRING()).process(Same(), OUT, uid="op"),
    "rows of Spark": lambda s: s.key_by("k").transform_with_state(Processor(), OUT, time_mode="None", uid="op"),
}
TWO_INPUTS: dict[str, Callable[[DataStream, DataStream], DataStream]] = {
    "union": lambda s, other: (
        s.union(other).map(lambda row: row, "k string, v int").key_by("k").process(Same(), OUT, uid="op")
    ),
    "connected": lambda s, other: s.connect(other).key_by("k", "k").process(Both(), OUT, uid="op"),
}


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("form", [*ONE_INPUT, *TWO_INPUTS])
def test_a_value_that_cannot_be_read_is_the_users_error_with_its_column(form: str, kind: str) -> None:
    """Found as retryable errors and bare ones of Python, which named no column."""
    if form == "key" and kind not in ("date", "timestamp", "string"):
        return  # no type of a key
    schema = f"k string, v {kind}"
    rows = pa.RecordBatch.from_arrays([pa.array(["a", "b"]), VALUES[kind]], names=["k", "v"])
    build: Any = {**ONE_INPUT, **TWO_INPUTS}[form]
    schemas = [schema] * (2 if form in TWO_INPUTS else 1)
    with OperatorHarness(build, *schemas) as harness, pytest.raises(InvalidRequestError, match="'v'") as raised:
        harness.process_batch(rows)
    error = raised.value
    assert not isinstance(error, RetryableError)
    assert SEEN[kind] in error.message
    assert "\x1b" not in str(error)
