"""Frames and messages between pump, parent and state worker on one machine.

A frame is a kind (1 byte), a length (8 bytes, little endian) and the payload. The schema and batch frames of one
direction, put together, are an Arrow IPC stream; framing lets an error take the place of the rest. A received batch
lies in the frame's own buffer: no copy after the kernel's.

Losing the peer is always a `PeerLostError`, whatever the system call said; nothing else is one.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
import pyarrow as pa

from varvite.spark_integration.messages.protocol import TaskRequest, decode_message, encode_message
from varvite.spark_integration.processes import end_if_forked
from varvite.storage.errors import InvalidRequestError, InvariantError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import UnionType

FRAME_BYTES_MAX: Final = 1 << 33
"""No payload is larger; a longer one is not a frame."""
_HEADER: Final = struct.Struct("<BQ")
_T = TypeVar("_T")


class FrameKind(IntEnum):
    """Kind of a frame's payload."""

    MESSAGE = 1
    SCHEMA = 2
    BATCH = 3
    END = 4
    """The sender's Arrow stream is complete."""
    FAILURE = 5
    """A `WorkerFailure`: the request failed, nothing follows."""
    OUTPUT = 6
    """Lines of text that user code in the state worker has written."""


_KINDS: Final = frozenset(int(kind) for kind in FrameKind)


class StartWorker(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Pump → parent: see to it that this worker runs."""

    worker: str
    partition: int
    factory: str
    """`module:qualified.name` of a `WorkerFactory`."""
    preload: tuple[str, ...] = ()
    """Modules that the worker will need and the parent should import before it forks."""


class ListWorkers(msgspec.Struct, frozen=True, tag=True):
    """Anybody → parent: which workers run?"""


class WorkerProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A running state worker."""

    worker: str
    pid: int
    forked: bool = False
    """This very request has forked it."""


class WorkerEnd(msgspec.Struct, frozen=True, kw_only=True):
    """A state worker that has ended."""

    pid: int
    exit_code: int
    """The negative number of the signal, if one has ended it."""


class ParentReport(msgspec.Struct, frozen=True, kw_only=True):
    """Parent's answer."""

    pid: int
    threads: int
    """Threads of the parent; more than one is a hazard to what it forks."""
    workers: tuple[WorkerProcess, ...] = ()
    ended: tuple[WorkerEnd, ...] = ()
    """The last ones."""
    error: str | None = None


class PumpEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """The environment of Spark's Python worker, in which user code seems to run."""

    sys_path: tuple[str, ...]
    files_directory: str | None
    """Root of SparkFiles."""
    task_context: bytes = b""
    """Spark's `TaskContext` of the pump, pickled; empty outside of Spark."""


class Opening(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Pump → state worker: the first message."""

    task: TaskRequest
    environment: PumpEnvironment


class WorkerFailure(msgspec.Struct, frozen=True, kw_only=True):
    """An error of the state worker itself (not of user code, whose errors are summaries)."""

    exception_type: str
    message: str
    traceback: str
    pickled: bytes | None = None
    """The exception, if it is a `VarviteError`."""
    is_repeated: bool = False
    """The same request would fail in the same way: trying it again does not help."""


class Channel:
    """Frames over one connected socket; one thread receives, and any may send whole frames."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._sending = threading.Lock()
        self._sent_schema: pa.Schema | None = None
        self._received_schema: pa.Schema | None = None

    def set_timeout(self, seconds: float | None) -> None:
        """Let a frame's parts come within that time, else the peer counts as lost; None waits."""
        self._socket.settimeout(seconds)

    def send_message(self, message: Any) -> None:
        """Send a message. Raises PeerLostError."""
        self._send(FrameKind.MESSAGE, encode_message(message))

    def send_failure(self, failure: WorkerFailure) -> None:
        """End the connection with an error. Raises PeerLostError."""
        self._send(FrameKind.FAILURE, encode_message(failure))

    def send_batch(self, batch: pa.RecordBatch) -> None:
        """Send rows, before the first ones their schema. Raises PeerLostError."""
        if self._sent_schema is None:
            self._send_schema(batch.schema)
        elif not self._sent_schema.equals(batch.schema):
            raise InvariantError(f"the schema changed within one stream: {self._sent_schema} became {batch.schema}")
        self._send(FrameKind.BATCH, batch.serialize())

    def send_output(self, lines: str) -> None:
        """Send what user code has written. Raises PeerLostError."""
        self._send(FrameKind.OUTPUT, lines.encode())

    def send_end(self) -> None:
        """The Arrow stream of this direction is complete. Raises PeerLostError."""
        self._send(FrameKind.END, b"")

    def receive_message(self, message_type: type[_T] | UnionType) -> _T:
        """The next frame, which must be a message of that type.

        Raises:
            WorkerFailedError: the peer reports a failure instead.
            PeerLostError: the peer is gone.
        """
        kind, payload = self._receive()
        if kind is not FrameKind.MESSAGE:
            raise InvariantError(f"expected a message, got a frame of kind {kind.name}")
        return decode_message(payload, message_type)

    def receive_batches(self, on_output: Callable[[str], object] | None = None) -> Iterator[pa.RecordBatch]:
        """Batches up to the end of the peer's stream; `on_output` gets lines of user code that come between them.

        Raises:
            WorkerFailedError: the peer reports a failure.
            PeerLostError: the peer is gone before the end of its stream.
        """
        while True:
            kind, payload = self._receive()
            if kind is FrameKind.BATCH and self._received_schema is not None:
                yield pa.ipc.read_record_batch(payload, self._received_schema)
            elif kind is FrameKind.SCHEMA:
                self._received_schema = pa.ipc.read_schema(payload)
            elif kind is FrameKind.OUTPUT and on_output is not None:
                on_output(payload.to_pybytes().decode())
            elif kind is FrameKind.END:
                return
            else:
                raise InvariantError(f"a frame of kind {kind.name} does not belong into an Arrow stream")

    def shutdown(self, how: int = socket.SHUT_RDWR) -> None:
        """Cut the connection (or one direction): threads that block in it, on either side, wake up."""
        with suppress(OSError):  # the peer may have been faster
            self._socket.shutdown(how)

    def close(self) -> None:
        """Cut the connection and free it."""
        self.shutdown()
        self._socket.close()

    def _send_schema(self, schema: pa.Schema) -> None:
        for field in schema:
            if pa.types.is_dictionary(field.type):
                raise InvalidRequestError(f"column {field.name} is dictionary-encoded; cast it to its value type first")
        self._sent_schema = schema
        self._send(FrameKind.SCHEMA, schema.serialize())

    def _send(self, kind: FrameKind, payload: bytes | pa.Buffer) -> None:
        end_if_forked()
        view = memoryview(payload)
        try:
            with self._sending:
                # One call for header and payload: most frames of a small batch fit the socket's buffer.
                sent = self._socket.sendmsg([_HEADER.pack(kind, len(view)), view])
                if sent < _HEADER.size:
                    raise TimeoutError("the frame's header was cut")
                if sent < _HEADER.size + len(view):
                    self._socket.sendall(view[sent - _HEADER.size :])
        except OSError as error:
            raise PeerLostError(f"the peer cannot be written to: {error}") from error

    def _receive(self) -> tuple[FrameKind, pa.Buffer]:
        end_if_forked()
        header = bytearray(_HEADER.size)
        self._fill(memoryview(header))
        number, length = _HEADER.unpack(header)
        if number not in _KINDS or length > FRAME_BYTES_MAX:
            raise InvariantError(f"not a frame of varvite: kind {number}, {length} bytes")
        payload = pa.allocate_buffer(length)
        self._fill(memoryview(payload))
        if number == FrameKind.FAILURE:
            raise WorkerFailedError(decode_message(payload, WorkerFailure))
        return FrameKind(number), payload

    def _fill(self, target: memoryview) -> None:
        while target:
            try:
                received = self._socket.recv_into(target, 0, socket.MSG_WAITALL)
            except OSError as error:
                raise PeerLostError(f"the peer cannot be read from: {error}") from error
            if received == 0:
                raise PeerLostError("the peer closed the connection")
            target = target[received:]


class PeerLostError(Exception):
    """The other side of a channel is gone, or cut this side off; for control flow, never shown to a user."""


class WorkerFailedError(Exception):
    """The peer sent a `WorkerFailure`; for the pump only, which raises the real error."""

    def __init__(self, failure: WorkerFailure) -> None:
        super().__init__(f"{failure.exception_type}: {failure.message}")
        self.failure = failure
