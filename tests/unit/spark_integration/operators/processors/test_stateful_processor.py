"""Spark's processors and group functions on keyed state, without Spark's engine: groups, states, timers, late rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import LongType, StringType, StructField, StructType

from varvite.changelog.keyed.backend import KeyedStateBackend
from varvite.changelog.segments.batch import BatchTime
from varvite.changelog.types.factory import Types
from varvite.changelog.working_stores.hashmap.store import HashMapStore
from varvite.spark_integration.operators.processors.group_state import GroupStateFunction, check_timeout
from varvite.spark_integration.operators.processors.grouped_function import (
    INITIAL_COLUMN,
    GroupedBatch,
    GroupedFunction,
)
from varvite.spark_integration.operators.processors.handle import TimeMode
from varvite.spark_integration.operators.processors.pandas_rows import rows_of_frame
from varvite.spark_integration.operators.processors.stateful_processor import (
    PandasProcessorFunction,
    ProcessorFunction,
    check_processor,
)
from varvite.storage.errors import InvalidRequestError
from varvite.storage.format.records import Link

OUTPUT = StructType([StructField("k", StringType()), StructField("n", LongType())])


class Bench:
    """A function over one partition; a batch is confirmed when it is over."""

    def __init__(self, function: GroupedFunction) -> None:
        self.store = HashMapStore(operator="op", key_type=Types.STRING().type_string(), low=0, high=8)
        self.failures: list[Exception] = []
        self.batches = self.time_ms = 0
        self.watermark_before_ms: int | None = None
        self.put(function)

    def put(self, function: GroupedFunction) -> None:
        """Another instance, as after a restart."""
        self.backend = KeyedStateBackend(self.store, Types.STRING(), "op")
        self.backend.begin_batch(BatchTime(self.time_ms))
        self.grouped = GroupedBatch(function, self.backend)
        function.open(None)  # type: ignore[arg-type]

    def batch(
        self,
        *rows: tuple[Any, int],
        time_ms: int = 0,
        watermark_ms: int | None = None,
        initial: tuple[tuple[Any, int], ...] = (),
    ) -> list[Any]:
        """One batch of rows (k, n), event time n milliseconds, in Arrow batches of two rows."""
        self.backend.begin_batch(BatchTime(time_ms, watermark_ms))
        self.grouped.begin(time_ms, watermark_ms, self.watermark_before_ms)
        self.watermark_before_ms = watermark_ms
        for some in [rows[i : i + 2] for i in range(0, len(rows), 2)]:
            ks, ns = map(list, zip(*some, strict=True))
            late = self.grouped.is_late(ns)
            table = pa.record_batch({"k": pa.array(ks, pa.string()), "n": pa.array(ns, pa.int64())})
            self.grouped.add(table, [1] * len(ks), ks, late, ["k", "n"])
        for key, start in initial:
            struct = pa.array([{"who": key, "start": start}], pa.struct({"who": pa.string(), "start": pa.int64()}))
            columns = {"k": pa.array([key], pa.string()), "n": pa.nulls(1, pa.int64()), INITIAL_COLUMN: struct}
            self.grouped.add(pa.record_batch(columns), [1], [key], None, ["k", "n"])
        out = [row for rows in self.grouped.finish(lambda error, _: self.failures.append(error)) for row in rows]
        self.batches, self.time_ms = self.batches + 1, time_ms
        self.backend.fold(Link(self.batches, "t"))
        return out


class Acting(StatefulProcessor):
    """Calls a function with itself for each group and each timer."""

    def __init__(
        self, init: Callable[..., Any], act: Callable[..., Any], fire: Callable[..., Any] | None = None
    ) -> None:
        self.functions = init, act, fire

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.functions[0](self)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803
        return self.functions[1](self, key, rows, timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:  # noqa: N802, N803
        fire = self.functions[2]
        return None if fire is None else fire(self, key, expiredTimerInfo.getExpiryTimeInMs())


def bench_of(init: Any, act: Any, fire: Any = None, mode: str = "None") -> Bench:
    return Bench(ProcessorFunction(Acting(init, act, fire), TimeMode.of(mode), OUTPUT, ["k"]))


def nothing(*_: Any) -> None:
    return None


def test_all_rows_of_a_key_come_at_once_in_order_of_arrival() -> None:
    def act(_: Any, key: Any, rows: Any, times: Any) -> Iterator[Row]:
        yield Row(n=[row.n for row in rows], k=key)
        assert times.getCurrentProcessingTimeInMs() == times.getCurrentWatermarkInMs() == -1

    bench = bench_of(nothing, act)
    found = bench.batch(("b", 1), ("a", 2), (None, 3), ("b", 4), ("a", 5))
    assert found == [{"n": [1, 4], "k": ("b",)}, {"n": [2, 5], "k": ("a",)}, {"n": [3], "k": (None,)}]
    assert bench.batch() == []
    assert not bench.failures


def test_an_attempt_that_was_left_leaves_no_rows_to_the_next() -> None:
    bench = bench_of(nothing, lambda _, key, rows, __: [Row(k=key[0], n=len(list(rows)))])
    bench.grouped.begin(0, None, None)
    bench.grouped.add(pa.record_batch({"k": ["a"], "n": [1]}), [1], ["a"], None, ["k", "n"])
    assert bench.batch(("a", 2)) == [{"k": "a", "n": 1}]


def test_values_come_back_as_spark_gives_them() -> None:
    naive = datetime(2026, 1, 2, 3, 4, 5)  # noqa: DTZ001  in the local time zone
    given = (naive, naive, Decimal("1.50"), [1, None], {"a": 1}, (2, naive), [(3, naive)])
    schema = (
        "at timestamp, local timestamp_ntz, d decimal(10,2), tags array<bigint>, m map<string,int>, "
        "s struct<x:int,at:timestamp>, a array<struct<x:int,local:timestamp_ntz>>"
    )

    def init(self: Any) -> None:
        self.state = self.handle.getValueState("state", schema)

    def act(self: Any, key: Any, rows: Any, _: Any) -> list[Row]:
        before = self.state.get()
        if not self.state.exists():
            self.state.update(given)
        return [Row(k=key[0], n=[before, self.state.get()])]

    bench = bench_of(init, act)
    for expected in ([None, given], [given, given]):
        ((found),) = bench.batch(("a", 1))
        assert found["n"] == expected
    assert not bench.failures
    struct = found["n"][0][5]
    assert struct.x == 2
    assert struct.asDict() == {"x": 2, "at": naive}


def test_numpy_values_and_other_zones_are_taken() -> None:
    import numpy as np

    def init(self: Any) -> None:
        self.map = self.handle.getMapState("map", "k bigint", "at timestamp, n int")

    def act(self: Any, *_: Any) -> list[Row]:
        self.map.updateValue((np.int64(1),), (pd.Timestamp("2026-01-01", tz="UTC"), np.int32(2)))
        return [Row(k="", n=list(self.map.iterator()))]

    bench = bench_of(init, act)
    (found,) = bench.batch(("a", 1))
    local = datetime(2026, 1, 1, tzinfo=UTC).astimezone().replace(tzinfo=None)
    assert found["n"] == [((1,), (local, 2))]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda self: self.list.put([]), "at least one element"),
        (lambda self: self.list.appendList([]), "at least one element"),
        (lambda self: self.list.appendValue((1, 2)), "tuple of 1 values"),
        (lambda self: self.list.appendValue(5), "takes a tuple"),
        (lambda self: self.value.update(None), "takes a tuple"),
        (lambda self: self.value.update(("x",)), "state 'value'"),
        (lambda self: self.handle.registerTimer(5), "time mode"),
        (lambda self: self.handle.listTimers(), "time mode"),
        (lambda self: self.handle.getValueState("late", "n bigint"), "after init"),
        (lambda self: self.handle.deleteIfExists("value"), "after init"),
    ],
    ids=["put", "list", "wide", "bare", "none", "type", "register", "list timers", "late", "delete"],
)
def test_what_spark_refuses_is_refused(wrong: Any, message: str) -> None:
    def init(self: Any) -> None:
        self.list = self.handle.getListState("list", "n bigint")
        self.value = self.handle.getValueState("value", "n bigint")

    bench = bench_of(init, lambda self, *_: wrong(self))
    bench.batch(("a", 1))
    assert len(bench.failures) == 1
    assert isinstance(bench.failures[0], InvalidRequestError)
    assert message in str(bench.failures[0])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda self: self.handle.getValueState("$timers", "n bigint"), "reserved"),
        (lambda self: self.handle.getValueState("s", "bigint"), "give columns"),
        (lambda self: self.handle.getMapState("s", "n bigint", "n bigint", 1000), "needs the time mode 'Proc"),
        (lambda self: self.handle.getValueState("s", "n bigint", -1), "is -1; give milliseconds above 0"),
        (lambda self: self.handle.getListState("s", "n bigint", "1 s"), "milliseconds above 0"),
    ],
)
def test_states_that_cannot_be(wrong: Any, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message.replace("$", "\\$")):
        bench_of(wrong, nothing)


def test_a_deleted_state_is_gone_for_every_key() -> None:
    def make(self: Any) -> None:
        self.map = self.handle.getMapState("map", "n bigint", "n bigint")

    def put(self: Any, _: Any, rows: Any, __: Any) -> None:
        for row in rows:
            self.map.updateValue((row.n,), (row.n,))

    def delete_and_make(self: Any) -> None:
        self.handle.deleteIfExists("map")
        self.handle.deleteIfExists("never there")
        make(self)

    bench = bench_of(make, put)
    bench.batch(("a", 1), ("b", 2), ("b", 3))
    then = Acting(delete_and_make, lambda self, key, *_: [Row(k=key[0], n=self.map.exists())])
    bench.put(ProcessorFunction(then, TimeMode.NONE, OUTPUT, ["k"]))
    assert bench.batch(("a", 1)) == [{"k": "a", "n": False}]
    assert list(bench.backend.get_keys("map")) == []


def test_state_expires_when_it_was_not_written_for_so_long() -> None:
    def init(self: Any) -> None:
        self.value = self.handle.getValueState("value", "n bigint", 10)
        self.list = self.handle.getListState("list", "n bigint", 20)
        self.map = self.handle.getMapState("map", "n bigint", "n bigint", 20)
        self.kept = self.handle.getValueState("kept", "n bigint", 0)

    def act(self: Any, key: Any, rows: Any, times: Any) -> list[Row]:
        numbers = [row.n for row in rows if row.n]
        for n in numbers:
            self.value.update((n,))
            self.list.appendValue((n,))
            self.map.updateValue((n,), (n,))
            self.kept.update((n,))
        held = [n for (n,) in self.list.get()], sorted(n for (n,) in self.map.keys())  # noqa: SIM118
        assert self.list.exists() == bool(held[0])
        assert self.map.exists() == bool(held[1])
        assert [entry for entry, _ in self.map.iterator()] == [*self.map.keys()]
        assert self.map.containsKey((1,)) == (self.map.getValue((1,)) is not None) == (1 in held[1])
        assert self.value.exists() == (self.value.get() is not None)
        return [Row(k=key[0], n=(self.value.get(), *held, self.kept.get()))]

    def at(time_ms: int, n: int) -> Any:
        (found,) = bench.batch(("a", n), time_ms=time_ms)
        return found["n"]

    bench = bench_of(init, act, mode="ProcessingTime")
    assert at(100, 1) == ((1,), [1], [1], (1,))
    assert at(109, 0) == ((1,), [1], [1], (1,)), "a read renews nothing"
    assert at(110, 0) == (None, [1], [1], (1,))
    assert at(119, 2) == ((2,), [1, 2], [1, 2], (2,))
    bench.put(ProcessorFunction(Acting(init, act), TimeMode.PROCESSING_TIME, OUTPUT, ["k"]))
    assert at(120, 0) == ((2,), [2], [2], (2,)), "elements and entries expire by themselves"
    assert at(1000, 0) == (None, [], [], (2,))
    assert not bench.failures


def test_a_state_with_ttl_is_deleted_and_made_anew() -> None:
    def init(self: Any) -> None:
        self.value = self.handle.getValueState("value", "n bigint", 10)

    def again(self: Any) -> None:
        self.handle.deleteIfExists("value")
        self.value = self.handle.getValueState("value", "n bigint", 20)

    def act(self: Any, key: Any, rows: Any, _: Any) -> list[Row]:
        before = self.value.get()
        for row in rows:
            self.value.update((row.n,))
        return [Row(k=key[0], n=before)]

    bench = bench_of(init, act, mode="ProcessingTime")
    assert bench.batch(("a", 1), time_ms=1) == [{"k": "a", "n": None}]
    bench.put(ProcessorFunction(Acting(again, act), TimeMode.PROCESSING_TIME, OUTPUT, ["k"]))
    assert bench.batch(("a", 2), time_ms=2) == [{"k": "a", "n": None}]
    assert bench.batch(("a", 3), time_ms=21) == [{"k": "a", "n": (2,)}]
    assert not bench.failures


def test_a_timer_is_listed_deleted_and_fires_once() -> None:
    def act(self: Any, _: Any, rows: Any, __: Any) -> None:
        for row in rows:
            (self.handle.deleteTimer if row.n < 0 else self.handle.registerTimer)(abs(row.n))

    def fire(self: Any, key: Any, time_ms: int) -> list[Row]:
        return [Row(k=key[0], n=(time_ms, list(self.handle.listTimers())))]

    bench = bench_of(nothing, act, fire, "ProcessingTime")
    assert bench.batch(("a", 30), ("a", 20), ("a", 40), ("a", -30), ("b", 35), time_ms=10) == []
    fired = bench.batch(time_ms=36)
    assert fired == [{"k": "a", "n": (20, [20, 40])}, {"k": "b", "n": (35, [35])}]
    assert bench.batch(time_ms=41) == [{"k": "a", "n": (40, [40])}]
    assert bench.batch(time_ms=1000) == []
    assert not bench.failures


def test_a_due_timer_that_a_timer_sets_fires_in_the_next_batch() -> None:
    def fire(self: Any, key: Any, time_ms: int) -> list[Row]:
        if time_ms == 5:
            self.handle.registerTimer(6)
            self.handle.registerTimer(5)
            self.handle.registerTimer(7)
            self.handle.deleteTimer(7)
        return [Row(k=key[0], n=time_ms)]

    bench = bench_of(nothing, lambda self, *_: self.handle.registerTimer(5), fire, "eventtime")
    assert bench.batch(("a", 1), watermark_ms=None) == []
    assert bench.batch(watermark_ms=50) == [{"k": "a", "n": 5}]
    assert bench.batch(watermark_ms=50) == [{"k": "a", "n": 6}]
    assert bench.batch(watermark_ms=50) == []


def test_late_rows_are_dropped_in_event_time_only_and_by_the_watermark_of_the_batch_before() -> None:
    for mode, expected in (("EventTime", [6]), ("ProcessingTime", [4, 5, 6])):
        bench = bench_of(nothing, lambda _, key, rows, __: [Row(k=key[0], n=[r.n for r in rows])], mode=mode)
        (found,) = bench.batch(("a", 4), ("a", 5), ("a", 6), watermark_ms=5)
        assert found["n"] == [4, 5, 6]
        (found,) = bench.batch(("a", 4), ("a", 5), ("a", 6), watermark_ms=7)
        assert found["n"] == expected


def test_initial_state_comes_before_the_rows_of_its_key() -> None:
    class Starting(Acting):
        def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:  # noqa: N802, N803
            assert key == (initialState.who,)
            self.list.appendValue((initialState.start,))

    def init(self: Any) -> None:
        self.list = self.handle.getListState("list", "n bigint")

    def act(self: Any, key: Any, rows: Any, _: Any) -> list[Row]:
        return [Row(k=key[0], n=[v for (v,) in self.list.get()] + [r.n for r in rows])]

    bench = Bench(ProcessorFunction(Starting(init, act), TimeMode.NONE, OUTPUT, ["k"]))
    assert bench.batch(("a", 1), initial=(("a", 10), ("z", 5), ("a", 11))) == [{"k": "a", "n": [10, 11, 1]}]
    assert bench.batch(("z", 2)) == [{"k": "z", "n": [5, 2]}]
    assert not bench.failures


def test_an_error_ends_the_batch_and_much_output_leaves_in_pieces() -> None:
    def act(self: Any, key: Any, rows: Any, _: Any) -> Iterator[tuple[Any, ...]]:
        del rows
        for n in range(25_000):
            self.value.update((n,))
            yield key[0], n
        if key[0] == "b":
            raise ArithmeticError("b")

    def init(self: Any) -> None:
        self.value = self.handle.getValueState("value", "n bigint")

    bench = bench_of(init, act)
    bench.grouped.begin(0, None, None)
    bench.grouped.add(pa.record_batch({"k": ["a", "b"], "n": [1, 1]}), [1, 1], ["a", "b"], None, ["k", "n"])
    sizes: list[int] = []
    for rows in bench.grouped.finish(lambda error, key: bench.failures.append(ArithmeticError(key, error))):
        sizes.append(len(rows))
        bench.backend.cut()  # as early upload does, after which no key is current
    assert sizes == [10_000] * 5
    assert [failure.args[0] for failure in bench.failures] == ["b"]


def test_dataframes_go_in_and_out() -> None:
    def act(self: Any, key: Any, frames: Any, _: Any) -> Iterator[pd.DataFrame]:
        (frame,) = frames
        yield pd.DataFrame({"n": [frame["n"].sum(), None], "k": [key[0], "x"], "more": [0, 0]})
        yield pd.DataFrame({"k": [], "n": []})
        yield pd.DataFrame([["y", float("nan")]])

    bench = Bench(PandasProcessorFunction(Acting(nothing, act), TimeMode.NONE, OUTPUT, ["k"]))
    assert bench.batch(("a", 1), ("a", 2)) == [("a", 3.0), ("x", None), ("y", None)]
    doubled = pd.DataFrame([["a", 1, 2]], columns=pd.Index(["k", "n", "n"]))
    for wrong in (5, pd.DataFrame({"k": [1]}), pd.DataFrame([[1]]), doubled):
        with pytest.raises(InvalidRequestError, match="the function yielded"):
            rows_of_frame(wrong, ["k", "n"], [None, None])


def test_initial_state_and_late_rows_do_not_change_what_pandas_makes_of_a_column() -> None:
    class Starting(Acting):
        def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:  # noqa: N802, N803
            told.append([str(dtype) for dtype in initialState.dtypes])

    def act(_: Any, __: Any, frames: Any, ___: Any) -> None:
        told.extend(str(frame["n"].dtype) for frame in frames)

    told: list[Any] = []
    bench = Bench(PandasProcessorFunction(Starting(nothing, act), TimeMode.NONE, OUTPUT, ["k"]))
    bench.grouped.begin(0, None, None)
    struct = pa.array([None, {"at": datetime(2026, 1, 1, tzinfo=UTC), "start": 1}, None])
    batch = pa.record_batch({"k": ["a", "a", "b"], "n": [1, None, None], INITIAL_COLUMN: struct})
    bench.grouped.add(batch, [1, 1, 1], ["a", "a", "b"], [False, False, True], ["k", "n"])
    assert list(bench.grouped.finish(lambda error, _: bench.failures.append(error))) == []
    assert not bench.failures
    assert told == [["datetime64[ns]", "int64"], "int64"]


def test_a_group_keeps_its_state_and_times_out_once() -> None:
    calls: list[Any] = []

    def function(key: Any, frames: Any, state: GroupState) -> Iterator[pd.DataFrame]:
        rows = [n for frame in frames for n in frame["n"]]
        calls.append((key, rows, state.hasTimedOut, state.getOption, state.getCurrentProcessingTimeMs()))
        if state.hasTimedOut:
            state.remove()
        else:
            state.update((sum(rows) + (state.get[0] if state.exists else 0),))
            if rows != [0]:
                state.setTimeoutDuration(10)
        yield pd.DataFrame({"k": [key[0]], "n": [len(rows)]})

    def made() -> GroupStateFunction:
        return GroupStateFunction(
            function, "total bigint", check_timeout(GroupStateTimeout.ProcessingTimeTimeout),
            input_columns=["k", "n"], output=OUTPUT, key_columns=["k"], has_watermark=False,
        )  # fmt: skip

    bench = Bench(made())
    assert bench.batch(("a", 1), ("b", 5), ("a", 2), time_ms=100) == [("a", 2), ("b", 1)]
    bench.put(made())
    bench.batch(("a", 4), ("c", 7), time_ms=105)
    assert bench.batch(time_ms=110) == [], "strictly after its time"
    assert bench.batch(("c", 0), time_ms=111) == [("c", 1), ("b", 0)], "b has timed out; c came in time, and set none"
    assert bench.batch(time_ms=200) == [("a", 0)]
    assert bench.batch(time_ms=300) == []
    assert not bench.failures
    assert calls == [
        (("a",), [1, 2], False, None, 100), (("b",), [5], False, None, 100),
        (("a",), [4], False, (3,), 105), (("c",), [7], False, None, 105),
        (("c",), [0], False, (7,), 111), (("b",), [], True, (5,), 111),
        (("a",), [], True, (7,), 200),
    ]  # fmt: skip
    with pytest.raises(InvalidRequestError, match="no time-out"):
        check_timeout("Sometimes")


def test_a_call_that_says_nothing_leaves_the_time_out() -> None:
    def function(key: Any, frames: Any, state: GroupState) -> Iterator[pd.DataFrame]:
        for n in (n for frame in frames for n in frame["n"]):
            if n > 1:
                state.setTimeoutTimestamp(n)
        yield pd.DataFrame({"k": [key[0]], "n": [int(state.hasTimedOut)]})

    made = GroupStateFunction(
        function, "total bigint", GroupStateTimeout.EventTimeTimeout,
        input_columns=["k", "n"], output=OUTPUT, key_columns=["k"], has_watermark=True,
    )  # fmt: skip
    bench = Bench(made)
    assert bench.batch(("a", 50)) == [("a", 0)]
    assert bench.batch(("a", 1), watermark_ms=0) == [("a", 0)]
    for watermark_ms in (51, 51, 60):
        assert bench.batch(watermark_ms=watermark_ms) == [("a", 1)]
    assert bench.batch(("a", 90), watermark_ms=60) == [("a", 0)]
    assert bench.batch(watermark_ms=60) == []
    assert not bench.failures


def test_only_instances_of_processors_and_known_time_modes() -> None:
    for wrong in (Acting, 5):
        with pytest.raises(InvalidRequestError, match="transform_with_state takes an instance"):
            check_processor(wrong, "transform_with_state")
    with pytest.raises(InvalidRequestError, match="no time mode"):
        TimeMode.of("sometimes")


def test_the_method_for_timers_is_called_by_keyword_as_on_spark() -> None:
    """Found as a TypeError of processors whose parameters have an order of their own."""

    class Ordered(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.handle = handle

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
            self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 1)
            return iter(())

        def handleExpiredTimer(  # noqa: N802
            self, *, expiredTimerInfo: Any, timerValues: Any, key: Any,  # noqa: N803
        ) -> Iterator[Row]:  # fmt: skip
            yield Row(k=key[0], n=expiredTimerInfo.getExpiryTimeInMs())

    bench = Bench(ProcessorFunction(Ordered(), TimeMode.PROCESSING_TIME, OUTPUT, ["k"]))
    bench.batch(("a", 1), time_ms=10)
    assert bench.batch(time_ms=20) == [{"k": "a", "n": 11}]
