"""`GET /metrics`, `/healthz` and `/readyz`: a small HTTP server beside a materializer's loop or a driver's queries.

It only reads values in memory, so a slow client or a flood of requests costs nothing but CPU. A request has a deadline
as a whole and a limit of its size, and the number of connections is limited (I10). One more closes the oldest that has
not sent its request yet, so clients that send a byte now and then keep no probe out. There is no authentication, as is
usual for metrics: bind it to an address that only monitoring reaches.
"""

from __future__ import annotations

import io
import logging
import socket
import threading
from contextlib import suppress
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final, Protocol
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import msgspec
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from varvite.storage.clock import SystemClock
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import Self
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from prometheus_client import CollectorRegistry

    from varvite.materializer.monitoring.health import Verdict
    from varvite.storage.clock import Clock

_log: Final = logging.getLogger(__name__)
REQUEST_TIMEOUT_S: Final = 10.0
"""Time for a whole request to arrive, and as much again for each of the two parts of an answer to leave."""
REQUEST_BYTES_MAX: Final = 16 << 10
"""Limit of a request with its headers."""
CONNECTIONS_MAX: Final = 64
"""Connections served at the same time."""
JSON: Final = ("Content-Type", "application/json")


class HealthSource(Protocol):
    """Answers health checks; called by any thread, must not block."""

    def alive(self, now_ms: int) -> Verdict:
        """Is the process alive? If not, it should be restarted."""
        ...

    def ready(self, now_ms: int) -> Verdict:
        """Is all its work being done?"""
        ...


def monitoring_app(registry: CollectorRegistry, health: HealthSource, now_ms: Callable[[], int]) -> WSGIApplication:
    """The WSGI application.

    Args:
        registry: Shown by `/metrics`.
        health: Shown by `/healthz` and `/readyz`: 200 or 503, with a JSON object `{"ok": ..., "reasons": [...]}`.
        now_ms: The clock of `health`.
    """

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        match environ.get("PATH_INFO"):
            case "/metrics":
                start_response("200 OK", [("Content-Type", CONTENT_TYPE_PLAIN_0_0_4)])
                return [generate_latest(registry)]
            case "/healthz":
                return _answer(health.alive(now_ms()), start_response)
            case "/readyz":
                return _answer(health.ready(now_ms()), start_response)
            case _:
                start_response("404 Not Found", [("Content-Type", "text/plain; charset=utf-8")])
                return [b"there are /metrics, /healthz and /readyz\n"]

    return app


def _answer(verdict: Verdict, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK" if verdict.ok else "503 Service Unavailable", [JSON])
    return [msgspec.json.encode({"ok": verdict.ok, "reasons": verdict.reasons}) + b"\n"]


class _RequestReader(io.RawIOBase):
    """The bytes of one request, until its deadline and its limit. Raises OSError at either."""

    def __init__(self, connection: socket.socket, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._until_s = clock.monotonic_s() + REQUEST_TIMEOUT_S
        self._bytes_left = REQUEST_BYTES_MAX

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        left_s = self._until_s - self._clock.monotonic_s()
        if left_s <= 0 or self._bytes_left <= 0:
            raise TimeoutError("the request is too slow or too long")
        self._connection.settimeout(left_s)
        received = self._connection.recv_into(memoryview(buffer)[: self._bytes_left])
        self._bytes_left -= received
        return received


class _Handler(WSGIRequestHandler):
    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_RequestReader(self.connection, SystemClock()))

    def parse_request(self) -> bool:
        is_whole = super().parse_request()
        if is_whole and isinstance(self.server, _Server):
            self.connection.settimeout(REQUEST_TIMEOUT_S)
            self.server.keep(self.connection)
        return is_whole

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class's name
        """Log nothing: probes come every few seconds."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 128  # more than 5 clients may connect at once

    def __init__(self, *arguments: Any) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[socket.socket, None] = {}
        """Connections whose request has not arrived as a whole, the oldest first."""
        self._answered: set[socket.socket] = set()
        super().__init__(*arguments)

    def server_bind(self) -> None:
        # HTTPServer would ask the name service for the host's name here, which can take many seconds.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._admit(request):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def _admit(self, connection: socket.socket) -> bool:
        """Make room for a connection; False if every other one is being answered."""
        with self._lock:
            if len(self._waiting) + len(self._answered) >= CONNECTIONS_MAX:
                if not self._waiting:
                    return False
                oldest = next(iter(self._waiting))
                del self._waiting[oldest]
                with suppress(OSError):  # its thread reads the end then
                    oldest.shutdown(socket.SHUT_RDWR)
            self._waiting[connection] = None
            return True

    def keep(self, connection: socket.socket) -> None:
        """Note that the request has arrived as a whole: the connection is answered, and not closed for another."""
        with self._lock:
            self._waiting.pop(connection, None)
            self._answered.add(connection)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._waiting.pop(request, None)
                self._answered.discard(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        _log.debug("a request of %s failed", client_address, exc_info=True)


class _Server6(_Server):
    address_family = socket.AF_INET6


class MonitoringServer:
    """The application on a port; a context manager."""

    def __init__(
        self, app: WSGIApplication, host: str, port: int, *, settings: str = "--metrics-port or --metrics-host"
    ) -> None:
        """Listen at once; port 0 takes a free one.

        Raises `InvalidRequestError` if that is not possible; its text names `settings`, which the user has to change.
        """
        try:
            kind = _Server6 if ":" in host else _Server
            self._server = make_server(host, port, app, server_class=kind, handler_class=_Handler)
        except OSError as error:
            raise InvalidRequestError(
                f"metrics cannot be served on {host}:{port}: {error}; give another {settings}"
            ) from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="varvite-metrics", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._server.server_port

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
