"""Functions of jobs whose batches take either way; here, so that the workers can import them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import Accumulator, TaskContext
from pyspark.sql import Row

from varvite import KeyedProcessFunction, RuntimeContext, Types, ValueStateDescriptor, VectorizedProcessFunction


class Running(KeyedProcessFunction[Any, Row, tuple[Any, ...]]):
    """(key, rows so far, their sum); counts rows in an accumulator, and prints."""

    def __init__(self, rows: Accumulator[int] | None = None) -> None:
        self._rows = rows

    def open(self, runtime_context: RuntimeContext) -> None:
        self.n = runtime_context.get_state(ValueStateDescriptor("n", Types.LONG()))
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[Any, ...]]:
        self.n.update((self.n.value() or 0) + 1)
        self.total.update((self.total.value() or 0) + value.v)
        if self._rows is not None:
            self._rows += 1
        yield value.k, self.n.value(), self.total.value()


class PerCount(KeyedProcessFunction[Any, Row, tuple[Any, ...]]):
    """Behind `Running`: (n, keys that came to n, their totals)."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.keys = runtime_context.get_state(ValueStateDescriptor("keys", Types.LONG()))
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[Any, ...]]:
        self.keys.update((self.keys.value() or 0) + 1)
        self.total.update((self.total.value() or 0) + value.total)
        yield value.n, self.keys.value(), self.total.value()


class Counts(KeyedProcessFunction[Any, Any, Any]):
    """Pairs as they come, whatever their order; counts those of each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        self.count.update((self.count.value() or 0) + 1)
        yield value


class InTask(KeyedProcessFunction[Any, Row, tuple[Any, ...]]):
    """The task as a function sees it."""

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[Any, ...]]:
        task = TaskContext.get()
        assert task is not None
        sys.stdout.write(f"row {value.v}\n")
        is_ours = os.environ.get("SPARK_LOCAL_DIRS") is not None
        yield value.k, task.partitionId(), task.attemptNumber(), task.getLocalProperty("streaming.sql.batchId"), is_ours


class Schemas(VectorizedProcessFunction):
    """The Arrow schema of the rows that come, and their number."""

    def process_batch(self, batch: pa.RecordBatch, ctx: Any) -> Iterator[pa.RecordBatch]:
        names = [name for name in batch.schema.names if not name.startswith("__varvite")]
        columns = pa.schema([batch.schema.field(name) for name in names])
        yield pa.RecordBatch.from_pydict({"text": [str(columns)]})


class DiesOnce(Running):
    """Its state worker is killed in the middle of a batch, once."""

    def __init__(self, marker: Path, at: int) -> None:
        super().__init__()
        self._marker, self._at = marker, at

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[Any, ...]]:
        if value.v == self._at and not self._marker.exists():
            self._marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield from super().process_element(value, ctx)


class Raises(Running):
    """Raises at one value."""

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[Any, ...]]:
        if value.v == 13:
            raise ArithmeticError("13 is unlucky")
        yield from super().process_element(value, ctx)


class Repeats(Running):
    """Many rows for each."""

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[Any, ...]]:
        for row in super().process_element(value, ctx):
            for _ in range(1000):
                yield row
