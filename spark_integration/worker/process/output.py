"""The output of user code in a state worker: each line goes to the workers' file and to the executor's log.

The way to that log is the pump, whose output Spark has connected with it. Lines that come while no pump is connected
are in the file alone.

Invariants: I10 (a line that does not end is cut).
"""

from __future__ import annotations

import io
import logging
import os
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TextIO

from varvite.spark_integration.transport.wire import PeerLostError

if TYPE_CHECKING:
    from varvite.spark_integration.transport.wire import Channel

LINE_BYTES_MAX: Final = 16 << 10
"""A longer line is cut into several."""


class WorkerOutput:
    """Sends lines of a state worker's process on; all methods may be called from any thread."""

    def __init__(self) -> None:
        """Take over standard output and error, and the warnings of varvite itself."""
        self._channel: Channel | None = None
        self._label = ""
        self.lock = threading.RLock()
        self._streams = LineBytes(sys.stdout, self), LineBytes(sys.stderr, self)
        sys.stdout, sys.stderr = map(_text_stream, self._streams)
        logging.getLogger("varvite").addHandler(_Warnings(self))
        os.register_at_fork(after_in_child=self._in_child)

    def begin(self, channel: Channel, label: str) -> None:
        """Lets lines go to that pump, too, and begin with the label."""
        with self.lock:
            self._channel, self._label = channel, label

    def end(self) -> None:
        """The pump gets no more lines."""
        with self.lock:
            for stream in self._streams:
                stream.end_line()
            self._channel, self._label = None, ""

    def labelled(self, lines: str) -> str:
        """The lines, each with the label."""
        prefix = f"[{self._label}] " if self._label else ""
        return "".join(f"{prefix}{line}\n" for line in lines.split("\n"))

    def forward(self, labelled: str) -> None:
        """Send lines to the pump, if one is connected."""
        with self.lock:
            if self._channel is not None:
                try:
                    self._channel.send_output(labelled)
                except PeerLostError:  # the next answer fails for the same reason
                    self._channel = None

    def _in_child(self) -> None:
        """In a process that user code forks: its lines are in the file alone."""
        self.lock = threading.RLock()
        self._channel = None
        for stream in self._streams:
            stream.forget_line()


class LineBytes(io.BufferedIOBase):
    """Standard output or error of a process, below its text stream; takes UTF-8 and passes whole lines on."""

    def __init__(self, file: TextIO, output: WorkerOutput) -> None:
        super().__init__()
        self.name = file.name
        self._file = file
        self._output = output
        self._begun = b""
        """The line that has not ended yet."""

    def write(self, data: Any, /) -> int:
        added = bytes(data)
        with self._output.lock:
            lines, end, self._begun = (self._begun + added).rpartition(b"\n")
            if end:
                self._pass_on(lines)
            if len(self._begun) > LINE_BYTES_MAX:
                self.end_line()
        return len(added)

    def end_line(self) -> None:
        """End the line that has been begun, if one has."""
        if self._begun:
            line, self._begun = self._begun, b""
            self._pass_on(line)

    def forget_line(self) -> None:
        """Drop the line that has been begun."""
        self._begun = b""

    def _pass_on(self, lines: bytes) -> None:
        labelled = self._output.labelled(lines.decode(errors="backslashreplace"))
        with suppress(OSError):  # a full disk is no error of the function
            self._file.write(labelled)
            self._file.flush()
        self._output.forward(labelled)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._file.fileno()


class _Warnings(logging.Handler):
    """Sends what varvite itself warns of to the pump; in the file it is already."""

    def __init__(self, output: WorkerOutput) -> None:
        super().__init__(logging.WARNING)
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        self._output.forward(self._output.labelled(self.format(record)))


def _text_stream(lines: LineBytes) -> io.TextIOWrapper:
    """The stream for text, which keeps nothing back."""
    return io.TextIOWrapper(lines, encoding="utf-8", errors="backslashreplace", write_through=True)
