"""Yields of functions become columns, at any depth, in any time zone; what does not fit is the function's error."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import varvite
from varvite import KeyedProcessFunction, Types
from varvite.datastream import DataStream
from varvite.spark_integration.functions.vectorized import VectorizedProcessFunction
from varvite.storage.errors import InvalidRequestError, UserFunctionError
from varvite.testing import OperatorHarness

ZONES = ["America/New_York", "Asia/Kolkata", "UTC"]
NOON = datetime(2024, 7, 1, 12, tzinfo=UTC)
SKIPPED = datetime(2024, 3, 10, 2, 30, tzinfo=UTC).replace(tzinfo=None)
"""A wall time that clocks in New York do not show."""


@pytest.fixture(params=ZONES)
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The local time zone, which is not UTC on everybody's machine."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


class Yield(KeyedProcessFunction[Any, Any, Any]):
    """Yields what it is told to, or what comes in."""

    def __init__(self, *given: Any) -> None:
        self.given = given

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        yield from self.given or (value,)


def yielded(columns: str, *rows: Any) -> list[Any]:
    """Output of a function that yields these rows."""
    with OperatorHarness.of_function(Yield(*rows), "k", "k string", columns) as harness:
        return harness.process_batch([("a",)])


@pytest.mark.usefixtures("zone")
def test_timestamps_at_any_depth_are_local_time_in_and_out() -> None:
    """Found within arrays, maps and structs: naive times were taken for UTC on their way out."""
    local = NOON.astimezone().replace(tzinfo=None)
    kinds = {
        "timestamp": local,
        "array<timestamp>": [local, None],
        "map<timestamp,timestamp>": {local: local},
        "struct<t:timestamp,n:int>": (local, 1),
        "array<struct<t:timestamp,seen:array<timestamp>>>": [(local, [local]), None],
        "map<string,array<array<timestamp>>>": {"a": [[local], None]},
        "timestamp_ntz": SKIPPED,
        "array<timestamp_ntz>": [SKIPPED],
    }
    columns = ", ".join(f"c{i} {kind}" for i, kind in enumerate(kinds))
    given = ("a", *kinds.values())
    with OperatorHarness.of_function(Yield(), "k", f"k string, {columns}", f"k string, {columns}") as harness:
        (found,) = harness.process_batch([given])
        assert tuple(found) == given
        (again,) = harness.process_batch([found])
        assert again == found


@pytest.mark.usefixtures("zone")
def test_aware_times_and_those_of_numpy_are_taken() -> None:
    local = NOON.astimezone().replace(tzinfo=None)
    for given in (NOON, NOON.astimezone(), np.datetime64(local, "ns")):
        assert yielded("t timestamp, a array<timestamp>", (given, [given])) == [(local, [local])]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("timestamp", "2024-01-01"), ("timestamp", 5), ("timestamp", date(2024, 1, 1)), ("array<timestamp>", ["x"]),
        ("struct<a:int,b:int>", (1,)), ("struct<a:int,b:int>", 5), ("struct<a:string,b:string>", "ab"),
        ("map<string,int>", [1]), ("array<int>", 5), ("string", "\ud800"), ("bigint", 2**63),
        ("int", 1.5), ("bigint", Decimal("0.1")), ("array<int>", [np.float64(2.5)]), ("struct<a:int>", {"a": 0.5}),
        ("int", float("nan")),
    ],
)  # fmt: skip
def test_a_value_that_is_not_of_its_column_is_the_functions_error(kind: str, value: Any) -> None:
    """Found as errors of Python that nobody could place, and as numbers that had been cut off."""
    with pytest.raises(UserFunctionError, match="output column 1 'v'") as raised:
        yielded(f"k string, v {kind}", ("a", None), ("a", value))
    assert isinstance(raised.value.__cause__, InvalidRequestError)


def test_times_beyond_the_calendar_are_the_functions_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        with pytest.raises(UserFunctionError, match="output column 0 't'"):
            yielded("t timestamp", (datetime.min.replace(tzinfo=UTC).replace(tzinfo=None),))
    time.tzset()


def test_whole_numbers_of_any_kind_are_taken() -> None:
    """pandas makes floats of integers as soon as one is missing."""
    assert yielded("n int, a array<bigint>", (2.0, [Decimal("3.00"), np.int8(4), None])) == [(2, [3, 4, None])]


def test_rows_of_different_kinds_are_the_functions_error() -> None:
    with pytest.raises(UserFunctionError, match="expected 2 columns"):
        yielded("a int, b int", (1, 2), 5)


class Frames(StatefulProcessor):
    """Keeps the last timestamp of a key, and gives its DataFrames back with what it has kept and a wall time."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.last = handle.getValueState("last", "t timestamp, w timestamp_ntz, s struct<w:timestamp_ntz>")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        for frame in rows:
            (at,) = frame["t"]
            assert frame["a"][0] == [at], "one time zone at every depth"
            self.last.update((at, SKIPPED, {"w": SKIPPED}))
            assert self.last.get() == (at, SKIPPED, (SKIPPED,))
            yield frame.assign(w=SKIPPED)

    def close(self) -> None:
        pass


def group(_: Any, frames: Any, state: Any) -> Iterator[Any]:
    for frame in frames:
        state.update((SKIPPED,))
        yield frame.assign(w=state.get[0])


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize("kind", ["processor", "group"])
def test_dataframes_have_the_time_zone_of_the_input_in_and_out(kind: str) -> None:
    """Found where it was not the local one, with timestamps within a column, and with wall times."""
    columns = "k string, t timestamp, a array<timestamp>"
    output = f"{columns}, w timestamp_ntz"

    def program(stream: Any) -> DataStream:
        keyed = stream.key_by("k")
        if kind == "group":
            return keyed.apply_in_pandas_with_state(group, output, "w timestamp_ntz", uid="pandas")
        return keyed.transform_with_state_in_pandas(Frames(), output, uid="pandas")

    local = NOON.astimezone().replace(tzinfo=None)
    with OperatorHarness(program, columns) as harness:
        assert harness.process_batch([("a", local, [local])]) == [("a", local, [local], SKIPPED)]


@pytest.mark.usefixtures("zone")
def test_dataframes_without_timestamps_in_the_input_have_local_time() -> None:
    local = NOON.astimezone().replace(tzinfo=None)

    def function(key: Any, frames: Any, state: Any) -> Iterator[Any]:
        del frames, state
        yield pd.DataFrame({"k": key, "t": [local]})

    def program(stream: Any) -> DataStream:
        keyed = stream.key_by("k")
        return keyed.apply_in_pandas_with_state(function, "k string, t timestamp", "n int", uid="pandas")

    with OperatorHarness(program, "k string") as harness:
        assert harness.process_batch([("a",)]) == [("a", local)]


class Wall(StatefulProcessor):
    """Keeps a wall time and the same within others, in each kind of state."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.value = handle.getValueState("value", "w timestamp_ntz, t timestamp")
        self.items = handle.getListState("items", "a array<timestamp_ntz>, m map<timestamp_ntz,timestamp>")
        self.map = handle.getMapState("map", "w timestamp_ntz", "s struct<w:timestamp_ntz,t:timestamp>")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        del key, rows, timerValues
        local = NOON.astimezone().replace(tzinfo=None)
        self.value.update((SKIPPED, local))
        self.items.put([([SKIPPED, None], {SKIPPED: NOON})])
        self.map.updateValue((SKIPPED,), ((SKIPPED, local),))
        assert self.value.get() == (SKIPPED, local)
        assert list(self.items.get()) == [([SKIPPED, None], {SKIPPED: local})]
        assert list(self.map.iterator()) == [((SKIPPED,), ((SKIPPED, local),))]
        with pytest.raises(InvalidRequestError, match="timestamps of the years 1 to 9999"):
            self.value.update((SKIPPED, datetime.max.replace(tzinfo=UTC).replace(tzinfo=None)))
        assert self.value.get() == (SKIPPED, local)
        yield Row(k="done")

    def close(self) -> None:
        pass


def test_wall_times_in_a_processors_state_are_as_they_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found with a wall time that is none in the local time zone, which came back an hour earlier."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        with OperatorHarness.of_function(Wall(), "k", "k string", "k string") as harness:
            assert harness.process_batch([("a",)]) == [("done",)]
    time.tzset()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Types.LIST(Types.STRING()), "abc"), (Types.LIST(Types.INT()), 5), (Types.LIST(Types.INT()), b"abc"),
        (Types.MAP(Types.STRING(), Types.INT()), 5), (Types.MAP(Types.STRING(), Types.INT()), ["a"]),
        (Types.MAP(Types.STRING(), Types.INT()), {None: 1}),
    ],
)  # fmt: skip
def test_an_element_that_is_not_of_its_type_is_the_functions_error(kind: Any, value: Any) -> None:
    """Found as an error of Python that nobody could place, and as a text that had become a list of its letters."""
    with OperatorHarness.of_function(Yield(value), lambda element: element, None, kind) as harness:
        with pytest.raises(UserFunctionError, match="is not a value of type") as raised:
            harness.process_batch(["a"])
        assert isinstance(raised.value.__cause__, InvalidRequestError)
    with OperatorHarness.of_function(Yield([1, None], (2,), []), str, None, Types.LIST(Types.INT())) as harness:
        assert harness.process_batch(["a"]) == [[1, None], [2], []]


@pytest.mark.parametrize("kind", [Row, varvite.Row], ids=["spark", "varvite"])
def test_a_row_with_the_columns_names_is_taken_by_name(kind: Any) -> None:
    """Found as columns that had changed places; a row with other names is still taken by position."""
    columns = "k string, n bigint, m bigint, s struct<a:int,b:int>"
    given = [kind(m=2, k="x", s=kind(b=4, a=3), n=1), ("x", 1, 2, (3, 4)), {"m": 2, "n": 1, "k": "x", "s": (3, 4)}]
    given += [kind(x="x", y=1, z=2, s=kind(u=3, v=4))]
    assert yielded(columns, *given) == [("x", 1, 2, (3, 4))] * 4
    assert yielded(columns, *reversed(given[:2])) == [("x", 1, 2, (3, 4))] * 2


@pytest.mark.parametrize("at", ["timestamp", "date"])
@pytest.mark.parametrize("kind", [Row, varvite.Row], ids=["spark", "varvite"])
def test_a_reduced_row_is_in_the_state_as_it_comes_out(kind: Any, at: str) -> None:
    """Found where a reduce function names its columns in another order: the state had one, the output the other."""
    day = NOON.astimezone().replace(tzinfo=None) if at == "timestamp" else NOON.date()

    def program(stream: Any) -> DataStream:
        return stream.key_by("k").reduce(lambda a, b: kind(m=a.m + b.m, k=a.k, at=a.at, n=a.n + b.n)).uid("sums")

    with OperatorHarness(program, f"k string, n bigint, m bigint, at {at}") as harness:
        for times in (1, 2, 3):
            assert harness.process_batch([("a", 1, 100, day)]) == [("a", times, 100 * times, day)]


class NaiveColumns(VectorizedProcessFunction):
    """Yields a column of each kind, with noon as the clock shows it here."""

    def __init__(self, noon: datetime) -> None:
        self.noon = noon

    def process_batch(self, batch: pa.RecordBatch, ctx: VectorizedProcessFunction.Context) -> pa.Table:
        naive = pa.array([self.noon] * batch.num_rows, pa.timestamp("us"))
        in_struct = pa.StructArray.from_arrays([naive], names=["t"])
        offsets = pa.array(range(batch.num_rows + 1), pa.int32())
        in_list: Any = pa.ListArray.from_arrays(offsets, naive)
        return pa.table({"k": batch["k"], "t": naive, "s": in_struct, "a": in_list, "n": naive})


@pytest.mark.usefixtures("zone")
def test_naive_columns_of_vectorised_functions_are_local_time() -> None:
    """Found as times of UTC, in silence, where functions of rows and of DataFrames give local ones."""
    local = NOON.astimezone().replace(tzinfo=None)
    output = "k string, t timestamp, s struct<t:timestamp>, a array<timestamp>, n timestamp_ntz"
    with OperatorHarness.of_function(NaiveColumns(local), "k", "k string", output) as harness:
        assert harness.process_batch([("a",)]) == [("a", local, (local,), [local], local)]
