"""Segments that go from a state worker to the driver directly."""

from __future__ import annotations

import errno
import shutil
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from varvite.spark_integration.messages.summary import Summary
from varvite.spark_integration.transport import segment_inbox
from varvite.spark_integration.transport.home import WorkerHome, connect, listen
from varvite.spark_integration.transport.segment_inbox import SEGMENT_BYTES_MIN, SegmentInbox, hand_over

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGE = bytes(range(256)) * (SEGMENT_BYTES_MIN // 256)


@pytest.fixture
def inbox(tmp_path: Path) -> Iterator[SegmentInbox]:
    opened = SegmentInbox(str(tmp_path), held_bytes_max=3 * len(LARGE))
    yield opened
    opened.close()


def summary(tag: str, handed_over_bytes: int = len(LARGE), inline: bytes = b"") -> Summary:
    return Summary(
        operator="sums", partition=0, low=0, high=8, tag=tag, slot=7, handed_over_bytes=handed_over_bytes, inline=inline
    )


def test_what_was_handed_over_is_inline_again(inbox: SegmentInbox) -> None:
    assert hand_over(inbox.path, "a", LARGE)
    assert hand_over(inbox.path, "b", LARGE[::-1])
    assert inbox.complete(summary("a")) == summary("a", 0, LARGE)
    assert inbox.complete(summary("b")) == summary("b", 0, LARGE[::-1])


def test_a_summary_that_brings_its_segment_stays_as_it_is(inbox: SegmentInbox) -> None:
    assert not hand_over(inbox.path, "a", LARGE[1:]), "it is small"
    assert inbox.complete(summary("a", 0, LARGE[1:])) == summary("a", 0, LARGE[1:])


def test_many_workers_hand_over_at_once(tmp_path: Path) -> None:
    inbox = SegmentInbox(str(tmp_path))
    done: list[bool] = []
    workers = [
        threading.Thread(target=lambda i=i: done.append(hand_over(inbox.path, f"{i}", LARGE + bytes([i]))))
        for i in range(40)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert done == [True] * 40
    for i in range(40):
        completed = inbox.complete(summary(f"{i}", len(LARGE) + 1))
        assert completed is not None
        assert completed.inline == LARGE + bytes([i])
    inbox.close()


def test_a_segment_that_is_not_here_or_of_another_length_is_missing(inbox: SegmentInbox) -> None:
    assert hand_over(inbox.path, "a", LARGE)
    assert inbox.complete(summary("b")) is None
    assert inbox.complete(summary("a", len(LARGE) - 1)) is None
    inbox.clear()
    assert inbox.complete(summary("a")) is None


def test_what_is_too_much_is_refused_until_the_batch_is_over(inbox: SegmentInbox) -> None:
    assert [hand_over(inbox.path, tag, LARGE) for tag in "abcd"] == [True, True, True, False]
    assert inbox.complete(summary("d")) is None
    inbox.clear()
    assert hand_over(inbox.path, "d", LARGE)


def test_without_an_inbox_nothing_is_handed_over(tmp_path: Path, inbox: SegmentInbox) -> None:
    path = inbox.path
    inbox.close()
    inbox.close()
    assert not Path(path).exists()
    for where in ("", path, str(tmp_path), str(tmp_path / "nowhere")):
        assert not hand_over(where, "a", LARGE)


def test_a_directory_that_may_not_be_entered_is_no_inbox(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert SegmentInbox.open(str(tmp_path / "file")) is None
    assert SegmentInbox.open(str(tmp_path / "nowhere")) is None
    assert not hand_over(str(tmp_path / "file"), "a", LARGE)


def test_a_path_of_any_length_will_do(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 200)
    deep.mkdir()
    inbox = SegmentInbox(str(deep))
    assert hand_over(inbox.path, "a", LARGE)
    inbox.close()


def test_a_worker_that_dies_in_the_midst_leaves_nothing(inbox: SegmentInbox) -> None:
    connection = connect(WorkerHome(Path(inbox.path)), "inbox")
    assert connection is not None
    connection.sendall(b"\x01" + (1 << 20).to_bytes(8, "little") + b"half")
    connection.close()
    junk = connect(WorkerHome(Path(inbox.path)), "inbox")
    assert junk is not None
    junk.sendall(b"\xff" * 9)
    assert junk.recv(1) == b"", "the driver hangs up"
    junk.close()
    assert hand_over(inbox.path, "a", LARGE)


class Exhausted:
    """A listening socket of a process that may open no more files."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server

    def accept(self) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._server.close()

    def shutdown(self, how: int) -> None:
        self._server.shutdown(how)


def test_a_driver_that_can_accept_no_more_refuses_workers_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_inbox, "listen", lambda *place: Exhausted(listen(*place)))
    inbox = SegmentInbox(str(tmp_path))
    while connection := connect(WorkerHome(Path(inbox.path)), "inbox"):  # until the thread has come to it
        connection.close()
    assert not hand_over(inbox.path, "a", LARGE)
    inbox.close()


def test_a_driver_that_does_not_answer_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_inbox, "TIMEOUT_S", 0.05)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(str(tmp_path / "inbox"))
    server.listen()
    assert not hand_over(str(tmp_path), "a", LARGE)
    server.close()
    shutil.rmtree(tmp_path)
