"""Entries that the driver announces through a pipe."""

from __future__ import annotations

import os
import threading
from io import FileIO
from typing import TYPE_CHECKING

from tests.workers.state_worker_setup import eventually
from varvite.materializer.service.announcements import WAITING_BYTES_MAX, Announcements, Announcer
from varvite.storage.format import layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varvite.materializer.resources.recent_entries import Entries

PATIENCE_S = 30.0


def arrived(entries: Entries, seqs: Sequence[int]) -> list[tuple[int, bytes]]:
    """These entries, once they are there."""

    def found() -> list[tuple[int, bytes | None]]:
        return [(seq, entries.find(layout.chain(seq))) for seq in seqs]

    assert eventually(lambda: all(body is not None for _, body in found()), PATIENCE_S)
    return [(seq, body) for seq, body in found() if body is not None]


def test_entries_arrive_whole() -> None:
    reading, writing = os.pipe()
    announcer, announcements = Announcer(writing), Announcements(FileIO(reading))
    entries = announcements.begin()
    sent = [(seq, os.urandom(size)) for seq, size in enumerate((10, 0, 300_000, 1), 5)]
    for seq, body in sent:
        announcer.announce(seq, body)
    assert arrived(entries, [seq for seq, _ in sent]) == sent
    announcer.close()


def test_entries_of_an_earlier_job_are_not_among_those_of_the_next() -> None:
    reading, writing = os.pipe()
    announcer, announcements = Announcer(writing), Announcements(FileIO(reading))
    before = announcements.begin()
    announcer.announce(5, b"before")
    assert arrived(before, [5]) == [(5, b"before")]
    after = announcements.begin()
    announcer.announce(6, b"after")
    assert arrived(after, [6]) == [(6, b"after")]
    assert after.find(layout.chain(5)) is None
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
    assert Announcements().begin().find(layout.chain(1)) is None


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
    announcer, entries = Announcer(writing), Announcements(FileIO(reading)).begin()

    def announce(number: int) -> None:
        for seq in range(20 * number, 20 * (number + 1)):
            announcer.announce(seq, bytes([seq]) * 10_000)

    threads = [threading.Thread(target=announce, args=(number,)) for number in range(1, 4)]
    for thread in threads:
        thread.start()
    assert all(body == bytes([seq]) * 10_000 for seq, body in arrived(entries, range(20, 80)))
    announcer.close()
