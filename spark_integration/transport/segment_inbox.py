"""Hands segments from state workers to a driver on the same machine over, through a Unix socket.

A segment that travels inside the chain's entry comes to the driver with its attempt's summary, as a row of the cached
answer: through Spark's Python worker, the JVM's block store, a task result and back into Python. Megabytes cost tens
of milliseconds that way. A worker on the driver's own machine hands them over before it sends its summary,
which then has only the segment's length. Workers elsewhere do not find the socket, and the segment is in the summary.

Invariants: I2 (what is handed over counts only if a summary that reached the driver names its tag), I10 (what the
inbox holds is limited; what is refused travels with the summary). Nothing here is durable: the entry still holds the
segment, and a missing one makes the batch be executed again.
"""

from __future__ import annotations

import logging
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import msgspec

from varvite.changelog.commit.gathered_segments import GATHERED_BYTES_MAX
from varvite.spark_integration.transport.home import WorkerHome, connect, listen
from varvite.spark_integration.transport.wire import Channel, PeerLostError
from varvite.storage.errors import InvalidRequestError, InvariantError
from varvite.storage.private_directories import TemporaryDirectory

if TYPE_CHECKING:
    from varvite.spark_integration.messages.summary import Summary

_log: Final = logging.getLogger(__name__)
HELD_BYTES_MAX: Final = 2 * GATHERED_BYTES_MAX
"""Limit of an inbox: the segments of one batch, twice because Spark may execute copies of tasks."""
SEGMENT_BYTES_MIN: Final = 64 << 10
"""A smaller segment travels with its summary in no more time."""
TIMEOUT_S: Final = 10.0
"""Timeout of one side that waits for the other."""
_SOCKET: Final = "inbox"


class HandedSegment(msgspec.Struct, frozen=True, kw_only=True):
    """Worker → driver: the last segment of an attempt."""

    tag: str
    segment: bytes


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """The driver's answer: whether it has the segment now."""

    accepted: bool


class SegmentInbox:
    """The driver's end; threads of its own receive. What it got stays until `clear`."""

    def __init__(self, within: str | None = None, held_bytes_max: int = HELD_BYTES_MAX) -> None:
        """Receive from now on.

        Args:
            within: Directory to make the inbox's own in; None: the system's for temporary files.
            held_bytes_max: More is refused.

        Raises:
            OSError, InvalidRequestError: No socket can be made there.
        """
        self._directory = TemporaryDirectory("inbox", within)
        self._held_bytes_max = held_bytes_max
        self._lock = threading.Lock()
        self._segments: dict[str, bytes] = {}
        self._held_bytes = 0
        self._server = listen(WorkerHome(Path(self.path)), _SOCKET)
        threading.Thread(target=self._accept, name="varvite-inbox", daemon=True).start()

    @classmethod
    def open(cls, within: str | None) -> Self | None:
        """An inbox, or None if none can be made: all segments come with summaries then."""
        try:
            return cls(within)
        except (OSError, InvalidRequestError) as error:
            _log.warning("segments will not be handed over directly: %s", error)
            return None

    @property
    def path(self) -> str:
        """The directory that workers look for; only this user may enter it."""
        return str(self._directory.path)

    def complete(self, summary: Summary) -> Summary | None:
        """The summary with its segment inline; None if that was handed over but is not here."""
        if not summary.handed_over_bytes:
            return summary
        segment = self._segments.get(summary.tag, b"")
        if len(segment) != summary.handed_over_bytes:
            return None
        return msgspec.structs.replace(summary, inline=segment, handed_over_bytes=0)

    def clear(self) -> None:
        """Forget what was handed over: the batch is committed, or given up."""
        with self._lock:
            self._segments.clear()
            self._held_bytes = 0

    def close(self) -> None:
        """Receive no more. May be called twice."""
        with suppress(OSError):  # it is closed already
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._directory.cleanup()
        self.clear()

    def _accept(self) -> None:
        with self._server:  # closed at the end of accepting, or workers would wait for ever for their connection
            while True:
                try:
                    connection, _ = self._server.accept()
                except ConnectionAbortedError:
                    continue
                except OSError:  # closed, or no descriptors are left
                    return
                receive = threading.Thread(target=self._receive, args=(connection,), name="varvite-inbox-worker")
                receive.daemon = True
                receive.start()

    def _receive(self, connection: socket.socket) -> None:
        channel = Channel(connection)
        channel.set_timeout(TIMEOUT_S)
        try:
            handed = channel.receive_message(HandedSegment)
            channel.send_message(Taken(accepted=self._keep(handed)))
        except (PeerLostError, InvariantError, msgspec.MsgspecError) as error:
            _log.debug("a segment was not handed over: %s", error)
        finally:
            channel.close()

    def _keep(self, handed: HandedSegment) -> bool:
        with self._lock:
            if self._held_bytes + len(handed.segment) > self._held_bytes_max:
                return False
            self._held_bytes += len(handed.segment)
            self._segments[handed.tag] = handed.segment
            return True


def is_near(inbox: str) -> bool:
    """Is the driver with this inbox, "" for none, on this machine?"""
    return bool(inbox) and (Path(inbox) / _SOCKET).exists()


def hand_over(inbox: str, tag: str, segment: bytes) -> bool:
    """Give an attempt's segment to the driver, if it is on this machine; answers if the driver has it now.

    Args:
        inbox: `SegmentInbox.path`, "" if there is none.
        tag: The attempt's.
        segment: Segments below `SEGMENT_BYTES_MIN` are not handed over.
    """
    if not inbox or len(segment) < SEGMENT_BYTES_MIN:
        return False
    try:
        connection = connect(WorkerHome(Path(inbox)), _SOCKET)
    except OSError as error:
        _log.debug("the driver's inbox cannot be reached: %s", error)
        return False
    if connection is None:
        return False
    channel = Channel(connection)
    channel.set_timeout(TIMEOUT_S)
    try:
        channel.send_message(HandedSegment(tag=tag, segment=segment))
        return channel.receive_message(Taken).accepted
    except PeerLostError as error:
        _log.warning("the driver's inbox did not take a segment, which travels with its summary now: %s", error)
        return False
    finally:
        channel.close()
