"""Entries of the chain that the driver announces to its own materializer, through the pipe of its standard input.

A materializer beside the driver would otherwise ask the storage for each entry, and whether there is a next one. An
announcement is sent once its entry is durable. Any may be missing: the entry is then fetched like those of other runs.

Invariants: I9 (both ends may die at any moment), I10 (what waits is bounded; what is too much is not announced).
"""

from __future__ import annotations

import os
import struct
import threading
from collections import deque
from typing import TYPE_CHECKING, Final

from varvite.materializer.resources.recent_entries import Entries
from varvite.storage.format import layout

if TYPE_CHECKING:
    from io import RawIOBase

WAITING_BYTES_MAX: Final = 64 << 20
"""Limit of the entries that wait to be sent. One that is over it is left out."""
_HEAD: Final = struct.Struct(">QI")
"""Seq, and length of the entry that follows."""


class Announcer:
    """The driver's end: writes announcements in a thread, so that a commit never waits for the materializer."""

    def __init__(self, pipe: int) -> None:
        """`pipe`: the file descriptor of the child's standard input; closed when a write fails, and at the end."""
        self._pipe = pipe
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._waiting_bytes = 0
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="varvite-announce", daemon=True)
        self._thread.start()

    def announce(self, seq: int, body: bytes) -> None:
        """Send an entry that is durable. Never blocks or raises; leaves it out if too much waits."""
        with self._changed:
            if not self._is_closed and self._waiting_bytes + len(body) <= WAITING_BYTES_MAX:
                self._waiting.append((seq, body))
                self._waiting_bytes += len(body)
                self._changed.notify()

    def close(self) -> None:
        """End the thread, once the child has taken what is being written or has ended."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _run(self) -> None:
        try:
            while (waiting := self._next()) is not None:
                seq, body = waiting
                write_all(self._pipe, _HEAD.pack(seq, len(body)) + body)
        except OSError:  # the child has ended
            self.close()
        finally:
            os.close(self._pipe)

    def _next(self) -> tuple[int, bytes] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            if self._is_closed:
                return None
            seq, body = self._waiting.popleft()
            self._waiting_bytes -= len(body)
            return seq, body


class Announcements:
    """The materializer's end; without a pipe nobody announces anything, and any entry may exist."""

    def __init__(self, pipe: RawIOBase | None = None) -> None:
        self._lock = threading.Lock()
        self._entries = Entries()
        self._newest_seq: int | None = None
        self._is_open = pipe is not None
        if pipe is not None:
            threading.Thread(target=self._run, args=(pipe,), name="varvite-announcements", daemon=True).start()

    def may_exist(self, seq: int) -> bool:
        """Is an entry with this seq worth a request? Not while the driver announces, and has not announced as much.

        Entries of other runs, which fence this driver off, are found by a LIST now and then.
        """
        with self._lock:
            return not self._is_open or self._newest_seq is None or seq <= self._newest_seq

    def begin(self) -> Entries:
        """New entries, to which all are added that are announced from now on."""
        with self._lock:
            self._entries = entries = Entries()
        return entries

    def _run(self, pipe: RawIOBase) -> None:
        with pipe:
            while (head := _read(pipe, _HEAD.size)) is not None:
                seq, length = _HEAD.unpack(head)
                body = _read(pipe, length)
                if body is None:
                    break
                with self._lock:
                    self._entries.add(layout.chain(seq), body)
                    self._newest_seq = seq
        with self._lock:
            self._is_open = False


def _read(pipe: RawIOBase, length: int) -> bytes | None:
    """Read exactly so many bytes; None at the end of the pipe."""
    data = bytearray()
    while len(data) < length:
        part = pipe.read(length - len(data))
        if not part:
            return None
        data += part
    return bytes(data)


def write_all(pipe: int, data: bytes) -> None:
    """Write all of it to a file descriptor. Raises `OSError`."""
    left = memoryview(data)
    while left:
        left = left[os.write(pipe, left) :]
