"""Requests of a state worker: which one waits, which one is cut off."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tests.stores.manual_clock import ManualClock
from tests.workers.state_worker_setup import opening, task_request
from varvite.spark_integration.messages.protocol import Ready
from varvite.spark_integration.transport.wire import Channel, PeerLostError
from varvite.spark_integration.worker.process.request_queue import PendingRequest, RequestQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from varvite.spark_integration.messages.protocol import TaskRequest


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def queue(clock: ManualClock) -> RequestQueue:
    return RequestQueue(clock)


@pytest.fixture
def arrive(queue: RequestQueue) -> Iterator[Callable[..., tuple[PendingRequest, Channel]]]:
    channels: list[Channel] = []

    def put(**fields: Any) -> tuple[PendingRequest, Channel]:
        inner, outer = (Channel(s) for s in socket.socketpair())
        channels.extend((inner, outer))
        outer.set_timeout(0.05)
        request = PendingRequest(inner, opening(task_request(**fields)))
        queue.put(request)
        return request, outer

    yield put
    for channel in channels:
        channel.close()


def cut_off(pump: Channel) -> bool:
    """True if the pump's connection has ended, as opposed to being silent."""
    with pytest.raises(PeerLostError) as caught:
        pump.receive_message(Ready)
    return "closed" in str(caught.value)


def test_requests_are_taken_in_their_order(
    queue: RequestQueue, arrive: Callable[..., tuple[PendingRequest, Channel]]
) -> None:
    first, _ = arrive(operator="a")
    second, _ = arrive(operator="b")
    assert queue.take(0) is first
    queue.finish(first)
    assert queue.take(0) is second


def test_a_newer_request_cuts_off_older_ones(
    queue: RequestQueue, arrive: Callable[..., tuple[PendingRequest, Channel]]
) -> None:
    inside, inside_pump = arrive(operator="a")
    assert queue.take(0) is inside
    _, waiting_pump = arrive(operator="b")
    newest, newest_pump = arrive(operator="a", slot=3)
    assert inside.superseded_s is not None
    assert cut_off(inside_pump)
    assert cut_off(waiting_pump)
    assert not cut_off(newest_pump)
    queue.finish(inside)
    assert queue.take(0) is newest


def test_a_late_request_hears_why_it_is_refused(
    queue: RequestQueue, arrive: Callable[..., tuple[PendingRequest, Channel]]
) -> None:
    arrive(slot=5)
    _, late_pump = arrive(slot=4)
    refused = late_pump.receive_message(Ready).refused
    assert refused is not None
    assert "slot 4" in refused


def test_user_code_is_stuck_from_when_its_attempt_was_superseded(
    queue: RequestQueue, clock: ManualClock, arrive: Callable[..., tuple[PendingRequest, Channel]]
) -> None:
    inside, _ = arrive()
    queue.take(0)
    clock.sleep(100)
    arrive(slot=3)
    clock.sleep(7)
    assert queue.stuck_s(clock.monotonic_s()) == 0  # it restores its base, which the next attempt needs too
    inside.in_user_code = True
    assert queue.stuck_s(clock.monotonic_s()) == 7
    queue.finish(inside)
    assert queue.stuck_s(clock.monotonic_s()) == 0


def test_a_closed_queue_cuts_off_everybody(
    queue: RequestQueue, arrive: Callable[..., tuple[PendingRequest, Channel]]
) -> None:
    _, inside_pump = arrive(operator="a")
    queue.take(0)
    _, waiting_pump = arrive(operator="b")
    queue.close()
    _, late_pump = arrive(operator="c")
    assert all(cut_off(pump) for pump in (inside_pump, waiting_pump, late_pump))
    assert queue.take(0) is None


def test_no_request_in_time_closes_the_queue(
    queue: RequestQueue, arrive: Callable[..., tuple[PendingRequest, Channel]]
) -> None:
    """Makes every pump from here on turn to the next process, not to one that is ending."""
    assert queue.take(0.01) is None
    _, pump = arrive()
    assert cut_off(pump)


def test_a_request_can_be_waited_for_without_taking_it(
    queue: RequestQueue, arrive: Callable[..., tuple[PendingRequest, Channel]]
) -> None:
    assert not queue.wait(0)
    threading.Timer(0.1, arrive).start()
    assert queue.wait(60)
    assert queue.wait(0)
    assert queue.take(0) is not None
    assert not queue.wait(0)
    threading.Timer(0.1, queue.close).start()
    assert queue.wait(60)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_run_that_the_chain_does_not_have_is_forgotten(clock: ManualClock, is_there: bool) -> None:
    """So it is after an older copy of the storage was put in the place of the newer one."""
    asked: list[tuple[int, str]] = []

    def has_run(_: TaskRequest, epoch: int, token: str) -> bool:
        asked.append((epoch, token))
        return is_there

    queue = RequestQueue(clock, has_run)
    pumps: list[Channel] = []

    def arrive(run: str, **request: Any) -> PendingRequest:
        task = task_request(**request)
        inner, outer = (Channel(s) for s in socket.socketpair())
        pumps.extend((inner, outer))
        request = PendingRequest(
            inner, opening(msgspec.structs.replace(task, batch=msgspec.structs.replace(task.batch, run=run)))
        )
        queue.put(request)
        return request

    newer = arrive("newer", epoch=7, slot=9)
    assert queue.take(0) is newer
    queue.finish(newer)
    for request in ({"epoch": 3, "slot": 4}, {"epoch": 3, "slot": 5}):
        older = arrive("older", **request)
        if is_there:
            assert pumps[-1].receive_message(Ready).refused is not None
        else:
            assert queue.take(0) is older
            queue.finish(older)
    assert set(asked) == {(7, "newer")}
    for channel in pumps:
        channel.close()


def test_a_late_request_of_the_same_run_asks_no_storage(clock: ManualClock) -> None:
    queue = RequestQueue(clock, lambda *_: pytest.fail("the chain was read"))
    pairs = [[Channel(s) for s in socket.socketpair()] for _ in range(2)]
    for slot, (inner, _) in zip((5, 4), pairs, strict=True):
        queue.put(PendingRequest(inner, opening(task_request(slot=slot))))
    assert "slot 5" in str(pairs[1][1].receive_message(Ready).refused)
    for inner, outer in pairs:
        inner.close()
        outer.close()
