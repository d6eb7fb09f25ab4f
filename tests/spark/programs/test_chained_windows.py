"""Windows, timers and Spark's functions behind windows on real Spark, over restarts and late rows: nothing is lost."""

from __future__ import annotations

import os
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.spark.job.test_job import kill_state_workers
from varvite.common import Time
from varvite.datastream import (
    KeyedProcessFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from varvite.datastream.window import EventTimeSessionWindows, EventTimeTrigger, TumblingEventTimeWindows

pytestmark = pytest.mark.spark
DELAY_MS = 1_000
BATCHES = [
    [("a", 0.5), ("a", 3), ("b", 9), ("a", 12)],
    [("a", 25), ("b", 26), ("a", 8)],  # 8: its window has ended
    [("a", 31), ("b", 24.5)],
    [("b", 52), ("a", 33)],
    [("a", 55), ("a", 12)],
    [("a", 95)],
    [("b", 120)],
    [("b", 200)],
]
"""Keys and seconds; a file each, and a batch."""
ROWS = "k string, at timestamp, n bigint"


class CountAtLast(ProcessWindowFunction[Any, Any, Any, Any]):
    """The number of elements, at the window's last millisecond."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield key, datetime.fromtimestamp(context.window().max_timestamp() / 1000, UTC), len(list(elements))


class CountBeside(CountAtLast):
    """The same without the time, which the next operator gets beside the elements, as in Flink."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield key, len(list(elements))


class Sums(ProcessWindowFunction[Any, Any, Any, Any]):
    """The window's begin and end, how many results of windows are in it, and how many elements those have counted."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        counts = [row.n for row in elements]
        yield key, context.window().start, context.window().end, len(counts), sum(counts)


class SumsOfAll(ProcessAllWindowFunction[Any, Any, Any]):
    """The same of all keys."""

    def process(self, context: Any, elements: Any) -> Any:
        yield from Sums().process("all", context, elements)


class Asked(EventTimeTrigger):
    """A trigger that varvite does not know, and so has to ask."""


class TellTimers(KeyedProcessFunction):
    """A timer at the time of each row; tells it when it fires."""

    def process_element(self, value: Any, ctx: Any) -> None:
        assert ctx.timestamp() > ctx.timer_service().current_watermark(), "the row is not late"
        ctx.timer_service().register_event_time_timer(ctx.timestamp())

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        assert timestamp <= ctx.timer_service().current_watermark()
        yield ctx.get_current_key(), timestamp, timestamp, 1, 1


OUTPUT = "k string, low bigint, high bigint, results bigint, n bigint"


def behind(stream: Any, kind: str) -> Any:
    if kind == "all":
        windows = TumblingEventTimeWindows.of(Time.seconds(10))
        return stream.window_all(windows).process(SumsOfAll(), OUTPUT, uid="second")
    keyed = stream.key_by("k")
    if kind == "timers":
        return keyed.process(TellTimers(), OUTPUT, uid="second")
    if kind == "session":
        return keyed.window(EventTimeSessionWindows.with_gap(Time.seconds(11))).process(Sums(), OUTPUT, uid="second")
    seconds, _, trigger = kind.partition(" ")
    windowed = keyed.window(TumblingEventTimeWindows.of(Time.seconds(int(seconds))))
    if trigger:
        windowed = windowed.trigger(Asked())
    return windowed.process(Sums(), OUTPUT, uid="second")


class ChainedJob:
    """Windows of 10 s, and something behind them; batch 3 is executed twice, and its workers are killed."""

    def __init__(self, spark: SparkSession, directory: Path, kind: str) -> None:
        self.spark, self.directory = spark, directory
        self.kind, self.is_beside = kind.removesuffix(" beside"), kind.endswith(" beside")
        self.rows: dict[int, list[Any]] = {}
        self.fails = False
        (directory / "rows").mkdir()

    def add(self, number: int) -> None:
        at = [datetime.fromtimestamp(second, UTC) for _, second in BATCHES[number]]
        path = self.directory / "rows" / f"{number}.parquet"
        pq.write_table(pa.table({"k": [key for key, _ in BATCHES[number]], "at": at}), path)
        os.utime(path, (1_700_000_000 + number,) * 2)

    def collect(self, rows: Any, batch: int) -> None:
        self.rows[batch] = list(map(tuple, rows.collect()))
        if batch == 3 and self.fails:
            raise OSError("the sink is full")

    def run(self) -> None:
        spark, directory = self.spark, self.directory
        rows = spark.readStream.schema("k string, at timestamp").option("maxFilesPerTrigger", 1)
        env = StreamExecutionEnvironment.get_execution_environment(spark).set_parallelism(2)
        env.configure("materializer.mode", "off").configure("pipeline.heartbeat.enabled", "false")
        env.configure("execution.checkpointing.dir", str(directory / "state"))
        stream = env.from_dataframe(rows.parquet(str(directory / "rows"))).with_watermark("at", "1 second")
        windowed = stream.key_by("k").window(TumblingEventTimeWindows.of(Time.seconds(10)))
        if self.is_beside:
            counts = windowed.process(CountBeside(), "k string, n bigint", uid="first")
        else:
            counts = windowed.process(CountAtLast(), ROWS, uid="first")
        writer = behind(counts, self.kind).foreach_batch(self.collect).query_name("chained")
        writer = writer.option("checkpointLocation", str(directory / "spark"))
        writer.trigger(availableNow=True).start().awaitTermination()


def counted() -> Counter[tuple[str, int]]:
    """Counts of Flink's first windows, by key and begin in seconds, as far as the watermark gets."""
    found: Counter[tuple[str, int]] = Counter()
    watermark = float("-inf")
    for rows in BATCHES:
        for key, second in rows:
            start = int(second) // 10 * 10
            if (start + 10) * 1000 - 1 > watermark:
                found[key, start] += 1
        watermark = max(watermark, *(second * 1000 - DELAY_MS for _, second in rows))
    # The last batch moves the watermark for one that does not come any more.
    reached = max(second for rows in BATCHES[:-1] for _, second in rows) * 1000 - DELAY_MS
    return Counter({(key, start): n for (key, start), n in found.items() if (start + 10) * 1000 - 1 <= reached})


def expected(kind: str) -> list[Any]:
    windows: dict[tuple[str, int, int], list[int]] = {}
    size = int(kind.partition(" ")[0]) if kind[0].isdigit() else 10
    for (key, start), n in sorted(counted().items()):
        last = (start + 10) * 1000 - 1
        if kind == "session":
            low, high = last, last + 11_000
            touching = [w for w in windows if w[0] == key and w[1] <= high and w[2] >= low]
            held = [n for window in touching for n in windows.pop(window)]
            windows[key, min([low, *(w[1] for w in touching)]), high] = [*held, n]
        elif kind == "timers":
            windows[key, last, last] = [1]
        else:
            low = last // (size * 1000) * size * 1000
            windows.setdefault(("all" if kind == "all" else key, low, low + size * 1000), []).append(n)
    return sorted((*window, len(counts), sum(counts)) for window, counts in windows.items() if window[2] - 1 <= 119_000)


@pytest.mark.long
@pytest.mark.parametrize(
    "kind",
    [
        *("10", "5 asked beside", "timers"),
        *(
            pytest.param(kind, marks=pytest.mark.rare)
            for kind in (
                "20",
                "5",
                "10 asked",
                "all",
                "session",
                "20 beside",
                "all beside",
                "session beside",
                "timers beside",
            )
        ),
    ],
)
def test_what_is_behind_windows_gets_each_of_them_once(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    job = ChainedJob(spark, tmp_path, kind)
    for number in range(5):
        job.add(number)
    job.fails = True
    with pytest.raises(Exception, match=r"foreach_batch raised builtins\.OSError"):
        job.run()
    job.fails = False
    first = job.rows[3]
    kill_state_workers(spark)
    job.run()
    assert sorted(job.rows[3]) == sorted(first), "the same batch again gives the same rows"
    for number in range(5, len(BATCHES)):
        job.add(number)
    job.run()
    assert list(job.rows) == list(range(len(BATCHES)))
    assert sorted(row for rows in job.rows.values() for row in rows) == expected(job.kind)
