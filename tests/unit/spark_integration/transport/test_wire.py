"""Frames between pump and state worker."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from varvite.spark_integration.messages.protocol import FunctionPackage, Ready
from varvite.spark_integration.transport.wire import (
    Channel,
    ListWorkers,
    PeerLostError,
    StartWorker,
    WorkerFailedError,
    WorkerFailure,
)
from varvite.storage.errors import InvalidRequestError, InvariantError

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    yield one, other
    one.close()
    other.close()


@pytest.fixture
def channels(sockets: tuple[socket.socket, socket.socket]) -> tuple[Channel, Channel]:
    return Channel(sockets[0]), Channel(sockets[1])


def test_messages_of_every_size_arrive(channels: tuple[Channel, Channel]) -> None:
    one, other = channels
    for size in (0, 1, 200_000, 5_000_000):
        sender = threading.Thread(target=one.send_message, args=(FunctionPackage(function=b"x" * size),))
        sender.start()
        assert other.receive_message(FunctionPackage).function == b"x" * size
        sender.join()


def test_a_union_of_messages_tells_them_apart(channels: tuple[Channel, Channel]) -> None:
    one, other = channels
    start = StartWorker(worker="w", partition=1, factory="m:f")
    for message in (start, ListWorkers()):
        one.send_message(message)
        assert other.receive_message(StartWorker | ListWorkers) == message


def test_batches_arrive_as_they_were(channels: tuple[Channel, Channel]) -> None:
    one, other = channels
    table = pa.table(
        {"a": range(50_000), "s": [f"é{i}" for i in range(50_000)], "l": [[i, None] for i in range(50_000)]}
    )
    batches = [b.slice(5, 1000) for b in table.to_batches(max_chunksize=10_000)] + [table.to_batches()[0].slice(0, 0)]

    def send() -> None:
        for batch in batches:
            one.send_batch(batch)
        one.send_end()

    sender = threading.Thread(target=send)
    sender.start()
    received = list(other.receive_batches())
    sender.join()
    assert [b.to_pydict() for b in received] == [b.to_pydict() for b in batches]


def test_an_empty_stream_has_no_schema(channels: tuple[Channel, Channel]) -> None:
    one, other = channels
    one.send_end()
    assert list(other.receive_batches()) == []


def test_both_directions_stream_at_once(channels: tuple[Channel, Channel]) -> None:
    one, other = channels
    batch = pa.record_batch({"a": list(range(100_000))})

    def echo() -> None:
        for received in other.receive_batches():
            other.send_batch(received)
        other.send_end()

    def feed() -> None:
        for _ in range(20):
            one.send_batch(batch)
        one.send_end()

    threads = [threading.Thread(target=echo), threading.Thread(target=feed)]
    for thread in threads:
        thread.start()
    assert sum(b.num_rows for b in one.receive_batches()) == 2_000_000
    for thread in threads:
        thread.join()


def test_a_failure_takes_the_place_of_whatever_was_expected(channels: tuple[Channel, Channel]) -> None:
    one, other = channels
    failure = WorkerFailure(exception_type="m.E", message="no", traceback="…")
    one.send_failure(failure)
    one.send_batch(pa.record_batch({"a": [1]}))
    one.send_failure(failure)
    with pytest.raises(WorkerFailedError) as caught:
        other.receive_message(Ready)
    assert caught.value.failure == failure
    with pytest.raises(WorkerFailedError):
        list(other.receive_batches())


def test_a_stream_without_its_end_is_a_lost_peer(channels: tuple[Channel, Channel]) -> None:
    one, other = channels
    one.send_batch(pa.record_batch({"a": [1]}))
    one.close()
    batches = other.receive_batches()
    assert next(batches).num_rows == 1
    with pytest.raises(PeerLostError):
        next(batches)


def test_silence_beyond_the_timeout_is_a_lost_peer(channels: tuple[Channel, Channel]) -> None:
    _, other = channels
    other.set_timeout(0.01)
    with pytest.raises(PeerLostError):
        other.receive_message(Ready)


@pytest.mark.parametrize("header", [b"\x09" + b"\0" * 8, b"\x01" + b"\xff" * 8])
def test_what_is_no_frame_is_not_read(sockets: tuple[socket.socket, socket.socket], header: bytes) -> None:
    sockets[0].sendall(header)
    with pytest.raises(InvariantError, match="not a frame"):
        Channel(sockets[1]).receive_message(Ready)


def test_a_schema_does_not_change_within_a_stream(channels: tuple[Channel, Channel]) -> None:
    one, _ = channels
    one.send_batch(pa.record_batch({"a": [1]}))
    with pytest.raises(InvariantError, match="schema changed"):
        one.send_batch(pa.record_batch({"a": ["x"]}))


def test_a_dictionary_column_is_refused(channels: tuple[Channel, Channel]) -> None:
    """Its values travel in messages of their own, which a stream of single batches does not have."""
    with pytest.raises(InvalidRequestError, match="column a"):
        channels[0].send_batch(pa.record_batch({"a": pa.array(["x"]).dictionary_encode()}))
