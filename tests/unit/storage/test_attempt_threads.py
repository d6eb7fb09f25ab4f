"""Threads for calls that may hang: bounded, replaced, and never waited for."""

from __future__ import annotations

import threading
import time
from concurrent.futures import wait
from typing import TYPE_CHECKING

import pytest

from varvite.storage import attempt_threads
from varvite.storage.attempt_threads import AttemptThreads
from varvite.storage.errors import DidNotHappenError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NAME = "varvite-test-attempt"


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Holds calls until it is set; set at the end in any case, so that no thread is left."""
    event = threading.Event()
    yield event
    event.set()


def alive() -> int:
    return sum(thread.name == NAME for thread in threading.enumerate())


def until(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it never came true")


def hang(gate: threading.Event) -> Callable[[], None]:
    return lambda: gate.wait(60) and None


def test_calls_run_on_no_more_threads_than_allowed() -> None:
    threads = AttemptThreads(3, NAME)
    futures = [threads.submit(lambda n=n: n * n) for n in range(50)]
    assert [future.result(60) for future in futures] == [n * n for n in range(50)]
    assert alive() <= 3
    threads.close()
    until(lambda: alive() == 0)


def test_a_join_waits_for_calls_that_run_and_for_those_that_wait(gate: threading.Event) -> None:
    threads = AttemptThreads(1, NAME)
    assert threads.join(0)
    done: list[int] = []
    threads.submit(hang(gate))
    threads.submit(lambda: done.append(1))
    assert not threads.join(0.05)
    gate.set()
    assert threads.join(60)
    assert done == [1]
    threads.close()


def test_an_error_belongs_to_who_waits() -> None:
    threads = AttemptThreads(1, NAME)
    with pytest.raises(ZeroDivisionError):
        threads.submit(lambda: 1 // 0).result(60)
    assert threads.submit(lambda: 1).result(60) == 1
    threads.close()


def test_a_call_that_is_given_up_is_replaced_and_ends_when_it_returns(gate: threading.Event) -> None:
    threads = AttemptThreads(1, NAME)
    hung = threads.submit(hang(gate))
    until(hung.running)
    later = threads.submit(lambda: 1)
    threads.give_up(hung)
    assert later.result(60) == 1
    assert threads.lost == 1
    gate.set()
    wait([hung], 20)
    until(lambda: alive() <= 1)
    assert threads.lost == 0
    assert threads.submit(lambda: 2).result(60) == 2
    threads.close()


def test_who_waits_for_a_call_hears_that_it_was_dropped(gate: threading.Event) -> None:
    threads = AttemptThreads(1, NAME)
    hung = threads.submit(hang(gate))
    until(hung.running)
    waiting = threads.submit(lambda: 1)
    threads.close()
    refused = threads.submit(lambda: 2)
    assert wait([waiting, refused], 20).not_done == set()
    assert waiting.cancelled()
    assert refused.cancelled()


def test_a_call_that_has_not_begun_is_forgotten(gate: threading.Event) -> None:
    threads = AttemptThreads(1, NAME)
    hung = threads.submit(hang(gate))
    until(hung.running)
    waiting = threads.submit(lambda: 1)
    threads.give_up(waiting)
    assert waiting.cancelled()
    assert threads.lost == 0
    threads.close()


def test_no_more_than_so_many_hang(gate: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt_threads, "LOST_MAX", 4)
    threads = AttemptThreads(2, NAME)
    for _ in range(20):
        future = threads.submit(hang(gate))
        if not future.running():
            wait([future], 0.02)
        threads.give_up(future)
    assert alive() <= 6
    gate.set()
    assert threads.submit(lambda: 1).result(60) == 1
    until(lambda: alive() <= 2)
    threads.close()


def test_closing_drops_what_has_not_begun(gate: threading.Event) -> None:
    threads = AttemptThreads(1, NAME)
    hung = threads.submit(hang(gate))
    until(hung.running)
    waiting = threads.submit(lambda: 1)
    threads.close()
    assert waiting.cancelled()
    gate.set()
    until(lambda: alive() == 0)


def test_what_is_asked_after_closing_is_cancelled() -> None:
    threads = AttemptThreads(1, NAME)
    threads.close()
    assert threads.submit(lambda: 1).cancelled()


def no_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the machine answers at its limit of processes."""

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)


def test_a_machine_without_threads_left_costs_no_thread_for_ever(
    monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    """Each that could not be started was counted as one that runs: after so many, calls waited for ever."""
    threads = AttemptThreads(2, NAME)
    with monkeypatch.context() as limited:
        no_more_threads(limited)
        for _ in range(3):
            with pytest.raises(DidNotHappenError, match="no thread can be started"):
                threads.submit(lambda: 1).result(60)
    assert threads.submit(lambda: 1).result(60) == 1
    hanging = threads.submit(hang(gate))
    with monkeypatch.context() as limited:
        no_more_threads(limited)
        waiting = threads.submit(lambda: 2)
        assert not waiting.done(), "the thread that works takes it up"
    gate.set()
    assert waiting.result(60) == 2
    hanging.result(60)
    threads.close()
