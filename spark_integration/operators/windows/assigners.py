"""Windows, and the assigners of elements to them, with PyFlink's names. Pure.

Overlapping windows of fixed size share their contents: time is divided into *panes* at every begin and end of a window.
An element is kept once, in its pane, and a window is combined from its panes when it fires. There are at most two panes
per slide, for any size and slide.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from varvite.changelog.api.time_spans import milliseconds_of
from varvite.changelog.keyed.timers import TimeDomain
from varvite.changelog.working_stores.timer_form import TIME_MAX_MS
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable

TimeSpan = Any
"""A `Time`, a `Duration`, a `timedelta`, or whole milliseconds."""

WINDOWS_PER_ELEMENT_MAX: Final = 10_000
"""Windows to which an element may belong: size by slide."""


class Window(ABC):
    """A window of elements."""

    __slots__ = ()

    @abstractmethod
    def max_timestamp(self) -> int:
        """The last millisecond of the window, at which it is complete."""


@dataclass(frozen=True, order=True, slots=True)
class TimeWindow(Window):
    """A window from `start` to before `end`, milliseconds since 1970."""

    start: int
    end: int

    def max_timestamp(self) -> int:
        return self.end - 1

    @staticmethod
    def get_window_start_with_offset(timestamp: int, offset: int, window_size: int) -> int:
        """Begin of the tumbling window of a timestamp, all in milliseconds."""
        return timestamp - (timestamp - offset) % window_size

    def intersects(self, other: TimeWindow) -> bool:
        """True if the windows overlap or touch, as in Flink."""
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: TimeWindow) -> TimeWindow:
        """The smallest window that contains both."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))


@dataclass(frozen=True, order=True, slots=True)
class GlobalWindow(Window):
    """The one window of all times."""

    @staticmethod
    def get() -> GlobalWindow:
        """The window."""
        return GlobalWindow()

    def max_timestamp(self) -> int:
        return TIME_MAX_MS


@dataclass(frozen=True, order=True, slots=True)
class CountWindow(Window):
    """A window of a number of elements; windows of a key are counted from 0."""

    id: int

    def max_timestamp(self) -> int:
        return TIME_MAX_MS


class WindowAssigner(ABC):
    """Assigns elements to windows; make one with the classes below."""

    domain: ClassVar[TimeDomain]

    def is_event_time(self) -> bool:
        """True if the windows follow event time."""
        return self.domain is TimeDomain.EVENT_TIME


@dataclass(frozen=True)
class FixedWindows(WindowAssigner):
    """Windows of one size, one at each slide: they are the same for all keys."""

    size_ms: int
    slide_ms: int
    offset_ms: int

    @property
    def overlaps(self) -> bool:
        """True if an element may be in several windows."""
        return self.slide_ms < self.size_ms

    def starts(self, time_ms: int) -> range:
        """Begins of the windows of that time, ascending; none in a gap between windows."""
        last = time_ms - (time_ms - self.offset_ms) % self.slide_ms
        after = time_ms - self.size_ms
        if last <= after:
            return range(0)
        return range(last - (last - after - 1) // self.slide_ms * self.slide_ms, last + 1, self.slide_ms)

    def pane(self, time_ms: int) -> int:
        """Begin of the pane of that time: the last begin or end of a window until then."""
        since_begin = (time_ms - self.offset_ms) % self.slide_ms
        since_end = (time_ms - self.offset_ms - self.size_ms) % self.slide_ms
        return time_ms - min(since_begin, since_end)

    def is_start(self, time_ms: int) -> bool:
        """True if a window begins at that time."""
        return (time_ms - self.offset_ms) % self.slide_ms == 0


class _TumblingWindows(FixedWindows):
    def __init__(self, size: TimeSpan, offset: TimeSpan = None) -> None:
        """Raises `InvalidRequestError` for no such windows; the parameters are those of `of`."""
        size_ms = span_ms(size, "the size of a window")
        super().__init__(size_ms, size_ms, _offset_ms(offset, size_ms))

    @classmethod
    def of(cls, size: TimeSpan, offset: TimeSpan = None) -> Self:
        """Windows that follow one another.

        Args:
            size: Of each window.
            offset: The first window that begins at or after 1970 begins later by this; less than the size.

        Raises:
            InvalidRequestError: No such windows.
        """
        return cls(size, offset)


class _SlidingWindows(FixedWindows):
    def __init__(self, size: TimeSpan, slide: TimeSpan, offset: TimeSpan = None) -> None:
        """Raises `InvalidRequestError` for no such windows; the parameters are those of `of`."""
        size_ms, slide_ms = span_ms(size, "the size of a window"), span_ms(slide, "the slide of a window")
        windows = -(-size_ms // slide_ms)
        if windows > WINDOWS_PER_ELEMENT_MAX:
            raise InvalidRequestError(
                f"windows of {size_ms} ms with a slide of {slide_ms} ms put each element into {windows} windows, and "
                f"{WINDOWS_PER_ELEMENT_MAX} is the limit: each costs a timer, so take a longer slide (a bare number is "
                "milliseconds)"
            )
        super().__init__(size_ms, slide_ms, _offset_ms(offset, slide_ms))

    @classmethod
    def of(cls, size: TimeSpan, slide: TimeSpan, offset: TimeSpan = None) -> Self:
        """Windows of a size, of which one begins at each slide.

        Args:
            size: Of each window.
            slide: From the begin of one to the begin of the next; above the size, there are gaps.
            offset: The first window that begins at or after 1970 begins later by this; less than the slide.

        Raises:
            InvalidRequestError: No such windows.
        """
        return cls(size, slide, offset)


class TumblingEventTimeWindows(_TumblingWindows):
    """`TumblingEventTimeWindows.of(Time.minutes(5))`."""

    domain = TimeDomain.EVENT_TIME


class TumblingProcessingTimeWindows(_TumblingWindows):
    """As `TumblingEventTimeWindows`, by the time of the batch; a window ends in the first batch after it."""

    domain = TimeDomain.PROCESSING_TIME


class SlidingEventTimeWindows(_SlidingWindows):
    """`SlidingEventTimeWindows.of(Time.minutes(5), Time.seconds(10))`."""

    domain = TimeDomain.EVENT_TIME


class SlidingProcessingTimeWindows(_SlidingWindows):
    """As `SlidingEventTimeWindows`, by the time of the batch."""

    domain = TimeDomain.PROCESSING_TIME


class SessionWindowTimeGapExtractor(ABC):
    """Computes the gap after which a session ends."""

    @abstractmethod
    def extract(self, element: Any) -> int:
        """Milliseconds, above 0."""


@dataclass(frozen=True)
class SessionWindows(WindowAssigner):
    """Windows of elements that follow one another within a gap; each key has its own."""

    gap_ms: int | None
    extractor: SessionWindowTimeGapExtractor | None = None
    """If the gap is not fixed."""

    def gap_of(self) -> Callable[[Any], int]:
        """A function from an element to its gap, milliseconds."""
        if self.gap_ms is not None:
            fixed_ms = self.gap_ms
            return lambda _: fixed_ms
        extract = self.extractor.extract if self.extractor else None
        if extract is None:
            raise InvalidRequestError("a session needs a gap: with_gap(...) or with_dynamic_gap(...)")

        def gap(element: Any) -> int:
            gap_ms = extract(element)
            if not isinstance(gap_ms, int) or gap_ms <= 0:
                raise InvalidRequestError(f"extract() gave the gap {gap_ms!r}; give whole milliseconds above 0")
            return gap_ms

        return gap


class _FixedGap(SessionWindows):
    def __init__(self, session_gap: TimeSpan) -> None:
        """Raises `InvalidRequestError` for no span of time."""
        super().__init__(span_ms(session_gap, "the gap of a session"))

    @classmethod
    def with_gap(cls, size: TimeSpan) -> Self:
        """Sessions that end after this gap without elements. Raises `InvalidRequestError` for no span of time."""
        return cls(size)


class _DynamicGap(SessionWindows):
    def __init__(self, session_window_time_gap_extractor: SessionWindowTimeGapExtractor) -> None:
        """Raises `InvalidRequestError` for no extractor."""
        if not isinstance(session_window_time_gap_extractor, SessionWindowTimeGapExtractor):
            raise InvalidRequestError(
                f"a SessionWindowTimeGapExtractor is needed, not {session_window_time_gap_extractor!r}"
            )
        super().__init__(None, session_window_time_gap_extractor)

    @classmethod
    def with_dynamic_gap(cls, extractor: SessionWindowTimeGapExtractor) -> Self:
        """Sessions with gaps that depend on their elements. Raises `InvalidRequestError` for no extractor."""
        return cls(extractor)


class DynamicEventTimeSessionWindows(_DynamicGap):
    """Sessions with gaps that depend on their elements; `EventTimeSessionWindows.with_dynamic_gap` makes such, too."""

    domain = TimeDomain.EVENT_TIME


class DynamicProcessingTimeSessionWindows(_DynamicGap):
    """As `DynamicEventTimeSessionWindows`, by the time of the batch."""

    domain = TimeDomain.PROCESSING_TIME


class EventTimeSessionWindows(_FixedGap):
    """`EventTimeSessionWindows.with_gap(Time.minutes(10))`."""

    domain = TimeDomain.EVENT_TIME

    @staticmethod
    def with_dynamic_gap(extractor: SessionWindowTimeGapExtractor) -> DynamicEventTimeSessionWindows:
        """Sessions with gaps that depend on their elements. Raises `InvalidRequestError` for no extractor."""
        return DynamicEventTimeSessionWindows(extractor)


class ProcessingTimeSessionWindows(_FixedGap):
    """As `EventTimeSessionWindows`, by the time of the batch."""

    domain = TimeDomain.PROCESSING_TIME

    @staticmethod
    def with_dynamic_gap(extractor: SessionWindowTimeGapExtractor) -> DynamicProcessingTimeSessionWindows:
        """Sessions with gaps that depend on their elements. Raises `InvalidRequestError` for no extractor."""
        return DynamicProcessingTimeSessionWindows(extractor)


@dataclass(frozen=True)
class GlobalWindows(WindowAssigner):
    """One window for each key; it needs a trigger."""

    domain = TimeDomain.PROCESSING_TIME

    @staticmethod
    def create() -> GlobalWindows:
        """The assigner."""
        return GlobalWindows()


@dataclass(frozen=True)
class CountWindows(WindowAssigner):
    """Windows of a number of elements of a key, one of which begins at each slide; they fire when they are full."""

    size: int
    slide: int

    domain = TimeDomain.PROCESSING_TIME


class CountTumblingWindowAssigner(CountWindows):
    """`CountTumblingWindowAssigner.of(100)`, which is `count_window(100)`."""

    def __init__(self, window_size: int) -> None:
        """Raises `InvalidRequestError` below 1."""
        super().__init__(_elements(window_size, "size"), window_size)

    @staticmethod
    def of(window_size: int) -> CountTumblingWindowAssigner:
        """The assigner. Raises `InvalidRequestError` below 1."""
        return CountTumblingWindowAssigner(window_size)


class CountSlidingWindowAssigner(CountWindows):
    """`CountSlidingWindowAssigner.of(100, 10)`, which is `count_window(100, 10)`; above the size, there are gaps."""

    def __init__(self, window_size: int, window_slide: int) -> None:
        """Raises `InvalidRequestError` below 1."""
        super().__init__(_elements(window_size, "size"), _elements(window_slide, "slide"))

    @staticmethod
    def of(window_size: int, window_slide: int) -> CountSlidingWindowAssigner:
        """The assigner. Raises `InvalidRequestError` below 1."""
        return CountSlidingWindowAssigner(window_size, window_slide)


def _elements(number: int, what: str) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise InvalidRequestError(f"the {what} of a count window is {number!r} elements; give 1 or more")
    return number


def span_ms(span: TimeSpan, what: str) -> int:
    """Milliseconds of a span of time, above 0. Raises `InvalidRequestError`."""
    length_ms = _milliseconds(span)
    if length_ms is None or length_ms <= 0:
        raise InvalidRequestError(f"{what} is {span!r}; give a span above 0, such as Time.seconds(10)")
    return length_ms


def _milliseconds(span: TimeSpan) -> int | None:
    return span if isinstance(span, int) and not isinstance(span, bool) else milliseconds_of(span)


def _offset_ms(offset: TimeSpan, slide_ms: int) -> int:
    if offset is None:
        return 0
    offset_ms = _milliseconds(offset)
    if offset_ms is None or abs(offset_ms) >= slide_ms:
        raise InvalidRequestError(f"the offset of a window is {offset!r}; give less than {slide_ms} ms, the slide")
    return offset_ms
