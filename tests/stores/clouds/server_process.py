"""A server of a cloud's interface, in a process of its own."""

from __future__ import annotations

import subprocess
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence


@contextmanager
def running_server(command: Sequence[str], url: str, **of_process: Any) -> Generator[None]:
    """Start a server, wait until it answers at a URL, whatever it answers, and end it."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **of_process
    )
    try:
        give_up_s = time.monotonic() + 60
        while not _answers(url):
            assert process.poll() is None
            assert time.monotonic() < give_up_s
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
