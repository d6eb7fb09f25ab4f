"""The benchmark of timers, with few of them."""

from __future__ import annotations

from benchmarks.timers import KEY, KEY_GROUPS, filled, measured_ms
from varvite.changelog.working_stores.hashmap.store import HashMapStore


def test_timers_are_measured() -> None:
    store = HashMapStore(operator="op", key_type=KEY.type_string(), low=0, high=KEY_GROUPS)
    assert measured_ms(filled(store, 50), 10) > 0
