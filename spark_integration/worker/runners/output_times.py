"""Event times of what a function yields, for the operator behind it, as in Flink.

An element has the time of the element that it was made of, or of the event-time timer; what a window yields has the
window's last millisecond. A processing-time timer gives none.
"""

from __future__ import annotations

from types import GeneratorType
from typing import TYPE_CHECKING, Any

from varvite.changelog.keyed.timers import TimeDomain
from varvite.spark_integration.functions.keyed import KeyedProcessFunction
from varvite.spark_integration.functions.returned import returned
from varvite.spark_integration.operators.windows.operator import WindowOperator
from varvite.storage.errors import InvariantError

if TYPE_CHECKING:
    from collections.abc import Callable


def with_times(function: Any, method: Callable[[Any, Any], Any]) -> Callable[[Any, Any], list[Any] | None]:
    """The method of a function (`process_element` or `on_timer`), with a pair of time and element for each element."""
    if isinstance(function, WindowOperator):
        return _of_windows(function, method)

    def call(value: Any, ctx: Any) -> list[Any] | None:
        result = method(value, ctx)
        if result is None:
            return None
        time_ms = _time_of(ctx)
        return [(time_ms, element) for element in (result if type(result) is GeneratorType else returned(result))]

    return call


def _of_windows(operator: WindowOperator, method: Callable[[Any, Any], Any]) -> Callable[[Any, Any], list[Any] | None]:
    emission = operator.emission

    def call(value: Any, ctx: Any) -> list[Any] | None:
        times_ms: list[int] = []
        emission.times_ms = times_ms
        result = method(value, ctx)
        if not result:
            return None
        elements = list(result)
        if not times_ms:  # a late element, for a side output
            return [(_time_of(ctx), element) for element in elements]
        if len(times_ms) != len(elements):
            raise InvariantError(f"{len(elements)} elements of windows have {len(times_ms)} times")
        return list(zip(times_ms, elements, strict=True))

    return call


def _time_of(ctx: Any) -> int | None:
    if isinstance(ctx, KeyedProcessFunction.OnTimerContext) and ctx.time_domain() is not TimeDomain.EVENT_TIME:
        return None
    return ctx.timestamp()
