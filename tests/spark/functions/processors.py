"""Processors written for Spark, which tests run on Spark's engine and on varvite; nothing in here knows varvite."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming.state import GroupState
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import LongType, StructField, StructType

OUTPUT = "k string, what string, data string"
RICH = (
    "at timestamp, day date, amount decimal(10,2), ratio double, flag boolean, raw binary, "
    "tags array<string>, counts map<string,bigint>, point struct<x:bigint,y:string>, local timestamp_ntz"
)


class EveryMethod(StatefulProcessor):
    """Does with state and timers what each row's `op` says, and tells everything about its key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.value = handle.getValueState("value", "n bigint, s string")
        self.rich = handle.getValueState("rich", RICH)
        self.list = handle.getListState("list", StructType([StructField("n", LongType())]))
        self.map = handle.getMapState("map", "s string, n bigint", "n bigint, s string")
        handle.deleteIfExists("never there")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        seen: list[Any] = []
        for row in rows:
            seen.append((row.op, row.n))
            for out in self.act(key, row):
                yield Row(k=key[0], what="act", data=repr((row.op, out)))
        watermark = timerValues.getCurrentWatermarkInMs()
        told = (type(key).__name__, key, sorted(seen), watermark)
        yield Row(data=repr((told, self.told())), k=key[0], what="rows")

    def act(self, key: Any, row: Any) -> list[Any]:
        op, n = row.op, row.n
        out: list[Any] = []
        if op == "update":
            out.append((self.value.exists(), self.value.get()))
            self.value.update((n, None if n % 2 else f"s{n}"))
        elif op == "clear":
            self.value.clear()
            self.list.clear()
            self.map.clear()
            self.rich.clear()
        elif op == "rich":
            self.rich.update((
                row.at, row.at.date(), None, n / 4, n > 2, b"\x00\xff", ["a", None], {"a": n, "b": None}, (n, "y"),
                row.at.replace(tzinfo=None),
            ))  # fmt: skip
        elif op == "list":
            self.list.put([(n,), (n + 1,)])
            self.list.appendValue((n + 2,))
            self.list.appendList([(n + 3,), (None,)])
        elif op == "map":
            self.map.updateValue(("a", n), (n, "one"))
            self.map.updateValue(("b", n), (None, None))
            self.map.updateValue(("c", 0), (n, "three"))
            self.map.removeKey(("c", 0))
            self.map.removeKey(("none", 0))
            out.append((self.map.containsKey(("a", n)), self.map.containsKey(("x", 1))))
            out.append((self.map.getValue(("b", n)), self.map.getValue(("x", 1)), self.map.exists()))
        elif op == "timer":
            self.handle.registerTimer(n * 1000)
            self.handle.registerTimer(n * 1000)
            self.handle.registerTimer(n * 1000 + 1)
        elif op == "untimer":
            self.handle.deleteTimer(n * 1000)
            self.handle.deleteTimer(77)
        return out

    def told(self) -> Any:
        maps = sorted(self.map.iterator(), key=repr), sorted(self.map.keys()), sorted(self.map.values(), key=repr)
        timers = sorted(self.handle.listTimers())
        lists = self.list.exists(), list(self.list.get())
        return (self.value.exists(), self.value.get()), self.rich.get(), lists, self.map.exists(), maps, timers

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        time_ms = expiredTimerInfo.getExpiryTimeInMs()
        if time_ms % 1000 == 1:
            self.handle.registerTimer(time_ms + 1)  # due already: fires in the next batch
            self.handle.registerTimer(time_ms)  # this very timer
            self.handle.registerTimer(900_000)
        watermark = timerValues.getCurrentWatermarkInMs()
        yield Row(k=key[0], what="timer", data=repr((type(key).__name__, time_ms, watermark, self.told())))

    def close(self) -> None:
        self.value = None


class ProcessingTime(StatefulProcessor):
    """Timers of processing time, of times that are over when they are set; state for a day, and for one batch."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.states = [
            (
                handle.getValueState(f"value {ttl_ms}", "n bigint", ttl_ms),
                handle.getListState(f"list {ttl_ms}", "n bigint", ttl_ms),
                handle.getMapState(f"map {ttl_ms}", "n bigint", "n bigint", ttlDurationMs=ttl_ms),
            )
            for ttl_ms in (86_400_000, 1)
        ]

    def told(self) -> Iterator[Any]:
        for value, elements, entries in self.states:
            yield value.exists(), value.get(), elements.exists(), list(elements.get()), entries.exists()
            yield sorted(entries.iterator()), sorted(entries.keys()), sorted(entries.values())
            yield entries.containsKey((1,)), entries.getValue((1,))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        now = timerValues.getCurrentProcessingTimeInMs()
        yield Row(k=key[0], what="before", data=repr(list(self.told())))
        for row in rows:
            self.handle.registerTimer(now - 1000 * row.n)
            for value, elements, entries in self.states:
                value.update((row.n,))
                elements.appendValue((row.n,))
                elements.appendList([(0,)])
                entries.updateValue((row.n,), (row.n,))
        yield Row(k=key[0], what="after", data=repr(list(self.told())))
        yield Row(k=key[0], what="timers", data=repr(sorted(now - time_ms for time_ms in self.handle.listTimers())))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        now = timerValues.getCurrentProcessingTimeInMs()
        yield Row(k=key[0], what="fired", data=repr(now - expiredTimerInfo.getExpiryTimeInMs()))


class InPandas(StatefulProcessor):
    """Counts with DataFrames, from an initial state on."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.total = handle.getValueState("total", "n bigint, rows int")

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        assert list(initialState.columns) == ["who", "start"]
        assert timerValues.getCurrentProcessingTimeInMs() == -1
        self.total.update((initialState["start"].sum(), len(initialState)))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        total, count = self.total.get() or (0, 0)
        for frame in rows:
            total += frame["n"].sum()
            count += len(frame)
        self.total.update((total, count))
        shape = list(frame.columns), [str(t) for t in frame.dtypes]
        what = ["pandas", None]
        yield pd.DataFrame(
            {"what": what, "k": [key[0]] * 2, "data": [repr((int(total), int(count), shape))] * 2}, dtype=object
        )


class FromInitialState(StatefulProcessor):
    """Begins with an initial state of Rows."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.list = handle.getListState("list", "n bigint")

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        self.list.appendValue((initialState.start,))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        self.list.appendList([(row["n"],) for row in rows])
        yield Row(k=key[0], what="list", data=repr(list(self.list.get())))


class Times(StatefulProcessor):
    """Gives timestamps back, as a text and within an array too, with the last one before and a time of no clock."""

    OUTPUT = "k string, at timestamp, seen array<timestamp>, said string, wall timestamp_ntz, before string"

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.last = handle.getValueState("last", "at timestamp")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        for frame in rows:
            at, before = frame["at"], self.last.get()
            self.last.update((at.iloc[-1].to_pydatetime(),))
            told = {"said": at.astype(str), "wall": pd.Timestamp("2024-03-10 02:30"), "before": str(before)}
            yield pd.DataFrame({"k": key[0], "at": at, "seen": [[time] for time in at], **told})

    def close(self) -> None:
        pass


def counted(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Every method of `GroupState`."""
    told: list[Any] = [state.exists, state.getOption, state.hasTimedOut, state.oldTimeoutTimestamp]
    told += [state.getCurrentWatermarkMs(), state.getCurrentProcessingTimeMs() > 0, str(state)]
    for frame in frames:
        told.append(([str(t) for t in frame.dtypes], list(frame.columns), len(frame)))
        for op, n, at in zip(frame["op"], frame["n"], frame["at"], strict=True):
            count = state.get[0] if state.exists else 0
            told.append((op, int(n)))
            if op == "update":
                state.update((count + int(n), at))
            elif op == "clear":
                state.remove()
            elif op == "timer":
                state.update((count, None))
                state.setTimeoutTimestamp(int(n) * 1000)
            elif op == "untimer":
                state.setTimeoutTimestamp(120_000)
    if state.hasTimedOut:
        state.remove()
    yield pd.DataFrame({"k": [key[0]], "what": ["group"], "data": [repr(told)]}, dtype=object)


class WatermarkTimes(StatefulProcessor):
    """Tells rows, watermark and timers of a key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        seen = sorted(row.v for row in rows)
        for v in seen:
            self.handle.registerTimer(timerValues.getCurrentWatermarkInMs() + v * 1000 + 1)
        yield Row(k=key[0], what=f"rows {seen}", at=timerValues.getCurrentWatermarkInMs())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        what = f"timer {expiredTimerInfo.getExpiryTimeInMs()}"
        yield Row(k=key[0], what=what, at=timerValues.getCurrentWatermarkInMs())
