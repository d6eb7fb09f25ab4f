"""Outages of a server: it ends, and starts again in another thread a while later."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from moto.server import ThreadedMotoServer

from tests.stores.s3_servers import S3Server

OUTAGES_S = [2, pytest.param(60, marks=[pytest.mark.rare, pytest.mark.timeout(400)])]
"""Lengths of outages."""


@contextmanager
def outage(seconds: float, end: Callable[[], object], start: Callable[[], object]) -> Iterator[None]:
    """Within it the server is away, and comes back.

    Args:
        seconds: How long it is away.
        end: Ends it.
        start: Starts it again.
    """
    end()
    starting = threading.Timer(seconds, start)
    starting.start()
    try:
        yield
    finally:
        starting.join()


class MotoServer:
    """A server of S3 with the bucket `away`. Its objects are kept in this process, so they outlive it."""

    def __init__(self) -> None:
        self._port = 0
        self.start()
        host, self._port = self._server.get_host_and_port()
        self.s3 = S3Server("moto", f"http://{host}:{self._port}", "testkey", "testsecret")
        self.s3.make_bucket("away")

    def end(self) -> None:
        self._server.stop()

    def start(self) -> None:
        """Start it, again at the same port."""
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=self._port, verbose=False)
        self._server.start()


@contextmanager
def moto_server() -> Iterator[MotoServer]:
    """A server that runs at first and is ended at last."""
    server = MotoServer()
    try:
        yield server
    finally:
        server.end()
