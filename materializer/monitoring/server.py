"""`GET /metrics`, `/healthz` and `/readyz`: a small HTTP server beside a materializer's loop or a driver's queries.

It only reads values in memory, so a slow client or a flood of requests costs nothing but CPU; the number of connections
is limited, and so is the time of each (I10). There is no authentication, as is usual for metrics: bind it to an address
that only monitoring reaches.
"""

from __future__ import annotations

import logging
import socket
import threading
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final, Protocol
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import msgspec
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import Self
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from prometheus_client import CollectorRegistry

    from varvite.materializer.monitoring.health import Verdict

_log: Final = logging.getLogger(__name__)
REQUEST_TIMEOUT_S: Final = 10.0
CONNECTIONS_MAX: Final = 16
"""Connections served at the same time; more are closed at once."""
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


class _Handler(WSGIRequestHandler):
    timeout = REQUEST_TIMEOUT_S

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class's name
        """Log nothing: probes come every few seconds."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        self._slots = threading.BoundedSemaphore(CONNECTIONS_MAX)
        super().__init__(*arguments)

    def server_bind(self) -> None:
        # HTTPServer would ask the name service for the host's name here, which can take many seconds.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

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
