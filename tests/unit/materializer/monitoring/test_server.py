"""`/metrics`, `/healthz`, `/readyz`: the application, and the server on a port of its own."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

from varvite.materializer.monitoring import server as monitoring_server
from varvite.materializer.monitoring.health import ALIVE_WITHIN_MS, Health
from varvite.materializer.monitoring.metrics import MaterializerMetrics
from varvite.materializer.monitoring.server import (
    CONNECTIONS_MAX,
    REQUEST_BYTES_MAX,
    MonitoringServer,
    monitoring_app,
)
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

LOCAL = "127.0.0.1"


class Site:
    """A server, and what it shows."""

    def __init__(self) -> None:
        self.health = Health()
        self.now_ms = 0
        app = monitoring_app(MaterializerMetrics().registry, self.health, lambda: self.now_ms)
        self.server = MonitoringServer(app, LOCAL, 0)

    def get(self, path: str) -> tuple[int, str, str]:
        """Status, content type and body."""
        try:
            with urllib.request.urlopen(f"http://{LOCAL}:{self.server.port}{path}", timeout=30) as answer:
                return answer.status, answer.headers["Content-Type"], answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers["Content-Type"], error.read().decode()


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.server.close()


def test_metrics_are_served_in_prometheus_text_form(site: Site) -> None:
    code, kind, body = site.get("/metrics")
    assert (code, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert "# TYPE varvite_started_materialization_total counter" in body
    assert "process_cpu_seconds_total" in body


def test_health_and_readiness_are_told_apart(site: Site) -> None:
    assert site.get("/healthz")[:2] == (200, "application/json")
    code, _, body = site.get("/readyz")
    assert code == 503
    assert json.loads(body) == {"ok": False, "reasons": ["the storage was not looked at yet"]}
    site.health.turned(0, "")
    assert json.loads(site.get("/readyz")[2]) == {"ok": True, "reasons": []}
    site.now_ms = ALIVE_WITHIN_MS
    assert [site.get(path)[0] for path in ("/healthz", "/readyz")] == [503, 503]


def test_any_other_path_names_those_that_there_are(site: Site) -> None:
    code, _, body = site.get("/")
    assert code == 404
    assert "/metrics" in body


def test_silent_connections_do_not_keep_the_others_out_for_ever(site: Site) -> None:
    silent = [socket.create_connection((LOCAL, site.server.port)) for _ in range(CONNECTIONS_MAX)]
    for one in silent:
        one.close()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            assert site.get("/healthz")[0] == 200
        except (OSError, urllib.error.URLError):  # closed at once, as too many were open
            time.sleep(0.05)
            continue
        return
    pytest.fail("nobody is served any more")


class SlowClients:
    """Clients that never finish their requests: a byte now and then, and a new connection when one is closed."""

    def __init__(self, port: int, count: int) -> None:
        self._port = port
        self._count = count
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.connections = 0

    def _run(self) -> None:
        open_ones: list[socket.socket] = []
        while not self._stopped.wait(0.02):
            while len(open_ones) < self._count:
                client = socket.create_connection((LOCAL, self._port), timeout=30)
                client.sendall(b"GET /healthz HTTP/1.1\r\nX-Slow: ")
                open_ones.append(client)
                self.connections += 1
            for client in list(open_ones):
                try:
                    client.sendall(b"x")
                except OSError:
                    client.close()
                    open_ones.remove(client)
        for client in open_ones:
            client.close()

    def __enter__(self) -> Self:
        self._thread.start()
        deadline = time.monotonic() + 60
        while self.connections < self._count and time.monotonic() < deadline:
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()


def test_200_slow_clients_keep_no_probe_out(site: Site) -> None:
    """16 connections that sent one byte every 4 s took the health checks away for as long as they liked."""
    with SlowClients(site.server.port, 200) as slow:
        assert slow.connections >= 200
        times_s: list[float] = []
        for _ in range(20):
            begin = time.monotonic()
            assert site.get("/healthz")[0] == 200
            times_s.append(time.monotonic() - begin)
    # A probe that is kept out waits until others time out.
    assert sorted(times_s)[10] < monitoring_server.REQUEST_TIMEOUT_S / 2, times_s


def test_a_request_has_a_deadline_as_a_whole(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitoring_server, "REQUEST_TIMEOUT_S", 0.5)
    client = socket.create_connection((LOCAL, site.server.port), timeout=60)
    client.sendall(b"GET /healthz HTTP/1.1\r\nX-Slow: ")
    ended = False
    for _ in range(1_000):  # a byte each 20 ms: no single read takes long
        time.sleep(0.02)
        try:
            client.sendall(b"x")
        except OSError:
            ended = True
            break
    client.close()
    assert ended


def test_a_request_has_a_limit_of_its_size(site: Site) -> None:
    client = socket.create_connection((LOCAL, site.server.port), timeout=60)
    client.sendall(b"GET /healthz HTTP/1.0\r\n")
    is_closed = False
    for _ in range(1_000):
        try:
            client.sendall(b"X-Long: " + b"x" * (REQUEST_BYTES_MAX // 10) + b"\r\n")
        except OSError:  # it was closed by then
            is_closed = True
            break
        time.sleep(0.01)
    client.close()
    assert is_closed
    assert site.get("/healthz")[0] == 200


def test_a_client_that_does_not_read_its_answer_ends(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that are being answered are not closed for others, so they have a deadline, too."""
    monkeypatch.setattr(monitoring_server, "REQUEST_TIMEOUT_S", 0.2)
    clients: list[socket.socket] = []
    for _ in range(CONNECTIONS_MAX):
        client = socket.create_connection((LOCAL, site.server.port), timeout=60)
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        clients.append(client)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with suppress(OSError):
            if site.get("/healthz")[0] == 200:
                break
    else:
        pytest.fail("nobody is served any more")
    for client in clients:
        client.close()


def test_a_port_that_is_taken_is_an_error_that_says_what_to_do(site: Site) -> None:
    with pytest.raises(InvalidRequestError, match="--metrics-port"):
        MonitoringServer(monitoring_app(MaterializerMetrics().registry, Health(), lambda: 0), LOCAL, site.server.port)


@pytest.mark.skipif(not socket.has_ipv6 or not Path("/proc/net/if_inet6").exists(), reason="there is no IPv6 here")
@pytest.mark.parametrize("host", ["::1", "::"])
def test_it_may_be_served_on_an_address_of_ipv6(host: str) -> None:
    app = monitoring_app(MaterializerMetrics().registry, Health(), lambda: 0)
    with MonitoringServer(app, host, 0) as server:
        answer = urllib.request.urlopen(f"http://[::1]:{server.port}/healthz", timeout=30)
        with answer:
            assert answer.status == 200
