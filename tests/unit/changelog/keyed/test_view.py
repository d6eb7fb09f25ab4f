"""`StateView`: it sees what a function would see, of states that nobody has asked for as well, and leaves no trace."""

from __future__ import annotations

from pathlib import Path

from tests.jobs.keyed_job import KeyedJob
from tests.jobs.living_job import AVERAGE, LIST, MAP, SUM, VALUE
from varvite.changelog.keyed.backend import KeyedStateBackend
from varvite.changelog.keyed.timers import TimeDomain
from varvite.changelog.keyed.view import StateView, ViewedTimer
from varvite.changelog.segments.batch import BatchTime
from varvite.changelog.types.factory import Types

EVENT, PROCESSING = TimeDomain.EVENT_TIME, TimeDomain.PROCESSING_TIME


def everything(view: StateView) -> dict[str, object]:
    """State of keys a and b, which are in key group 1."""
    found = {
        name: {key: view.value(name, 1, key) for key in "ab" if key in set(view.keys(name))} for name in view.names
    }
    return {**found, "timers": sorted(view.timers(), key=repr)}


def test_pending_and_confirmed_state_are_seen_alike(tmp_path: Path) -> None:
    job = KeyedJob("hashmap", "on", tmp_path)
    backend = job.backend
    handles = [job.handle(descriptor) for descriptor in (VALUE, LIST, MAP, SUM, AVERAGE)]
    value, items, entries, total, average = handles
    timers = backend.get_timers("service", EVENT, Types.LONG())
    plain = backend.get_timers("service", PROCESSING)
    backend.set_current_key(1, "a")
    value.update("x")
    items.add(1)
    entries.put(1, None)
    total.add(4)
    average.add(6)
    timers.register(10, 7)
    timers.register(11, 7)
    plain.register(5)
    backend.set_current_key(1, "b")
    items.add(2)
    expected = {
        "value": {"a": "x"},
        "list": {"a": [1], "b": [2]},
        "map": {"a": {1: None}},
        "sum": {"a": 4},
        "average": {"a": (1, 6)},
        "timers": [
            ViewedTimer(10, "a", EVENT, 7),
            ViewedTimer(11, "a", EVENT, 7),
            ViewedTimer(5, "a", PROCESSING, None),
        ],
    }
    view = StateView(backend, job.now)
    assert everything(view) == expected
    assert backend.get_current_key() == "b", "no key became current"
    job.commit()
    assert everything(view) == expected
    assert backend.changes() == [], "nothing was changed by looking"
    backend.set_current_key(1, "a")
    value.clear()
    entries.remove(1)
    items.update([])
    timers.delete(10, 7)
    left = {
        **expected,
        "value": {},
        "map": {},
        "list": {"b": [2]},
        "timers": [expected["timers"][1], expected["timers"][2]],
    }  # type: ignore[index]
    assert everything(view) == left
    job.commit()
    fresh = KeyedStateBackend(backend.store, job.key_type, "op", backend.schemas)
    assert everything(StateView(fresh, BatchTime(0))) == left, "nobody has asked for a state"
    assert fresh.overlay("value") is None
    assert list(view.keys("no such state")) == []
    assert view.value("no such state", 1, "a") is None
    job.close()
