"""The driver reads what standbys tell, and believes none that has been silent for long."""

from __future__ import annotations

import pytest

from tests.stores.manual_clock import ManualClock
from tests.stores.scripted import ScriptedStore
from varvite.materializer.service.sharing import FORGOTTEN_AFTER_MS, HEARTBEAT_MS
from varvite.materializer.standby.record import StandbyRecord, encode_standby
from varvite.spark_integration.driver.placement.standbys import NO_COPIES, StandbyWatch
from varvite.storage.errors import DidNotHappenError
from varvite.storage.format import layout

JOB = "0123"


class Watched:
    """A job's watch, and its standbys."""

    def __init__(self, operators: dict[str, int]) -> None:
        self.store = ScriptedStore()
        self.clock = ManualClock()
        self.watch = StandbyWatch(self.store, JOB, operators, self.clock)

    def tell(self, host: str, counter: int) -> None:
        record = StandbyRecord(job_id=JOB, host=host, names=(host,), counter=counter)
        self.store.put(layout.standby(host), encode_standby(record))

    def look(self) -> list[str]:
        """The hosts that are known after a look, a heartbeat later."""
        self.clock.advance(HEARTBEAT_MS / 1000)
        self.watch.look()
        return [one.host for one in self.watch.copies().records]


def test_what_standbys_tell_is_read_once_per_heartbeat() -> None:
    watched = Watched({"sums": 4})
    watched.tell("a", 1)
    assert watched.look() == ["a"]
    assert watched.watch.copies().operators == {("sums", 4)}
    watched.tell("b", 1)
    watched.watch.look()
    assert len(watched.watch.copies().records) == 1, "it is not time"
    assert watched.look() == ["a", "b"]


def test_without_operators_that_take_copies_over_nothing_is_read() -> None:
    watched = Watched({})
    watched.tell("a", 1)
    assert watched.look() == []
    assert watched.store.calls == ["put"]
    assert watched.watch.copies() == NO_COPIES


def test_a_standby_that_is_silent_for_long_is_forgotten_by_ones_own_clock() -> None:
    watched = Watched({"sums": 4})
    for counter in range(FORGOTTEN_AFTER_MS // HEARTBEAT_MS):
        watched.tell("a", 7)
        watched.tell("b", counter)
        assert watched.look() == ["a", "b"]
    watched.tell("b", 0)
    assert watched.look() == ["b"]
    assert [meta.name for meta in watched.store.list(layout.STANDBYS)] == [layout.standby("b")]


def test_a_storage_that_cannot_be_read_leaves_what_is_known(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise DidNotHappenError("no answer")

    watched = Watched({"sums": 4})
    watched.tell("a", 1)
    assert watched.look() == ["a"]
    watched.store.script["get"] += [fail, fail]
    assert watched.look() == watched.look() == ["a"]
    assert len(caplog.records) == 1, "it is told once"
    watched.tell("b", 1)
    assert watched.look() == ["a", "b"]
