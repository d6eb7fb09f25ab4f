"""Metrics of functions: what an attempt takes along, and where they end."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import generate_latest

from tests.stores.manual_clock import ManualClock
from tests.workers.summaries import summary
from varvite.changelog.types.factory import Types
from varvite.datastream import DataStream, KeyedProcessFunction, MapFunction, RuntimeContext
from varvite.spark_integration.driver.monitoring.metrics import JobMetrics
from varvite.spark_integration.functions.metrics import METRICS_MAX, MetricGroup, MetricRegistry
from varvite.spark_integration.messages.summary import decode_summary, encode_summary
from varvite.spark_integration.messages.user_metrics import UserMetric
from varvite.storage.errors import InvalidRequestError
from varvite.testing import OperatorHarness


def test_each_kind_takes_along_what_was_measured_since_the_last_time() -> None:
    registry = MetricRegistry()
    group = MetricGroup(registry).add_group("flights").add_group("airport", "EWR")
    counter, meter, values = group.counter("late"), group.meter("events"), group.distribution("delay")
    held: dict[str, Any] = {"size": 3}
    group.gauge("size", lambda: held["size"])
    counter.inc()
    counter.inc(4)
    counter.dec()
    meter.mark_event(2)
    for value in (5, 1, 3):
        values.update(value)
    prefix = "flights.airport.EWR."
    assert set(registry.take()) == {
        UserMetric(f"{prefix}late", "counter", 4),
        UserMetric(f"{prefix}events", "meter", 2),
        UserMetric(f"{prefix}delay", "distribution", 3, 9, 1, 5),
        UserMetric(f"{prefix}size", "gauge", total=3),
    }
    assert registry.take() == (UserMetric(f"{prefix}size", "gauge", total=3),)
    assert (counter.get_count(), meter.get_count()) == (4, 2)
    held.clear()
    assert registry.take() == (), "a gauge that raises ends no batch"


def test_a_name_is_one_metric_and_there_are_not_too_many() -> None:
    registry = MetricRegistry()
    group = MetricGroup(registry)
    assert group.counter("a") is group.counter("a")
    with pytest.raises(InvalidRequestError, match="is a Counter already"):
        group.meter("a")
    for number in range(METRICS_MAX - 1):
        group.counter(f"c{number}")
    with pytest.raises(InvalidRequestError, match="at most 100"):
        group.counter("z")


def test_the_driver_adds_up_what_winners_have_measured() -> None:
    def measured(partition: int, *metrics: UserMetric) -> Any:
        return decode_summary(encode_summary(summary(partition=partition, metrics=metrics)))

    shown = JobMetrics(ManualClock())
    batch = (
        measured(0, UserMetric("late", "counter", 4), UserMetric("d", "distribution", 2, 7, 3, 4)),
        measured(1, UserMetric("late", "counter", -1), UserMetric("d", "distribution", 1, 9, 9, 9)),
        measured(2, UserMetric("size", "gauge", total=8), UserMetric("e", "meter", 5)),
    )
    for _ in range(2):
        shown._of_users.add("job", "op", batch)
    text = generate_latest(shown.registry).decode()
    labels = 'job="job",metric="{}",operator="op"'
    for name, metric, value in (
        ("varvite_user_counter", "late", 6.0),
        ("varvite_user_distribution_values_total", "d", 6.0),
        ("varvite_user_distribution_sum_of_values", "d", 32.0),
        ("varvite_user_distribution_min", "d", 3.0),
        ("varvite_user_distribution_max", "d", 9.0),
        ("varvite_user_meter_events_total", "e", 10.0),
    ):
        assert f"{name}{{{labels.format(metric)}}} {value}" in text
    assert 'varvite_user_gauge{job="job",metric="size",operator="op",partition="2"} 8.0' in text


class Counting(KeyedProcessFunction[Any, Any, Any]):
    """Counts its elements."""

    def open(self, runtime_context: RuntimeContext) -> None:
        assert runtime_context.get_attempt_number() == 0
        self.elements = runtime_context.get_metrics_group().counter("elements")

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.elements.inc()
        yield value


class Behind(MapFunction[Any, Any]):
    """Counts what the operator before it yields."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.elements = runtime_context.get_metrics_group().counter("behind")

    def map(self, value: Any) -> Any:
        self.elements.inc(2)
        return value


def test_functions_of_an_operator_and_behind_it_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[UserMetric] = []
    take = MetricRegistry.take

    def spy(registry: MetricRegistry) -> tuple[UserMetric, ...]:
        metrics = take(registry)
        taken.extend(metrics)
        return metrics

    monkeypatch.setattr(MetricRegistry, "take", spy)

    def program(stream: DataStream) -> DataStream:
        return stream.key_by(lambda value: value, Types.LONG()).process(Counting(), Types.LONG()).map(Behind())

    with OperatorHarness(program, Types.LONG()) as harness:
        assert harness.process_batch([1, 2, 3]) == [1, 2, 3]
        harness.process_batch([4])
    assert taken == [
        UserMetric("behind", "counter", 6), UserMetric("elements", "counter", 3),
        UserMetric("behind", "counter", 2), UserMetric("elements", "counter", 1),
    ]  # fmt: skip
