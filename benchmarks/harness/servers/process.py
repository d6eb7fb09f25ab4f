"""A server in a process of its own, on a free port of the loopback."""

from __future__ import annotations

import socket
import subprocess
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


@contextmanager
def running_server(command: Sequence[str], url: str, **of_process: Any) -> Generator[None]:
    """Start a server, wait until it answers at a URL, whatever it answers, and end it."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **of_process
    )
    try:
        give_up_s = time.monotonic() + 60
        while not _answers(url):
            if process.poll() is not None or time.monotonic() > give_up_s:
                raise RuntimeError(f"{command[0]} does not answer at {url}")
            time.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait(timeout=30)


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True
