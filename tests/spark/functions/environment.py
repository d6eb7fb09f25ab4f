"""Functions that use what Spark offers to user code: accumulators, the task's context, sessions."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import SparkContext, TaskContext
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import Row, SparkSession

from tests.spark.keyed_jobs import Sums
from varvite import KeyedProcessFunction, RuntimeContext


class Lists(AccumulatorParam[list[Any]]):
    """Lists; the zero is one list, which is added to in place, as a user may write it."""

    def __init__(self) -> None:
        self.empty: list[Any] = []

    def zero(self, value: list[Any]) -> list[Any]:
        return self.empty

    def addInPlace(self, value1: list[Any], value2: list[Any]) -> list[Any]:  # noqa: N802
        value1.extend(value2)
        return value1


class Adding(Sums):
    """Adds each row to accumulators; kills its process once, and raises while a file is there, at the value 13."""

    def __init__(self, rows: Accumulator[int], values: Accumulator[list[Any]], directory: Path) -> None:
        self.accumulators = rows, values
        self.killed = directory / "killed"
        self.failing = directory / "failing"

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[Any, ...]]:
        rows, values = self.accumulators
        rows += 1
        values.add([value.v])
        if value.v == 13 and not self.killed.exists():
            self.killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if value.v == 13 and self.failing.exists():
            raise ArithmeticError("13")
        yield from super().process_element(value, ctx)


def context_facts() -> list[Any]:
    """Facts of the task's context that do not depend on the job, and what is refused in a function."""
    context = TaskContext.get()
    assert context is not None
    refused: list[str] = []
    for make in (SparkSession.builder.getOrCreate, SparkContext.getOrCreate, SparkContext):
        try:
            make()
            refused.append("made")
        except Exception as error:  # noqa: BLE001  the test compares them
            refused.append(f"{type(error).__name__}: {error}")
    return [
        type(context).__name__,
        context.attemptNumber(),
        context.cpus(),
        sorted(context.resources()),
        context.getLocalProperty("mine"),
        context.getLocalProperty("nobody's"),
        SparkSession.getActiveSession() is None,
        *refused,
    ]


class Contexts(KeyedProcessFunction[str, Row, tuple[Any, ...]]):
    """Yields what the task's context says, in `open` too."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.facts = context_facts()

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[Any, ...]]:
        context = TaskContext.get()
        assert context is not None
        ids = context.partitionId(), context.stageId(), context.taskAttemptId()
        batch = context.getLocalProperty("streaming.sql.batchId")
        yield value.k, repr(ids), f"{batch}", repr([self.facts, context_facts()])


class Exiting(Sums):
    """Prints, and ends its process, at the value 13."""

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[Any, ...]]:
        if value.v == 13:
            print("the last line of", value.k)  # noqa: T201  what the test is about
            os._exit(3)
        yield from super().process_element(value, ctx)
