"""Connections of a process that are prepared; bytes through them stay as they are."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from varvite.spark_integration.elements import arrow_task
from varvite.spark_integration.elements.arrow_task import connection_over_tcp, promptly

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[socket.socket, socket.socket]]:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as own,
        server.accept()[0] as peer,
    ):
        monkeypatch.setattr(arrow_task, "DESCRIPTORS_MAX", own.fileno() + 1)
        yield own, peer


def sends_at_once(connection: socket.socket) -> bool:
    return bool(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))


def test_what_comes_stays_as_it_is_and_answers_are_sent_at_once(
    connection: tuple[socket.socket, socket.socket],
) -> None:
    own, peer = connection
    assert not sends_at_once(own)

    def pieces() -> Iterator[bytes]:
        for piece in (b"first", b"second"):
            peer.sendall(piece)
            yield own.recv(100)

    assert list(promptly(pieces())) == [b"first", b"second"]
    assert sends_at_once(own)
    own.close()
    assert peer.recv(1) == b""  # no copy of the descriptor is left


def test_a_connection_that_has_ended_is_left_to_its_reader(connection: tuple[socket.socket, socket.socket]) -> None:
    own, _ = connection
    pieces = promptly([1, 2])
    assert next(pieces) == 1
    own.shutdown(socket.SHUT_RDWR)
    assert list(pieces) == [2]


def test_systems_that_acknowledge_in_their_own_time(
    connection: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_task, "_QUICKACK", None)
    assert list(promptly([1])) == [1]
    assert sends_at_once(connection[0])


def test_other_files_are_none(tmp_path: Path) -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other, (tmp_path / "file").open("w") as file:
        assert connection_over_tcp(one.fileno()) is None
        assert connection_over_tcp(file.fileno()) is None
        assert one.send(b"it is still open") > 0
    assert connection_over_tcp(1 << 20) is None
