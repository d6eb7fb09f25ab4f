"""State of a window and of its trigger over every backend: all or nothing, and a time to live."""

from __future__ import annotations

from typing import Any

import pytest

from tests.jobs.keyed_job import KeyedJob
from tests.jobs.mean import MEAN_TYPE, Mean
from varvite.changelog.api.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from varvite.changelog.api.time_spans import Time
from varvite.changelog.api.ttl_config import StateTtlConfig
from varvite.changelog.keyed.namespaced_handles import NamespacedStateStore
from varvite.changelog.keyed.namespaces import aggregating
from varvite.changelog.types.factory import Types
from varvite.storage.errors import InvalidRequestError


@pytest.fixture
def job(keyed_job: KeyedJob) -> KeyedJob:
    return keyed_job


class Unmergeable(Mean):
    """A mean that will not be merged."""

    def merge(self, acc_a: tuple[int, float], acc_b: tuple[int, float]) -> tuple[int, float]:
        raise ZeroDivisionError


def test_lists_of_a_window_take_all_values_or_none(job: KeyedJob) -> None:
    """Found where a function had caught the error of a wrong value: those before it were there, those replaced gone."""
    items = ListStateDescriptor("s", Types.LONG())
    job.set_key("a")
    store = NamespacedStateStore(job.backend, "window-state")
    for number in (1, 2):
        store.namespace = number
        store.get_list_state(items).add_all([number, 5])
    for change in (store.get_list_state(items).add_all, store.get_list_state(items).update):
        with pytest.raises(InvalidRequestError, match="is not a value of type long"):
            change([7, "x", 8])
        assert store.get_list_state(items).get() == [2, 5]
    store.get_list_state(items).update([])
    assert store.get_list_state(items).get() == []
    store.namespace = 1
    assert store.get_list_state(items).get() == [1, 5]
    store.get_list_state(items).update([9])
    assert store.get_list_state(items).get() == [9]
    store.get_list_state(items).update([])
    job.commit()
    assert not any(job._contents(job.backend.store).values())


def test_namespaces_that_cannot_be_merged_stay_as_they_were(job: KeyedJob) -> None:
    job.set_key("a")
    means = aggregating(job.backend, "means", MEAN_TYPE, Unmergeable())
    for namespace in (1, 2):
        means.add(namespace, 3.0)
    with pytest.raises(ZeroDivisionError):
        means.merge_namespaces(1, [1, 2])
    assert [means.get(namespace) for namespace in (1, 2)] == [(1, 3.0), (1, 3.0)]


def with_ttl(descriptor: Any, *, read: bool = False) -> Any:
    """The descriptor with a life of 10 ms, which writing renews, or reading as well."""
    builder = StateTtlConfig.new_builder(Time.milliseconds(10))
    descriptor.enable_time_to_live((builder.update_ttl_on_read_and_write() if read else builder).build())
    return descriptor


@pytest.mark.parametrize("had_ttl", [True, False])
def test_state_of_a_window_expires(job: KeyedJob, had_ttl: bool) -> None:
    """Found as a time to live that was not heeded."""

    def held() -> list[Any]:
        makers: list[Any] = [
            lambda: ValueStateDescriptor("s", Types.LONG()),
            lambda: ReducingStateDescriptor("s", lambda a, b: a + b, Types.LONG()),
            lambda: AggregatingStateDescriptor("s", Unmergeable(), MEAN_TYPE),
            lambda: ListStateDescriptor("s", Types.LONG()),
            lambda: MapStateDescriptor("s", Types.STRING(), Types.LONG()),
        ]
        job.set_key("a")
        store = NamespacedStateStore(job.backend, "window-state")
        store.namespace = 1
        return [store.get_any_state(with_ttl(make()) if had_ttl or job.now.time_ms else make()) for make in makers]

    value, total, mean, items, entries = held()
    value.update(1)
    total.add(2)
    mean.add(3.0)
    items.add_all([4])
    entries.put("x", 5)
    job.commit()
    job.crash()
    job.move_time(5)
    value, total, mean, items, entries = held()
    assert [value.value(), total.get(), mean.get(), items.get(), entries.items()] == [1, 2, 3.0, [4], [("x", 5)]]
    items.add(6)
    job.commit()
    job.crash()
    job.move_time(11)
    value, total, mean, items, entries = held()
    lives = [None, None, None, [6], []] if had_ttl else [1, 2, 3.0, [4, 6], [("x", 5)]]
    assert [value.value(), total.get(), mean.get(), items.get(), entries.items()] == lives, "5 ms after it was there"
    job.commit()
    job.move_time(20)
    value, total, mean, items, entries = held()
    assert [value.value(), total.get(), mean.get(), items.get(), entries.items()] == [None, None, None, [], []]
    items.clear()
    job.commit()
    assert not any(job._contents(job.backend.store).values())


def test_reading_renews_the_state_of_that_window_alone(job: KeyedJob) -> None:
    job.set_key("a")
    store = NamespacedStateStore(job.backend, "window-state")
    for number in (1, 2):
        store.namespace = number
        store.get_state(with_ttl(ValueStateDescriptor("s", Types.LONG()), read=True)).update(number)
    job.commit()
    for time_ms, seen in ((9, 2), (15, 2)):
        job.move_time(time_ms)
        job.set_key("a")
        assert store.get_state(with_ttl(ValueStateDescriptor("s", Types.LONG()), read=True)).value() == seen
        job.commit()
    job.set_key("a")
    store.namespace = 1
    assert store.get_state(with_ttl(ValueStateDescriptor("s", Types.LONG()), read=True)).value() is None
    for shared in (ListStateDescriptor("s", Types.LONG()), MapStateDescriptor("s", Types.STRING(), Types.LONG())):
        with pytest.raises(InvalidRequestError, match="let only writing renew it"):
            store.get_any_state(with_ttl(shared, read=True))
