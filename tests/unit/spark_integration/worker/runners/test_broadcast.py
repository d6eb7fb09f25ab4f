"""Functions on a broadcast stream in a state worker: order, contexts, states, keys, timers, errors. Without Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from tests.workers.state_worker_setup import task_request
from varvite.changelog.api.descriptors import MapStateDescriptor, ValueStateDescriptor
from varvite.changelog.keyed.backend import KeyedStateBackend
from varvite.changelog.operator_state.backend import OperatorStateBackend
from varvite.changelog.segments.batch import BatchTime
from varvite.changelog.types.factory import Types, as_type
from varvite.changelog.working_stores.hashmap.store import HashMapStore
from varvite.datastream import BroadcastProcessFunction, KeyedBroadcastProcessFunction, RuntimeContext
from varvite.spark_integration.elements.side_by_side import INPUT_COLUMN, ConnectedElements, rows_column
from varvite.spark_integration.elements.types import TypedElements, pickled_elements
from varvite.spark_integration.functions.broadcast import BroadcastFunction
from varvite.spark_integration.messages.protocol import EVENT_TIME_COLUMN, KEY_COLUMN, KEY_GROUP_COLUMN
from varvite.spark_integration.plan.element_operator import ElementOperator
from varvite.spark_integration.worker.runners.broadcast import BroadcastRunner
from varvite.storage.errors import InvalidRequestError, InvariantError

RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
OTHER = MapStateDescriptor("other", Types.STRING(), Types.LONG())
SUM = ValueStateDescriptor("sum", Types.LONG())
STRINGS, LONGS = TypedElements(as_type(Types.STRING())), TypedElements(as_type(Types.LONG()))


class Limits(KeyedBroadcastProcessFunction[str, int, str, Any]):
    """Sums up by key; broadcast are names of limits with their values, and commands."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.sum = runtime_context.get_state(SUM)

    def process_element(self, value: int, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> Iterator[Any]:
        self.sum.update((self.sum.value() or 0) + value)
        ctx.timer_service().register_event_time_timer(value)
        limits = dict(ctx.get_broadcast_state(RULES).items())
        yield ctx.get_current_key(), self.sum.value(), limits, ctx.timestamp(), ctx.current_watermark()
        if value == 13:
            ctx.get_broadcast_state(RULES).clear()

    def process_broadcast_element(self, value: str, ctx: KeyedBroadcastProcessFunction.Context) -> Iterator[Any]:
        if value == "sums":
            found: list[Any] = []
            ctx.apply_to_keyed_state(SUM, lambda key, state: found.append((key, state.value())))
            yield sorted(found)
        elif value == "double":
            ctx.apply_to_keyed_state(SUM, lambda _, state: state.update(state.value() * 2))
        elif value == "peek":
            self.sum.value()
        elif value == "other":
            ctx.get_broadcast_state(OTHER)
        else:
            name, limit = value.split("=")
            ctx.get_broadcast_state(RULES)[name] = int(limit)
            yield name, ctx.timestamp(), ctx.current_processing_time(), ctx.current_watermark()

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield "timer", timestamp, ctx.get_current_key(), ctx.time_domain().name, list(ctx.get_broadcast_state(RULES))


class Labels(BroadcastProcessFunction[int, str, Any]):
    """Adds the newest limits to the elements of a stream without keys."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.partition = runtime_context.get_index_of_this_subtask()
        with pytest.raises(InvalidRequestError, match=r"get_state: there is no keyed state.*call key_by"):
            runtime_context.get_state(SUM)

    def process_element(self, value: int, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Iterator[Any]:
        yield value, dict(ctx.get_broadcast_state(RULES).items()), ctx.timestamp(), ctx.current_processing_time()

    def process_broadcast_element(self, value: str, ctx: BroadcastProcessFunction.Context) -> Iterator[Any]:
        name, limit = value.split("=")
        ctx.get_broadcast_state(RULES).put(name, int(limit))
        return iter(())


class Instance:
    """One instance of a function, with its states."""

    def __init__(self, function: Any) -> None:
        inputs = ConnectedElements((LONGS, STRINGS))
        travels = BroadcastFunction(function, (RULES,))
        shipped = ElementOperator(cloudpickle.dumps(travels), inputs, pickled_elements(), pickled_elements())
        request = task_request(
            key_type="1:string", key_columns=(KEY_COLUMN,), timestamp_column=EVENT_TIME_COLUMN, broadcast=True
        ).batch.operator
        self.states = OperatorStateBackend("op")
        self.keyed = KeyedStateBackend(
            HashMapStore(operator="op", key_type="1:string", low=0, high=8), Types.STRING(), "op"
        )
        self.keyed.begin_batch(BatchTime(1000, 50))
        self.runner = BroadcastRunner(request, 0, cloudpickle.dumps(shipped), self.keyed, self.states)
        self.runner.start(1000, 50)

    def run(self, *rows: tuple[str, int] | str) -> list[Any]:
        """Rows (key, number) of the stream and texts of the broadcast one, with event times from 100."""
        own = [None if isinstance(row, str) else row for row in rows]
        whole = [
            pa.array([0 if row else 1 for row in own], pa.int32()),
            pa.array([row and {"value": row[1]} for row in own], pa.struct({"value": pa.int64()})),
            pa.array([{"value": r} if isinstance(r, str) else None for r in rows], pa.struct({"value": pa.string()})),
            pa.array(range(100, 100 + len(rows)), pa.int64()),
            pa.array([row and row[0] for row in own], pa.string()),
            pa.array([0 for _ in rows], pa.int32()),
        ]
        names = [INPUT_COLUMN, rows_column(0), rows_column(1), EVENT_TIME_COLUMN, KEY_COLUMN, KEY_GROUP_COLUMN]
        return self.runner.run(pa.RecordBatch.from_arrays(whole, names=names))

    def rules(self) -> dict[str, int]:
        return dict(self.states.get_broadcast_state(RULES).items())

    def error(self) -> str:
        assert self.runner.error is not None
        return f"{self.runner.error.message} {self.runner.error.where}"


def test_broadcast_elements_change_the_state_that_elements_with_keys_read() -> None:
    keyed = Instance(Limits())
    assert keyed.run("low=1", "high=9", ("a", 3), ("b", 70), ("a", 4)) == [
        ("low", 100, 1000, 50),
        ("high", 101, 1000, 50),
        ("a", 3, {"low": 1, "high": 9}, 102, 50),
        ("b", 70, {"low": 1, "high": 9}, 103, 50),
        ("a", 7, {"low": 1, "high": 9}, 104, 50),
    ]
    assert [row for rows in keyed.runner.fire_timers() for row in rows] == [
        ("timer", 3, "a", "EVENT_TIME", ["low", "high"]),
        ("timer", 4, "a", "EVENT_TIME", ["low", "high"]),
    ]
    assert keyed.runner.error is None
    assert keyed.rules() == {"low": 1, "high": 9}
    assert keyed.runner.event_time_max_ms == 104


def test_elements_without_keys_read_the_state() -> None:
    spread = Instance(Labels())
    assert spread.run("low=1") == []
    assert spread.run("low=2", ("", 5), ("", 6)) == [(5, {"low": 2}, 101, 1000), (6, {"low": 2}, 102, 1000)]
    assert spread.run(("", 7)) == [(7, {"low": 2}, 100, 1000)]
    assert spread.runner.error is None


def test_a_broadcast_element_reaches_the_state_of_all_keys_and_of_no_single_one() -> None:
    keyed = Instance(Limits())
    keyed.run(("a", 3), ("b", 70))
    keyed.runner.start(2000, 60)
    assert keyed.run("double", "sums", ("b", 1)) == [[("a", 6), ("b", 140)], ("b", 141, {}, 102, 60)]
    keyed.runner.start(3000, 60)
    assert keyed.run("peek", ("a", 1)) == []
    assert "accessed while no key is current" in keyed.error()
    assert "in process_broadcast_element, at element 'peek'" in keyed.error()


@pytest.mark.parametrize(
    ("element", "message"),
    [
        ("other", r"there is no broadcast state 'other': the stream was broadcast with \['rules'\]"),
        (("a", 13), "may only be read here"),
        ("text", "not enough values to unpack"),
    ],
)
def test_what_a_function_must_not_do_ends_the_attempt(element: Any, message: str) -> None:
    keyed = Instance(Limits())
    keyed.run(element, ("a", 1))
    assert re.search(message, keyed.error())
    assert keyed.run(("a", 1)) == []


def test_the_digest_is_of_the_broadcast_rows_in_their_order_however_they_are_cut() -> None:
    def digest(*batches: tuple[Any, ...]) -> str:
        keyed = Instance(Limits())
        for batch in batches:
            keyed.run(*batch)
        return keyed.runner.broadcast_digest

    whole = digest(("x=1", "y=2", ("a", 1)))
    assert whole == digest(("x=1",), ("y=2", ("b", 2)), (("a", 1),))
    assert whole != digest(("y=2", "x=1"))
    assert digest((("a", 1),)) == digest() == ""
    keyed = Instance(Limits())
    keyed.run("x=1")
    keyed.runner.start(2000, 60)
    assert keyed.runner.broadcast_digest == "", "each batch has its own"


@pytest.mark.parametrize("batches", [[(("a", 1), "x=1")], [("x=1", ("a", 1), "y=2")], [(("a", 1),), ("x=1",)]])
def test_broadcast_rows_after_others_are_refused(batches: list[Any]) -> None:
    keyed = Instance(Limits())
    for batch in batches[:-1]:
        keyed.run(*batch)
    with pytest.raises(InvariantError, match="broadcast rows came after others"):
        keyed.run(*batches[-1])
