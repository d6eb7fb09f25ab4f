"""Windows over random elements, late ones included, over restarts: what comes out is what a plain model gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.jobs.keyed_job import Changelog, KeyedJob
from tests.jobs.window_job import Element, WindowJob, window_operator
from tests.stores.working_stores import KINDS
from varvite.changelog.api.functions import AggregateFunction
from varvite.changelog.types.factory import Types
from varvite.spark_integration.functions.output_tag import OutputTag
from varvite.spark_integration.functions.window import WindowFunction
from varvite.spark_integration.operators.windows.assigners import (
    EventTimeSessionWindows,
    SessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowAssigner,
)
from varvite.spark_integration.operators.windows.builtin_triggers import EventTimeTrigger, PurgingTrigger
from varvite.spark_integration.operators.windows.contents import (
    AggregatedContents,
    ContentsPlan,
    ListedContents,
    ReducedContents,
)
from varvite.storage.private_directories import TemporaryDirectory

ASSIGNERS = st.sampled_from([
    TumblingEventTimeWindows.of(10), TumblingEventTimeWindows.of(7, 3), SlidingEventTimeWindows.of(10, 5),
    SlidingEventTimeWindows.of(10, 3), SlidingEventTimeWindows.of(12, 4, -1), SlidingEventTimeWindows.of(3, 5),
    EventTimeSessionWindows.with_gap(1), EventTimeSessionWindows.with_gap(6),
])  # fmt: skip
ELEMENTS = st.builds(Element, st.sampled_from("ab"), st.integers(0, 99), st.integers(-20, 60))
BATCHES = st.lists(st.tuples(st.lists(ELEMENTS, max_size=8), st.sampled_from(["", "", "crash", "drop"])), max_size=8)


class Sum(AggregateFunction[int, tuple[int, int], tuple[int, int]]):
    """(number, sum) of the elements; the accumulator is not the result."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + 1, accumulator[1] + value

    def get_result(self, accumulator: tuple[int, int]) -> Any:
        return list(accumulator)

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class Say(WindowFunction[Any, Any, str, Any]):
    """Tells what it was given."""

    def apply(self, key: str, window: Any, inputs: Any) -> list[Any]:
        return [(key, window.start, window.end, list(inputs))]


class Asked(EventTimeTrigger):
    """A trigger of which nothing is known beforehand, so each window has contents and timers of its own."""


TRIGGERS = st.sampled_from([
    None, Asked(), PurgingTrigger.of(EventTimeTrigger.create()), PurgingTrigger.of(Asked()),
])  # fmt: skip
LATE = OutputTag("late")
ACCUMULATOR = Types.TUPLE([Types.LONG(), Types.LONG()])
CONTENTS: dict[str, tuple[ContentsPlan, Any]] = {
    "reduce": (ReducedContents(lambda a, b: a + b, Types.LONG()), lambda values: [sum(values)]),
    "aggregate": (AggregatedContents(Sum(), ACCUMULATOR), lambda values: [[len(values), sum(values)]]),
    "apply": (ListedContents(Types.LONG()), list),
}


@dataclass
class Model:
    """Flink's semantics, with the elements of every window."""

    assigner: Any
    lateness_ms: int
    purges: bool
    windows: dict[tuple[str, int, int], list[tuple[int, int]]] = field(default_factory=dict)
    """Window → (number, value) of its elements."""
    watermark_ms: int = -(2**63)
    count: int = 0

    def copy(self) -> Model:
        return Model(
            self.assigner,
            self.lateness_ms,
            self.purges,
            {w: list(v) for w, v in self.windows.items()},
            self.watermark_ms,
            self.count,
        )

    def batch(self, elements: list[Element], watermark_ms: int) -> list[Any]:
        out: list[Any] = []
        for window, held in self.windows.items():
            if self.watermark_ms < window[2] - 1 <= watermark_ms:
                self.fire(window, held, out)
        self.watermark_ms = watermark_ms
        self.windows = {w: v for w, v in self.windows.items() if w[2] - 1 + self.lateness_ms > watermark_ms}
        for element in elements:
            windows = self.windows_of(element)
            if not windows and (element.time_ms or 0) + self.lateness_ms <= watermark_ms:
                out.append((LATE, element.value))
            for window in windows:
                held = self.windows.setdefault(window, [])
                held.append((self.count, element.value))
                if window[2] - 1 <= watermark_ms:
                    self.fire(window, held, out)
            self.count += 1
        return out

    def fire(self, window: tuple[str, int, int], held: list[tuple[int, int]], out: list[Any]) -> None:
        if held:
            out.append((*window, [value for _, value in held]))
        if self.purges:
            held.clear()

    def windows_of(self, element: Element) -> list[tuple[str, int, int]]:
        time_ms = element.time_ms or 0
        if isinstance(self.assigner, SessionWindows):
            mine = [self.session(element.key, time_ms, time_ms + (self.assigner.gap_ms or 0))]
        else:
            size, slide, offset = self.assigner.size_ms, self.assigner.slide_ms, self.assigner.offset_ms
            starts = [s for s in range(time_ms - size + 1, time_ms + 1) if (s - offset) % slide == 0]
            mine = [(element.key, start, start + size) for start in starts]
        return [w for w in mine if w[2] - 1 + self.lateness_ms > self.watermark_ms]

    def session(self, key: str, start: int, end: int) -> tuple[str, int, int]:
        touching = [w for w in self.windows if w[0] == key and w[1] <= end and w[2] >= start]
        held = sorted(numbered for window in touching for numbered in self.windows.pop(window))
        whole = (key, min(start, *(w[1] for w in touching), start), max(end, *(w[2] for w in touching), end))
        if touching:
            self.windows[whole] = held
        return whole


@pytest.mark.parametrize("changelog", ["on", "off"])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    what=st.sampled_from(sorted(CONTENTS)),
    assigner=ASSIGNERS,
    lateness_ms=st.sampled_from([0, 1, 5, 30]),
    trigger=TRIGGERS,
    batches=BATCHES,
    data=st.data(),
)
def test_windows_equal_the_model(
    kind: str,
    changelog: Changelog,
    what: str,
    assigner: WindowAssigner,
    lateness_ms: int,
    trigger: Any,
    batches: Any,
    data: Any,
) -> None:
    contents, result = CONTENTS[what]
    with TemporaryDirectory("test") as directory:
        job = KeyedJob(kind, changelog, directory)
        operator = window_operator(
            assigner, contents, Say(), trigger=trigger, lateness_ms=lateness_ms, late_output=LATE
        )
        windows, model = WindowJob(job, operator), Model(assigner, lateness_ms, isinstance(trigger, PurgingTrigger))
        watermark_ms = -(2**63)
        for elements, event in [*batches, ([], "end")]:
            watermark_ms = 1000 if event == "end" else data.draw(st.integers(max(watermark_ms, -30), 70))
            before = model.copy()
            found = windows.batch(elements, watermark_ms=watermark_ms)
            expected = model.batch(elements, watermark_ms)
            expected = [row if row[0] == LATE else (*row[:-1], result(row[-1])) for row in expected]
            assert sorted(found, key=repr) == sorted(expected, key=repr)
            if event == "drop":
                job.drop()
                model, watermark_ms = before, before.watermark_ms
            else:
                job.commit()
            if event == "crash":
                job.crash()
                windows.restart()
        windows.batch(watermark_ms=2000)
        job.commit()
        held = {name: rows for name, rows in job._contents(job.backend.store).items() if rows}
        assert held == {}, "nothing is left of windows that are gone"
        job.close()
