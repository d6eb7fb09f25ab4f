"""Assigners and triggers: which windows and panes there are, and what cannot be."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from varvite.common import Duration, Time
from varvite.datastream.window import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindow,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    ProcessingTimeTrigger,
    PurgingTrigger,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeWindow,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    Window,
)
from varvite.spark_integration.functions.timers import TimeDomain
from varvite.spark_integration.operators.windows.builtin_triggers import Firing, firing_of
from varvite.storage.errors import InvalidRequestError

SETTINGS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A busy machine is no failure."""


@SETTINGS
@given(st.integers(1, 30), st.integers(1, 30), st.integers(-200, 200), st.integers(0, 1000))
def test_windows_of_a_time_are_those_that_hold_it_and_a_pane_is_in_the_same_windows(
    size: int, slide: int, time_ms: int, number: int
) -> None:
    offset = number % (2 * slide - 1) - slide + 1
    windows = SlidingEventTimeWindows.of(size, slide, offset)
    holding = [s for s in range(time_ms - size + 1, time_ms + 1) if (s - offset) % slide == 0]
    assert list(windows.starts(time_ms)) == holding
    pane = windows.pane(time_ms)
    assert pane <= time_ms
    assert all(list(windows.starts(t)) == holding for t in range(pane, time_ms + 1))
    assert all(windows.is_start(start) for start in holding)


@SETTINGS
@given(st.integers(1, 40), st.integers(1, 40))
def test_there_are_at_most_two_panes_per_slide(size: int, slide: int) -> None:
    windows = SlidingEventTimeWindows.of(size, slide)
    assert len({windows.pane(time_ms) for time_ms in range(slide * 3)}) <= 2 * 3 + 1


def test_spans_of_time_may_be_said_in_several_ways() -> None:
    spans = (60_000, Time.minutes(1), Duration.of_minutes(1), timedelta(minutes=1))
    same = {TumblingEventTimeWindows.of(span) for span in spans}
    assert len({SlidingEventTimeWindows.of(120_000, 60_000, offset) for offset in (0, Time(0), Duration(0))}) == 1
    assert len({ContinuousEventTimeTrigger.of(span) for span in spans}) == 1
    assert len(same) == 1
    assert Time.days(1) == Time.hours(24) == Time.seconds(86_400) == Time.milliseconds(86_400_000)
    assert TumblingEventTimeWindows.of(10, Time.milliseconds(-3)).pane(0) == -3
    assert TimeWindow(0, 10).max_timestamp() == 9
    assert GlobalWindow.get().max_timestamp() == 2**63 - 1


def test_windows_know_one_another() -> None:
    first, second, third = TimeWindow(0, 10), TimeWindow(10, 20), TimeWindow(21, 30)
    assert first.intersects(second)
    assert not second.intersects(third)
    assert first.cover(third) == TimeWindow(0, 30)
    assert isinstance(first, Window)
    assert isinstance(GlobalWindow.get(), Window)


@pytest.mark.parametrize(
    "make",
    [
        lambda: TumblingEventTimeWindows.of(0),
        lambda: TumblingEventTimeWindows.of("10 minutes"),
        lambda: TumblingEventTimeWindows.of(10, 10),
        lambda: SlidingEventTimeWindows.of(10, -1),
        lambda: SlidingEventTimeWindows.of(10, 5, 7),
        lambda: EventTimeSessionWindows.with_gap(timedelta(0)),
        lambda: EventTimeSessionWindows.with_dynamic_gap(lambda element: 3),  # type: ignore[arg-type]
        lambda: CountTrigger.of(0),
        lambda: PurgingTrigger.of(3),
        lambda: ContinuousEventTimeTrigger.of(0),
        lambda: ContinuousProcessingTimeTrigger.of("a minute"),
    ],
    ids=[f"{number}" for number in range(11)],
)
def test_what_is_no_window_is_refused(make: Any) -> None:
    with pytest.raises(InvalidRequestError):
        make()


def test_constructors_are_pyflinks_and_make_what_of_makes() -> None:
    """`TumblingEventTimeWindows(5000, 1000)` is an offset of a second, and no slide."""
    gap = FixedGap()
    for made, same in (
        (TumblingEventTimeWindows(5000, 1000), TumblingEventTimeWindows.of(Time.seconds(5), Time.seconds(1))),
        (TumblingProcessingTimeWindows(size=5000, offset=0), TumblingProcessingTimeWindows.of(Time.seconds(5))),
        (SlidingEventTimeWindows(5000, 2000, -500), SlidingEventTimeWindows.of(5000, 2000, -500)),
        (SlidingProcessingTimeWindows(size=5000, slide=1000, offset=0), SlidingProcessingTimeWindows.of(5000, 1000)),
        (EventTimeSessionWindows(session_gap=10), EventTimeSessionWindows.with_gap(Time.milliseconds(10))),
        (DynamicEventTimeSessionWindows(gap), EventTimeSessionWindows.with_dynamic_gap(gap)),
        (DynamicProcessingTimeSessionWindows(gap), ProcessingTimeSessionWindows.with_dynamic_gap(gap)),
        (CountTrigger(window_size=3), CountTrigger.of(3)),
        (ContinuousEventTimeTrigger(interval=2000), ContinuousEventTimeTrigger.of(Time.seconds(2))),
        (ContinuousProcessingTimeTrigger(2000), ContinuousProcessingTimeTrigger.of(Time.seconds(2))),
        (PurgingTrigger(nested_trigger=CountTrigger(3)), PurgingTrigger.of(CountTrigger.of(3))),
    ):
        assert made == same
        assert type(made) is type(same)
    windows = TumblingEventTimeWindows(5000, 1000)
    assert (list(windows.starts(6500)), windows.overlaps, windows.is_event_time()) == ([6000], False, True)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (TumblingEventTimeWindows, (5000, 5000)), (SlidingEventTimeWindows, (0, 0, 0)), (EventTimeSessionWindows, (0,)),
        (DynamicEventTimeSessionWindows, (5,)), (CountTrigger, (0,)), (ContinuousEventTimeTrigger, (0,)),
        (ContinuousProcessingTimeTrigger, (-1,)), (PurgingTrigger, (3,)),
    ],
)  # fmt: skip
def test_constructors_check_as_of_does(kind: Any, arguments: tuple[int, ...]) -> None:
    with pytest.raises(InvalidRequestError):
        kind(*arguments)


class FixedGap(SessionWindowTimeGapExtractor):
    def extract(self, element: Any) -> int:
        return 10


def test_a_gap_of_an_element_must_be_a_span() -> None:
    class Gap(SessionWindowTimeGapExtractor):
        def extract(self, element: Any) -> int:
            return element

    gap_of = EventTimeSessionWindows.with_dynamic_gap(Gap()).gap_of()
    assert gap_of(5) == 5
    with pytest.raises(InvalidRequestError, match="gave the gap 0"):
        gap_of(0)


def test_triggers_mean_what_they_mean_in_flink() -> None:
    event, processing = TumblingEventTimeWindows.of(5), TumblingProcessingTimeWindows.of(5)
    assert firing_of(None, event) == firing_of(EventTimeTrigger.create(), event) == Firing(TimeDomain.EVENT_TIME)
    assert firing_of(ProcessingTimeTrigger.create(), processing) == Firing(TimeDomain.PROCESSING_TIME)
    assert firing_of(CountTrigger.of(3), event) == Firing(None, 3)
    assert firing_of(PurgingTrigger.of(CountTrigger.of(3)), GlobalWindows.create()) == Firing(None, 3, purges=True)


class OwnTrigger(Trigger[Any, Any]):
    """A trigger of the user's own, which cannot merge."""

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.FIRE

    def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.PURGE

    def on_merge(self, window: Any, ctx: Any) -> None:
        pass

    def clear(self, window: Any, ctx: Any) -> None:
        pass


class OwnCount(CountTrigger):
    """The behaviour of a subclass is not known beforehand."""


def test_other_triggers_are_asked() -> None:
    event, processing = TumblingEventTimeWindows.of(5), TumblingProcessingTimeWindows.of(5)
    sliding, sessions = SlidingEventTimeWindows.of(10, 5), EventTimeSessionWindows.with_gap(3)
    asked: list[tuple[Any, Any]] = [
        (OwnTrigger(), event),
        (PurgingTrigger.of(OwnTrigger()), processing),
        (OwnCount(3), sliding),
        (EventTimeTrigger.create(), processing),
        (ProcessingTimeTrigger.create(), event),
        (PurgingTrigger.of(CountTrigger.of(3)), sliding),
        (ContinuousEventTimeTrigger.of(Time.seconds(1)), sessions),
        (PurgingTrigger.of(ContinuousProcessingTimeTrigger.of(5)), sessions),
    ]
    for trigger, assigner in asked:
        assert firing_of(trigger, assigner) is None
    assert [result for result in TriggerResult if result.is_fire()] == [
        TriggerResult.FIRE_AND_PURGE,
        TriggerResult.FIRE,
    ]
    assert [result for result in TriggerResult if result.is_purge()] == [
        TriggerResult.FIRE_AND_PURGE, TriggerResult.PURGE,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("trigger", "assigner"),
    [
        (None, GlobalWindows.create()),
        (EventTimeTrigger.create(), GlobalWindows.create()),
        (ProcessingTimeTrigger.create(), GlobalWindows.create()),
        (OwnTrigger(), EventTimeSessionWindows.with_gap(5)),
        (PurgingTrigger.of(OwnTrigger()), EventTimeSessionWindows.with_gap(5)),
        ("later", TumblingEventTimeWindows.of(5)),
    ],
    ids=["none", "global", "global too", "sessions", "purging sessions", "text"],
)
def test_a_trigger_that_these_windows_cannot_have_is_refused(trigger: Any, assigner: Any) -> None:
    with pytest.raises(InvalidRequestError):
        firing_of(trigger, assigner)


@pytest.mark.parametrize(
    ("size_ms", "slide_ms", "is_taken"),
    [(86_400_000, 1, False), (3_600_000, 10, False), (10_000, 1, True), (10_001, 1, False), (20_000, 2, True),
     (20_001, 2, False), (5, 100, True)],
)  # fmt: skip
def test_an_element_belongs_to_a_bounded_number_of_windows(size_ms: int, slide_ms: int, is_taken: bool) -> None:
    """Found as a list of 86 million windows for each element."""
    for assigner in (SlidingEventTimeWindows, SlidingProcessingTimeWindows):
        spans = Time.milliseconds(size_ms), Time.milliseconds(slide_ms)
        if is_taken:
            assert assigner.of(*spans).size_ms == size_ms
        else:
            with pytest.raises(InvalidRequestError, match="10000 is the limit"):
                assigner.of(*spans)
