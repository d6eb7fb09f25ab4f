"""Keyed functions that tests send to state workers; here, so that the workers can import them."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import Row

from tests.spark.keyed_jobs import Sums
from varvite import KeyedProcessFunction, RuntimeContext, Types, ValueStateDescriptor
from varvite.storage import fail_point


class CountRows(KeyedProcessFunction[str, Row, tuple[Any, ...]]):
    """Rows per key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[Any, ...]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value.k, count


class EventTimes(KeyedProcessFunction[str, Row, tuple[Any, ...]]):
    """Yields what the context says of time."""

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[Any, ...]]:
        yield value.k, ctx.timestamp(), ctx.current_watermark()


class Failing(Sums):
    """Raises at a certain value."""

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[Any, ...]]:
        if value.v == 13:
            raise ArithmeticError(f"{value.v} is unlucky")
        yield from super().process_element(value, ctx)


class Counting(Sums):
    """Writes a line to a file for every row that it is called for, and counts in a field of its instance."""

    def __init__(self, calls: Path) -> None:
        self.calls = calls
        self.rows_of_instance = 0

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[Any, ...]]:
        self.rows_of_instance += 1
        with self.calls.open("a") as lines:
            lines.write(f"{os.getpid()} {id(self)} {value.k} {value.v} {self.rows_of_instance}\n")
        yield from super().process_element(value, ctx)


class Mute(Sums):
    """Yields nothing while a file is there."""

    def __init__(self, muted: Path) -> None:
        self.muted = muted

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[Any, ...]]:
        rows = list(super().process_element(value, ctx))
        yield from () if self.muted.exists() else rows


class Dying(Sums):
    """Kills its own process, the state worker, once, at a certain value."""

    def __init__(self, marker: Path, at: int) -> None:
        self.marker = marker
        self.at = at

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[Any, ...]]:
        if value.v == self.at and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield from super().process_element(value, ctx)


class Limited(Sums):
    """Forbids its own process, the state worker, to write files."""

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[Any, ...]]:
        if value.v == 13:
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        yield from super().process_element(value, ctx)


class DyingAt(Sums):
    """Arms a fail point of its own process, the state worker."""

    def __init__(self, name: str, marker: Path) -> None:
        self.setting = f"{name}:1:{marker}"

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[Any, ...]]:
        if value.v == 13:
            fail_point.arm(self.setting)
        yield from super().process_element(value, ctx)


class Hanging(Sums):
    """Does not return at the value 13, as long as a file is there: sleeps, or stops its own process."""

    def __init__(self, marker: Path, *, stops: bool) -> None:
        self.marker = marker
        self.stops = stops

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[Any, ...]]:
        if value.v == 13 and self.marker.exists():
            (self.marker.parent / "entered").touch()
            if self.stops:
                os.kill(os.getpid(), signal.SIGSTOP)
            while self.marker.exists():
                time.sleep(0.1)
        yield from super().process_element(value, ctx)
