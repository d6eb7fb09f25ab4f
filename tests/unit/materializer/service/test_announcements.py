"""Entries that the driver announces through a pipe."""

from __future__ import annotations

import os
import threading
from io import FileIO

from tests.workers.state_worker_setup import eventually
from varvite.materializer.service.announcements import WAITING_BYTES_MAX, Announcements, Announcer

PATIENCE_S = 30.0


def arrived(announcements: Announcements, count: int) -> list[tuple[int, bytes]]:
    """So many entries, once they are there."""
    entries: list[tuple[int, bytes]] = []

    def are_there() -> bool:
        entries.extend(announcements.take())
        return len(entries) >= count

    assert eventually(are_there, PATIENCE_S)
    return entries


def test_entries_arrive_whole_and_in_order() -> None:
    reading, writing = os.pipe()
    announcer, announcements = Announcer(writing), Announcements(FileIO(reading))
    sent = [(seq, os.urandom(size)) for seq, size in enumerate((10, 0, 300_000, 1), 5)]
    for seq, body in sent:
        announcer.announce(seq, body)
    assert arrived(announcements, len(sent)) == sent
    announcer.close()


def test_while_the_driver_announces_no_later_entry_is_worth_a_request() -> None:
    reading, writing = os.pipe()
    announcer, announcements = Announcer(writing), Announcements(FileIO(reading))
    assert announcements.may_exist(100), "nothing was announced yet"
    announcer.announce(5, b"entry")
    assert eventually(lambda: not announcements.may_exist(6), PATIENCE_S)
    assert announcements.may_exist(5), "its body may have been left out"
    announcer.close()
    assert eventually(lambda: announcements.may_exist(6), PATIENCE_S), "the driver has ended, another may write"


def test_without_a_pipe_any_entry_may_exist() -> None:
    assert Announcements().may_exist(1)
    assert Announcements().take() == []


def test_a_materializer_that_does_not_read_holds_up_nobody() -> None:
    reading, writing = os.pipe()
    announcer, body = Announcer(writing), bytes(16 << 20)
    for seq in range(1, 20):
        announcer.announce(seq, body)
    assert announcer._waiting_bytes <= WAITING_BYTES_MAX
    os.close(reading)  # it has ended
    assert eventually(lambda: not announcer._thread.is_alive(), PATIENCE_S)
    announcer.announce(20, body)
    assert announcer._is_closed


def test_announcements_from_several_threads_are_not_mixed() -> None:
    reading, writing = os.pipe()
    announcer, announcements = Announcer(writing), Announcements(FileIO(reading))

    def announce(number: int) -> None:
        for _ in range(20):
            announcer.announce(number, bytes([number]) * 10_000)

    threads = [threading.Thread(target=announce, args=(number,)) for number in range(1, 4)]
    for thread in threads:
        thread.start()
    assert all(body == bytes([seq]) * 10_000 for seq, body in arrived(announcements, 60))
    announcer.close()
