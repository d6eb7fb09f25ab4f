"""Metrics of the users' functions in Prometheus's form, added up from the summaries of attempts that are committed.

They are counted from the start of the driver's process, as Flink's are from that of a task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from varvite.spark_integration.driver.monitoring.gauges import OPERATOR

if TYPE_CHECKING:
    from varvite.spark_integration.messages.summary import Summary

_METRIC: Final = (*OPERATOR, "metric")


class UserMetrics:
    """The metrics of the functions of all jobs."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counters = Gauge("varvite_user_counter", "Counters of functions.", _METRIC, registry=registry)
        self._gauges = Gauge(
            "varvite_user_gauge", "Gauges of functions.", (*OPERATOR, "partition", "metric"), registry=registry
        )
        self._events = Counter("varvite_user_meter_events", "Events of functions' meters.", _METRIC, registry=registry)
        self._values = Counter(
            "varvite_user_distribution_values", "Values of functions' distributions.", _METRIC, registry=registry
        )
        self._sums = Gauge("varvite_user_distribution_sum_of_values", "Their sum.", _METRIC, registry=registry)
        self._least = Gauge(
            "varvite_user_distribution_min", "Their least of the last summary with some.", _METRIC, registry=registry
        )
        self._largest = Gauge("varvite_user_distribution_max", "Their largest of it.", _METRIC, registry=registry)

    def add(self, job: str, operator: str, summaries: tuple[Summary, ...]) -> None:
        """Count what the attempts of an operator have measured in a batch."""
        extremes: dict[str, tuple[float, float]] = {}
        for summary in summaries:
            for metric in summary.metrics:
                labels = job, operator, metric.name
                if metric.kind == "counter":
                    self._counters.labels(*labels).inc(metric.count)
                elif metric.kind == "gauge":
                    self._gauges.labels(job, operator, str(summary.partition), metric.name).set(metric.total)
                elif metric.kind == "meter":
                    self._events.labels(*labels).inc(max(metric.count, 0))
                else:
                    self._values.labels(*labels).inc(metric.count)
                    self._sums.labels(*labels).inc(metric.total)
                    least, largest = extremes.get(metric.name, (metric.least, metric.largest))
                    extremes[metric.name] = min(least, metric.least), max(largest, metric.largest)
        for name, (least, largest) in extremes.items():
            self._least.labels(job, operator, name).set(least)
            self._largest.labels(job, operator, name).set(largest)
