"""A materializer as a child of the driver's process (`spark.varvite.materializer.mode = embedded`).

The child reads its configuration from standard input, so that no storage secret shows in a process list, and after it
the entries that the driver announces. It ends when
its parent does, however that ends: it watches the parent's pidfd (Linux; elsewhere it compares parent ids).
PR_SET_PDEATHSIG would fire already when the *thread* that started the child ends.

Invariant: I9 (killing the child at any moment harms nothing).
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from varvite.materializer.options.materializer_config import VARIABLE_PREFIX, MaterializerConfig
from varvite.materializer.service.announcements import Announcer, write_all
from varvite.storage.errors import InvalidRequestError, InvariantError
from varvite.storage.format.inspection import inspected

if TYPE_CHECKING:
    from io import RawIOBase
    from types import TracebackType
    from typing import Self

DEFAULT_STOP_S: Final = 10.0


class MaterializerProcess:
    """A running materializer; `stop` it, or use it as a context manager."""

    def __init__(self, process: subprocess.Popen[bytes], announcer: Announcer) -> None:
        self._process = process
        self._announcer = announcer

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    def announce(self, seq: int, body: bytes) -> None:
        """Tell it of an entry that is durable, so that it does not ask the storage. Never blocks or raises."""
        self._announcer.announce(seq, body)

    def wait(self, timeout_s: float | None) -> int:
        """Wait for the end; returns the exit code. Raises `subprocess.TimeoutExpired`; None waits for ever."""
        code = self._process.wait(timeout_s)
        self._announcer.close()
        return code

    def stop(self, timeout_s: float = DEFAULT_STOP_S) -> int:
        """End it: SIGTERM, and after `timeout_s` SIGKILL; returns the exit code. Stopping again does nothing."""
        self._announcer.close()
        self._process.terminate()
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def start_materializer_process(
    config: MaterializerConfig, *, log_path: Path | None = None, status_path: Path | None = None
) -> MaterializerProcess:
    """Start `python -m varvite.materializer` as a child that ends with this process.

    Args:
        config: Its configuration.
        log_path: File that its output is appended to; None: this process's standard error.
        status_path: File that it appends its events to, as JSON lines.
    """
    command = [sys.executable, "-m", "varvite.materializer", "--config-from-stdin", "--parent-pid", str(os.getpid())]
    if status_path is not None:
        command += ["--status-file", str(status_path)]
    # The driver's configuration is complete: variables for a sidecar beside it, perhaps of another job, do not count.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(VARIABLE_PREFIX)}
    environment = {**inherited, "PYTHONPATH": _python_path()}
    if log_path is None:
        process = _spawn(command, environment, None)
    else:
        with log_path.open("ab") as log:
            process = _spawn(command, environment, log.fileno())
    if process.stdin is None:
        raise InvariantError("the child was started without a pipe to its standard input")
    with process.stdin as standard_input:
        pipe = os.dup(standard_input.fileno())
    try:
        write_all(pipe, encode_config(config) + b"\n")
    except BrokenPipeError:
        process.wait()  # it died at once; its output says why, and its exit code can be read
    return MaterializerProcess(process, Announcer(pipe))


def _spawn(command: list[str], environment: dict[str, str], output: int | None) -> subprocess.Popen[bytes]:
    # A session of its own: a Ctrl-C at the terminal must reach the driver first, which then stops the child.
    return subprocess.Popen(  # noqa: S603  our own interpreter and our own module
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=sys.stderr.fileno() if output is None else output,
        stderr=output,
        start_new_session=True,
    )


def _python_path() -> str:
    """PYTHONPATH with which the child imports the same varvite as this process."""
    spec = importlib.util.find_spec("varvite")
    locations = spec.submodule_search_locations if spec else None
    if not locations:
        raise InvariantError("the package varvite is not importable by the process that runs it")
    entries = [str(Path(next(iter(locations))).parent), os.environ.get("PYTHONPATH", "")]
    return os.pathsep.join(entry for entry in entries if entry)


def encode_config(config: MaterializerConfig) -> bytes:
    """The configuration as JSON."""
    return msgspec.json.encode(config, enc_hook=str)


def read_config(pipe: RawIOBase) -> MaterializerConfig:
    """The configuration from the first line of a pipe; what follows is left in it. Raises `InvalidRequestError`."""
    return decode_config(pipe.readline())


def decode_config(data: bytes) -> MaterializerConfig:
    """The configuration from JSON. Raises `InvalidRequestError`."""
    try:
        return msgspec.json.decode(data, type=inspected(MaterializerConfig), dec_hook=lambda kind, value: kind(value))
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise InvalidRequestError(f"the configuration on standard input does not parse: {error}") from error
