"""Visits of a state worker: who waits, who is cut off."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tests.stores.manual_clock import ManualClock
from tests.workers.state_worker_setup import opening, task_request
from varvite.spark_integration.messages.protocol import Ready
from varvite.spark_integration.transport.wire import Channel, Confirmation, PeerLostError
from varvite.spark_integration.worker.process.lobby import Lobby, Visit
from varvite.storage.format.records import Link

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from varvite.spark_integration.messages.protocol import TaskRequest


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def lobby(clock: ManualClock) -> Lobby:
    return Lobby(clock)


@pytest.fixture
def arrive(lobby: Lobby) -> Iterator[Callable[..., tuple[Visit, Channel]]]:
    channels: list[Channel] = []

    def enter(**request: Any) -> tuple[Visit, Channel]:
        inner, outer = (Channel(s) for s in socket.socketpair())
        channels.extend((inner, outer))
        outer.set_timeout(0.05)
        visit = Visit(inner, opening(task_request(**request)))
        lobby.enter(visit)
        return visit, outer

    yield enter
    for channel in channels:
        channel.close()


def cut_off(pump: Channel) -> bool:
    """Whether the pump's connection has ended, as opposed to being silent."""
    with pytest.raises(PeerLostError) as caught:
        pump.receive_message(Ready)
    return "closed" in str(caught.value)


def test_visits_are_taken_in_their_order(lobby: Lobby, arrive: Callable[..., tuple[Visit, Channel]]) -> None:
    first, _ = arrive(operator="a")
    second, _ = arrive(operator="b")
    assert lobby.next(0) is first
    lobby.leave(first)
    assert lobby.next(0) is second


def test_a_newer_visit_cuts_off_older_ones(lobby: Lobby, arrive: Callable[..., tuple[Visit, Channel]]) -> None:
    inside, inside_pump = arrive(operator="a")
    assert lobby.next(0) is inside
    _, waiting_pump = arrive(operator="b")
    newest, newest_pump = arrive(operator="a", slot=3)
    assert inside.superseded_s is not None
    assert cut_off(inside_pump)
    assert cut_off(waiting_pump)
    assert not cut_off(newest_pump)
    lobby.leave(inside)
    assert lobby.next(0) is newest


def test_a_late_visit_hears_why_it_is_refused(lobby: Lobby, arrive: Callable[..., tuple[Visit, Channel]]) -> None:
    arrive(slot=5)
    _, late_pump = arrive(slot=4)
    refused = late_pump.receive_message(Ready).refused
    assert refused is not None
    assert "slot 4" in refused


def test_user_code_is_stuck_from_when_its_attempt_was_superseded(
    lobby: Lobby, clock: ManualClock, arrive: Callable[..., tuple[Visit, Channel]]
) -> None:
    inside, _ = arrive()
    lobby.next(0)
    clock.sleep(100)
    arrive(slot=3)
    clock.sleep(7)
    assert lobby.stuck_s(clock.monotonic_s()) == 0  # it restores its base, which the next attempt needs too
    inside.in_user_code = True
    assert lobby.stuck_s(clock.monotonic_s()) == 7
    lobby.leave(inside)
    assert lobby.stuck_s(clock.monotonic_s()) == 0


def test_a_closed_lobby_cuts_off_everybody(lobby: Lobby, arrive: Callable[..., tuple[Visit, Channel]]) -> None:
    _, inside_pump = arrive(operator="a")
    lobby.next(0)
    _, waiting_pump = arrive(operator="b")
    lobby.close()
    _, late_pump = arrive(operator="c")
    assert all(cut_off(pump) for pump in (inside_pump, waiting_pump, late_pump))
    assert lobby.next(0) is None


def test_no_visit_in_time_closes_the_lobby(lobby: Lobby, arrive: Callable[..., tuple[Visit, Channel]]) -> None:
    """From here on a pump must turn to the next process, not to one that is ending."""
    assert lobby.next(0.01) is None
    _, pump = arrive()
    assert cut_off(pump)


WORD = Confirmation(base=Link(2, "t"), winners={"a": "tag"})


def test_word_is_heard_once_when_nobody_visits(lobby: Lobby) -> None:
    lobby.leave_word(Confirmation(base=Link(1, "t"), winners={}))
    lobby.leave_word(WORD)
    assert lobby.next(0) is WORD
    assert lobby.next(0) is None


def test_a_visit_comes_before_word_and_says_as_much(lobby: Lobby, arrive: Callable[..., tuple[Visit, Channel]]) -> None:
    lobby.leave_word(WORD)
    visit, _ = arrive(operator="a")
    assert lobby.next(0) is visit
    lobby.leave(visit)
    assert lobby.next(0) is None


def test_word_wakes_who_waits(lobby: Lobby) -> None:
    threading.Timer(0.1, lobby.leave_word, (WORD,)).start()
    assert lobby.next(60) is WORD


def test_a_closed_lobby_hears_nothing(lobby: Lobby) -> None:
    lobby.leave_word(WORD)
    lobby.close()
    assert lobby.next(60) is None


def test_word_can_be_waited_for_without_taking_a_visit(
    lobby: Lobby, arrive: Callable[..., tuple[Visit, Channel]]
) -> None:
    assert lobby.word(0) is None
    assert not lobby.is_awaited
    lobby.leave_word(WORD)
    assert lobby.is_awaited
    assert lobby.word(60) is WORD
    assert not lobby.is_awaited
    lobby.leave_word(WORD)
    visit, _ = arrive(operator="a")
    assert lobby.word(60) is None
    assert lobby.is_awaited
    assert lobby.next(0) is visit


def test_who_waits_for_word_is_woken_by_it_and_by_the_end(lobby: Lobby) -> None:
    threading.Timer(0.1, lobby.leave_word, (WORD,)).start()
    assert lobby.word(60) is WORD
    threading.Timer(0.1, lobby.close).start()
    assert lobby.word(60) is None
    assert lobby.is_awaited


@pytest.mark.parametrize("is_there", [True, False])
def test_a_run_that_the_chain_does_not_have_is_forgotten(clock: ManualClock, is_there: bool) -> None:
    """So it is after an older copy of the storage was put in the place of the newer one."""
    asked: list[tuple[int, str]] = []

    def has_run(_: TaskRequest, epoch: int, token: str) -> bool:
        asked.append((epoch, token))
        return is_there

    lobby = Lobby(clock, has_run)
    pumps: list[Channel] = []

    def arrive(run: str, **request: Any) -> Visit:
        task = task_request(**request)
        inner, outer = (Channel(s) for s in socket.socketpair())
        pumps.extend((inner, outer))
        visit = Visit(inner, opening(msgspec.structs.replace(task, batch=msgspec.structs.replace(task.batch, run=run))))
        lobby.enter(visit)
        return visit

    newer = arrive("newer", epoch=7, slot=9)
    assert lobby.next(0) is newer
    lobby.leave(newer)
    for request in ({"epoch": 3, "slot": 4}, {"epoch": 3, "slot": 5}):
        older = arrive("older", **request)
        if is_there:
            assert pumps[-1].receive_message(Ready).refused is not None
        else:
            assert lobby.next(0) is older
            lobby.leave(older)
    assert set(asked) == {(7, "newer")}
    for channel in pumps:
        channel.close()


def test_a_late_request_of_the_same_run_asks_no_storage(clock: ManualClock) -> None:
    lobby = Lobby(clock, lambda *_: pytest.fail("the chain was read"))
    pairs = [[Channel(s) for s in socket.socketpair()] for _ in range(2)]
    for slot, (inner, _) in zip((5, 4), pairs, strict=True):
        lobby.enter(Visit(inner, opening(task_request(slot=slot))))
    assert "slot 5" in str(pairs[1][1].receive_message(Ready).refused)
    for inner, outer in pairs:
        inner.close()
        outer.close()
