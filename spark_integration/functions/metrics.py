"""Metrics of a user's function, with PyFlink's names: `RuntimeContext.get_metrics_group()`.

A worker keeps what its function has measured since its last summary, and the summary of an attempt takes it along. The
driver adds up those of the attempts that are committed.

Invariants: I2 (only winners count), I10 (an instance has at most `METRICS_MAX` metrics).
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, TypeVar

from varvite.spark_integration.messages.user_metrics import MetricKind, UserMetric
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable

_log: Final = logging.getLogger(__name__)
METRICS_MAX: Final = 100
"""Metrics of one function instance."""


class Metric(ABC):
    """A metric of a function instance."""

    @abstractmethod
    def take(self, name: str) -> UserMetric | None:
        """The measurement since the last call; None if there is nothing."""


class _Count(Metric):
    """A number and its change since the last measurement."""

    _kind: MetricKind

    def __init__(self) -> None:
        self._count = self._taken = 0

    def get_count(self) -> int:
        """The number that this instance has counted."""
        return self._count

    def take(self, name: str) -> UserMetric | None:
        change, self._taken = self._count - self._taken, self._count
        return UserMetric(name, self._kind, change) if change else None


class Counter(_Count):
    """A number that goes up and down."""

    _kind = "counter"

    def inc(self, n: int = 1) -> None:
        """Add to it."""
        self._count += n

    def dec(self, n: int = 1) -> None:
        """Subtract from it."""
        self._count -= n


class Gauge(Metric):
    """A value that a function gives at the end of each batch."""

    def __init__(self, value: Callable[[], Any]) -> None:
        self._value = value

    def take(self, name: str) -> UserMetric | None:
        try:
            return UserMetric(name, "gauge", total=float(self._value()))
        except Exception as error:  # noqa: BLE001  a measurement must not end a batch
            _log.warning("gauge %s: its function gave no number: %r", name, error)
            return None


class Meter(_Count):
    """Events, whose rate is that of the metric's counter."""

    _kind = "meter"

    def mark_event(self, value: int = 1) -> None:
        """Count events."""
        self._count += value


class Distribution(Metric):
    """Values with their count, sum, least and largest."""

    def __init__(self) -> None:
        self._values: list[float] = []

    def update(self, value: float) -> None:
        """Add a value."""
        held = self._values
        if not held:
            held[:] = [1, value, value, value]
        else:
            held[:] = [held[0] + 1, held[1] + value, min(held[2], value), max(held[3], value)]

    def take(self, name: str) -> UserMetric | None:
        if not self._values:
            return None
        count, total, least, largest = self._values
        self._values = []
        return UserMetric(name, "distribution", int(count), total, least, largest)


M = TypeVar("M", bound=Metric)


class MetricRegistry:
    """The metrics of one function instance."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}

    def add(self, name: str, metric: M) -> M:
        """Add a metric, or return the one of that name and kind that there is.

        Raises:
            InvalidRequestError: There are too many, or one of another kind has the name.
        """
        held = self._metrics.get(name)
        if held is not None and not isinstance(metric, Gauge):
            if type(held) is not type(metric):
                raise InvalidRequestError(f"the metric {name!r} is a {type(held).__name__} already; take another name")
            return held
        if held is None and len(self._metrics) >= METRICS_MAX:
            raise InvalidRequestError(
                f"metric {name!r}: a function has at most {METRICS_MAX} metrics; make them in open(), with fixed names"
            )
        self._metrics[name] = metric
        return metric

    def take(self) -> tuple[UserMetric, ...]:
        """The measurements since the last call."""
        if not self._metrics:
            return ()
        taken = [metric.take(name) for name, metric in self._metrics.items()]
        return tuple([metric for metric in taken if metric is not None])


class MetricGroup:
    """Makes metrics; a group within another one puts its name before theirs."""

    def __init__(self, registry: MetricRegistry, scope: tuple[str, ...] = ()) -> None:
        self._registry = registry
        self._scope = scope

    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """A group within this one; with a second name, one within that."""
        return MetricGroup(self._registry, (*self._scope, str(name), *([] if extra is None else [str(extra)])))

    def counter(self, name: str) -> Counter:
        """A number that goes up and down. Raises `InvalidRequestError` for too many metrics, as do the others."""
        return self._registry.add(self._full(name), Counter())

    def gauge(self, name: str, obj: Callable[[], Any]) -> None:
        """A value that a function gives at the end of each batch."""
        self._registry.add(self._full(name), Gauge(obj))

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        """Events; the span is that of a query, `rate(...[1m])`, and has no effect here."""
        del time_span_in_seconds
        return self._registry.add(self._full(name), Meter())

    def distribution(self, name: str) -> Distribution:
        """Values with their count, sum, least and largest."""
        return self._registry.add(self._full(name), Distribution())

    def _full(self, name: str) -> str:
        return ".".join((*self._scope, str(name)))
