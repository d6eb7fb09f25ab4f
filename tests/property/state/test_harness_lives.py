"""An operator over random batches, failures, crashes, materializations and restarts: state and output are a model's."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.jobs.counting_harness import BACKENDS
from varvite import KeyedProcessFunction, ListStateDescriptor, MapStateDescriptor, ReducingStateDescriptor, Types
from varvite.datastream import DataStream, RuntimeContext
from varvite.testing import OperatorHarness

KEYS = ["a", "b", "c", None]
ELEMENTS = st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 9)), max_size=6)
LIVES = st.fixed_dictionaries({
    "parallelism": st.integers(1, 4), "backend": st.sampled_from(list(BACKENDS.values())), "changelog": st.booleans(),
    "materialize_every": st.sampled_from([None, 1, 2, 3]),
})  # fmt: skip
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("batch"), ELEMENTS),
        st.tuples(st.just("failed batch"), ELEMENTS),
        st.tuples(st.just("time"), st.integers(1, 20)),
        st.tuples(st.just("failed time"), st.integers(1, 20)),
        st.tuples(st.sampled_from(["crash", "materialize"]), st.none()),
        st.tuples(st.just("restart"), LIVES),
    ),
    max_size=12,
)


class Remember(KeyedProcessFunction[Any, Any, Any]):
    """Keeps values in every kind of state, and forgets all of a key when its timer says so."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_reducing_state(
            ReducingStateDescriptor("total", lambda a, b: a + b, Types.LONG())
        )
        self.values = runtime_context.get_list_state(ListStateDescriptor("values", Types.LONG()))
        self.counts = runtime_context.get_map_state(MapStateDescriptor("counts", Types.LONG(), Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        key, number = value
        self.total.add(number)
        self.values.add(number)
        self.counts.put(number, (self.counts.get(number) or 0) + 1)
        if number == 5:
            self.values.clear()
        elif number == 6:
            self.counts.remove(5)
        elif number > 6:
            ctx.timer_service().register_processing_time_timer(ctx.current_processing_time() + number)
        yield key, self.total.get(), len(list(self.values.get()))

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield ctx.get_current_key(), timestamp, sorted(self.counts.items())
        self.total.clear()
        self.values.clear()
        self.counts.clear()


@dataclass
class Model:
    """The same with plain Python."""

    time_ms: int = 0
    total: dict[Any, int] = field(default_factory=dict)
    values: dict[Any, list[int]] = field(default_factory=dict)
    counts: dict[Any, dict[int, int]] = field(default_factory=dict)
    timers: set[tuple[int, Any]] = field(default_factory=set)

    def batch(self, elements: list[Any]) -> list[Any]:
        out: list[Any] = []
        for key, number in elements:
            self.total[key] = self.total.get(key, 0) + number
            values, counts = self.values.setdefault(key, []), self.counts.setdefault(key, {})
            values.append(number)
            counts[number] = counts.get(number, 0) + 1
            if number == 5:
                values.clear()
            elif number == 6:
                counts.pop(5, None)
            elif number > 6:
                self.timers.add((self.time_ms + number, key))
            out.append((key, self.total[key], len(values)))
        for timer in sorted((t for t in self.timers if t[0] <= self.time_ms), key=lambda t: t[0]):
            self.timers.remove(timer)
            time_ms, key = timer
            out.append((key, time_ms, sorted(self.counts.pop(key, {}).items())))
            self.total.pop(key, None)
            self.values.pop(key, None)
        return out


def program(stream: DataStream) -> DataStream:
    return stream.key_by(lambda pair: pair[0], Types.STRING()).process(Remember())


def check(harness: OperatorHarness, model: Model, out: list[Any], expected: list[Any]) -> None:
    """Output is the model's, keys in any order, and so are state and timers."""
    assert sorted(out, key=repr) == sorted(expected, key=repr)
    for key in KEYS:
        found = [harness.state(name, key) for name in ("total", "values", "counts")]
        assert found == [model.total.get(key), model.values.get(key) or None, model.counts.get(key) or None]
    assert sorted(((t.time_ms, t.key) for t in harness.timers()), key=repr) == sorted(model.timers, key=repr)


def step(harness: OperatorHarness, model: Model, what: str, given: Any) -> Model:
    """One step of both, but for a restart; gives the model after it."""
    tried = copy.deepcopy(model)
    if what in ("time", "failed time"):
        tried.time_ms += given
        expected = tried.batch([])
        harness.set_processing_time(tried.time_ms)
    elif what in ("batch", "failed batch"):
        expected = tried.batch(given)
        for element in given:
            harness.process_element(element)
    elif what == "crash":
        harness.crash()
        expected = []
    else:
        harness.materialize()
        expected = []
    if what.startswith("failed"):
        harness.fail_batch()
        harness.checkpoint()
        tried = copy.deepcopy(model)
        tried.time_ms = harness.processing_time
        expected = tried.batch([])  # time stays, so what was due is due again
    elif what in ("batch", "time"):
        harness.checkpoint()
    check(harness, tried, harness.output, expected)
    harness.output.clear()
    return tried


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(life=LIVES, steps=STEPS)
def test_every_life_gives_what_the_model_gives(life: dict[str, Any], steps: list[Any]) -> None:
    harness, model = OperatorHarness(program, Types.TUPLE([Types.STRING(), Types.LONG()]), **life), Model()
    harness.checkpoint()
    try:
        for what, given_ in steps:
            if what == "restart":
                snapshot = harness.snapshot()
                assert harness.output == []
                harness.close()
                harness = OperatorHarness.restore(snapshot, **given_)
                check(harness, model, [], [])
            else:
                model = step(harness, model, what, given_)
    finally:
        harness.close()
