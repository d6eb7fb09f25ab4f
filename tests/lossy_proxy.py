"""An HTTP proxy in front of an S3 server that loses, delays, refuses or changes requests as a test says.

It forwards each request as it came, `Host` included, so signatures stay valid.
"""

from __future__ import annotations

import http.client
import threading
from collections import deque
from contextlib import contextmanager
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator


class Fault(Enum):
    """What happens to one request."""

    LOSE_REPLY = "the server does it, the client's connection is closed without an answer"
    LOSE_REQUEST = "the connection is closed before the server sees it"
    HANG = "the server does it, the client gets no answer for as long as the test runs"
    BUSY = "503 without asking the server"


class LossyProxy:
    """The proxy's state, shared by its threads."""

    def __init__(self, upstream: str) -> None:
        """`upstream` is `http://host:port`."""
        self.upstream = upstream.removeprefix("http://")
        self.faults: deque[Fault] = deque()
        """For the next PUT requests, in order."""
        self.read_faults: deque[Fault] = deque()
        """For the next GET requests, in order."""
        self.ignore_conditions = False
        """Whether If-None-Match is dropped, as some S3 clones do."""
        self.seen: list[str] = []
        """The methods of all requests."""
        self.released = threading.Event()
        self.endpoint_url = ""

    def next_fault(self, method: str) -> Fault | None:
        self.seen.append(method)
        faults = {"PUT": self.faults, "GET": self.read_faults}.get(method)
        return faults.popleft() if faults else None


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, proxy: LossyProxy) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.proxy = proxy


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def proxy(self) -> LossyProxy:
        assert isinstance(self.server, _Server)
        return self.server.proxy

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its base names it so
        pass

    def forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = self.proxy.next_fault(self.command)
        if fault is Fault.LOSE_REQUEST:
            self.close_connection = True
            return
        if fault is Fault.BUSY:
            self.answer(503, [], b"<Error><Code>SlowDown</Code><Message>busy</Message></Error>")
            return
        status, headers, answer = self.ask(body)
        if fault is Fault.HANG:
            self.proxy.released.wait(60)
        if fault in (Fault.LOSE_REPLY, Fault.HANG):
            self.close_connection = True
            return
        self.answer(status, headers, answer)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = forward  # noqa: N815 - http.server's names

    def ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(self.proxy.upstream, timeout=30)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            dropped = {"expect", "if-none-match"} if self.proxy.ignore_conditions else {"expect"}
            for key, value in self.headers.items():
                if key.lower() not in dropped:
                    connection.putheader(key, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        for key, value in headers:
            if key.lower() not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(key, value)
        length = next((value for key, value in headers if key.lower() == "content-length"), str(len(body)))
        self.send_header("Content-Length", length if self.command == "HEAD" else str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def lossy_proxy(upstream: str) -> Generator[LossyProxy]:
    """A running proxy."""
    proxy = LossyProxy(upstream)
    server = _Server(proxy)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    proxy.endpoint_url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield proxy
    finally:
        proxy.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
