"""Windows behind windows over random elements, late ones included, over restarts: what comes out is what Flink gives.

There the watermark of a batch passes through the operators one after another: what the first yields at it has come to
the second before the second hears of it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.jobs.operator_stage import Stage
from tests.jobs.window_job import Element, window_operator
from tests.property.windows.test_windows import ASSIGNERS, BATCHES, LATE, TRIGGERS, Model
from tests.stores.working_stores import KINDS
from varvite.changelog.types.factory import Types
from varvite.spark_integration.functions.keyed import MIN_WATERMARK
from varvite.spark_integration.functions.window import WindowFunction
from varvite.spark_integration.operators.windows.assigners import TumblingEventTimeWindows
from varvite.spark_integration.operators.windows.builtin_triggers import PurgingTrigger
from varvite.spark_integration.operators.windows.contents import ListedContents
from varvite.storage.private_directories import TemporaryDirectory

if TYPE_CHECKING:
    from varvite.spark_integration.operators.windows.operator import WindowOperator


class Last(WindowFunction[Any, Any, str, Any]):
    """Tells what it was given, and the window's last millisecond, as Flink's time stamp of its result."""

    def apply(self, key: str, window: Any, inputs: Any) -> list[Any]:
        return [(key, window.start, window.end, sorted(row.v for row in inputs))]


def _operator(assigner: Any, trigger: Any = None) -> WindowOperator:
    contents = ListedContents(Types.ROW_NAMED(["k", "v"], [Types.STRING(), Types.LONG()]))
    return window_operator(assigner, contents, Last(), trigger=trigger, late_output=LATE)


def _results(windows: list[Any]) -> list[Element]:
    """Output of the first stage, as elements of the second: each has the number of its elements."""
    return [Element(w[0], len(w[3]), w[2] - 1) for w in windows if w[0] != LATE]


def _windows(rows: list[Any]) -> list[Any]:
    return sorted((*row[:-1], sorted(row[-1])) for row in rows if row[0] != LATE)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(first=ASSIGNERS, second=ASSIGNERS, trigger=TRIGGERS, batches=BATCHES, data=st.data())
def test_windows_behind_windows_equal_the_model(
    kind: str, first: Any, second: Any, trigger: Any, batches: Any, data: Any
) -> None:
    with TemporaryDirectory("test") as directory:
        stages = (
            Stage(kind, directory / "first", _operator(first), follows=False),
            Stage(kind, directory / "second", _operator(second, trigger), follows=True),
        )
        models = Model(first, 0, purges=False), Model(second, 0, isinstance(trigger, PurgingTrigger))
        now: int | None = None
        for elements, event in [*batches, ([], "end")]:
            watermark_ms = 1000 if event == "end" else data.draw(st.integers(-30 if now is None else now, 70))
            saved = models[0].copy(), models[1].copy()
            fired = stages[0].batch(elements, watermark_ms, now)
            expected = models[0].batch(elements, watermark_ms)
            assert _windows(fired) == _windows(expected)
            found = stages[1].batch(_results(fired), watermark_ms, now)
            assert not [row for row in found if row[0] == LATE], "what the first stage yields is not late"
            given = models[1].batch(_results(expected), MIN_WATERMARK if now is None else now)
            assert _windows(found) == _windows(given + models[1].batch([], watermark_ms))
            for stage in stages:
                stage.end("" if event == "end" else event)
            if event == "drop":
                models = saved
            else:
                now = watermark_ms
        for stage in stages:
            stage.job.close()


@pytest.mark.parametrize("size", [5, 10, 20])
@given(batches=BATCHES, data=st.data())
def test_each_window_is_counted_once_in_the_windows_behind_it(size: int, batches: Any, data: Any) -> None:
    with TemporaryDirectory("test") as directory:
        first = Stage("hashmap", directory / "first", _operator(TumblingEventTimeWindows.of(10)), follows=False)
        behind = _operator(TumblingEventTimeWindows.of(size))
        second = Stage("hashmap", directory / "second", behind, follows=True)
        yielded: Counter[Any] = Counter()
        counted: Counter[Any] = Counter()
        now: int | None = None
        for elements, event in [*batches, ([], "end")]:
            watermark_ms = 1000 if event == "end" else data.draw(st.integers(-30 if now is None else now, 70))
            for is_again in (True, False):  # the batch is executed twice on the same state
                fired = first.batch(elements, watermark_ms, now)
                found = second.batch(_results(fired), watermark_ms, now)
                for stage in (first, second):
                    stage.end("drop" if is_again else "crash")
            yielded.update((e.key, (e.time_ms or 0) // size * size) for e in _results(fired))
            counted.update({(row[0], row[1]): len(row[3]) for row in found})
            now = watermark_ms
        assert counted == yielded
        first.job.close()
        second.job.close()
