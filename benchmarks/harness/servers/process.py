"""A server in a process of its own, on a free port of the loopback."""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence


def free_port() -> int:
    """A TCP port of the loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class ServerProcess:
    """A server in a process of its own, which may be killed and started again."""

    def __init__(self, command: Sequence[str], url: str, **of_process: Any) -> None:
        """Nothing is started. It runs once it answers at `url`, whatever it answers."""
        self._command, self._url, self._of_process = command, url, of_process
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers. Raises `RuntimeError` if it does not."""
        with tempfile.TemporaryFile() as printed:
            quiet: Any = {"stdin": subprocess.DEVNULL, "stdout": printed, "stderr": subprocess.STDOUT}
            self._process = process = subprocess.Popen(self._command, **quiet, **self._of_process)
            give_up_s = time.monotonic() + 60
            while not _answers(self._url):
                if process.poll() is not None or time.monotonic() > give_up_s:
                    printed.seek(0)
                    end = printed.read()[-2000:].decode(errors="replace")
                    raise RuntimeError(f"{self._command[0]} does not answer at {self._url}. It printed last:\n{end}")
                time.sleep(0.05)

    def kill(self) -> None:
        """End it by SIGKILL. May be called twice."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=30)


@contextmanager
def running_server(command: Sequence[str], url: str, **of_process: Any) -> Generator[ServerProcess]:
    """Start a server, and end it."""
    server = ServerProcess(command, url, **of_process)
    try:
        server.start()
        yield server
    finally:
        server.kill()


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True
