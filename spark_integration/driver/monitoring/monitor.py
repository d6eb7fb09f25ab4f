"""`/metrics`, `/healthz` and `/readyz` of a driver: one server for all queries of the process that name the same port.

A query opens a monitor when it has taken its chain over, and closes it when it ends; the last one closes the server.
Healthy: the process answers; it does not once its last query has ended. Ready: every query works; a batch
that has been executed for longer than `BATCH_MAX_S` or a materializer of its own that keeps dying needs people.

Nothing here can fail a batch; a port that cannot be had is an error before the query starts.
"""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from varvite.materializer.monitoring.health import REASONS_MAX, Verdict
from varvite.materializer.monitoring.server import MonitoringServer, monitoring_app
from varvite.spark_integration.driver.monitoring.metrics import JobMetrics
from varvite.storage.clock import SystemClock
from varvite.storage.errors import InvalidRequestError, VarviteError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varvite.spark_integration.driver.monitoring.gauges import JobCheckpoint
    from varvite.storage.clock import Clock

_log: Final = logging.getLogger(__name__)
BATCH_MAX_S: Final = 600.0
"""Flink's default of `execution.checkpointing.timeout`: what takes longer is at least worth a look."""
SETTINGS: Final = "metrics.reporter.prom.port (a range like 9250-9260 takes the first that is free) or .host"


class JobHealth:
    """Health of the queries of a process; may be used from any thread."""

    def __init__(self, metrics: JobMetrics) -> None:
        self._metrics = metrics
        self._lock = threading.Lock()
        self._troubles: dict[str, str] = {}

    def trouble(self, job: str, text: str) -> None:
        """Set the reason why a job is not ready; an empty text: it is."""
        with self._lock:
            if text:
                self._troubles[job] = text
            else:
                self._troubles.pop(job, None)

    def alive(self, now_ms: int) -> Verdict:
        """Is the process alive? It is if it answers."""
        del now_ms
        return Verdict(ok=True)

    def ready(self, now_ms: int) -> Verdict:
        """Does every query work?"""
        del now_ms
        running_s = self._metrics.gauges.running_s()
        reasons = [
            f"{job}: the batch has been executed for {spent_s:.0f} s"
            for job, spent_s in running_s.items()
            if spent_s > BATCH_MAX_S
        ]
        with self._lock:
            reasons += [f"{job}: {text}" for job, text in self._troubles.items()]
        if not running_s:
            reasons.append("no query runs")
        return Verdict(not reasons, tuple(reasons[:REASONS_MAX]))


@dataclass
class Site:
    """A server and how many use it."""

    metrics: JobMetrics
    health: JobHealth
    server: MonitoringServer
    users: int = 0


@dataclass
class MonitoringSites:
    """The servers of a process, by the address that the user has configured."""

    clock: Clock
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _sites: dict[tuple[str, range], Site] = field(default_factory=dict[tuple[str, range], Site])

    def open(self, host: str, ports: range) -> Site:
        """The server that listens there, started if there is none. Raises `InvalidRequestError` if no port is free."""
        with self._lock:
            site = self._sites.get((host, ports))
            if site is None:
                metrics = JobMetrics(self.clock)
                health = JobHealth(metrics)
                site = self._sites[host, ports] = Site(metrics, health, self._listen(metrics, health, host, ports))
            site.users += 1
            return site

    def close(self, host: str, ports: range) -> None:
        """One user less; the last one ends the server."""
        with self._lock:
            site = self._sites[host, ports]
            site.users -= 1
            if site.users:
                return
            del self._sites[host, ports]
        site.server.close()

    def _listen(self, metrics: JobMetrics, health: JobHealth, host: str, ports: range) -> MonitoringServer:
        app = monitoring_app(metrics.registry, health, self._now_ms)
        for port in ports[:-1]:
            try:
                return MonitoringServer(app, host, port, settings=SETTINGS)
            except InvalidRequestError as error:
                _log.debug("%s", error)
        return MonitoringServer(app, host, ports[-1], settings=SETTINGS)

    def _now_ms(self) -> int:
        return round(self.clock.monotonic_s() * 1_000)


SITES: Final = MonitoringSites(SystemClock())
"""Ports belong to a process, so this is the one value of it."""


class JobMonitor:
    """Tells of one run of one job; does nothing if no port was configured. May be used from any thread.

    Args:
        job: Its name.
        host: Address to serve on; empty: all.
        ports: The first that is free; None serves nothing.
        sites: The servers of this process.

    Raises:
        InvalidRequestError: No port is free.
    """

    def __init__(self, job: str, host: str, ports: range | None, sites: MonitoringSites = SITES) -> None:
        self._job = job
        self._epoch = 0
        self._host, self._ports, self._sites = host, ports, sites
        self._site = None if ports is None else sites.open(host, ports)
        if self._site is not None:
            _log.info("job %s: /metrics, /healthz and /readyz are served on port %d", job, self._site.server.port)

    @property
    def port(self) -> int | None:
        """The port that the metrics are served on; None if they are not."""
        return None if self._site is None else self._site.server.port

    def started(self, epoch: int) -> None:
        """The run has taken the job's chain over."""
        self._epoch = epoch
        if self._site is not None:
            self._site.metrics.started(self._job, epoch)

    @contextmanager
    def batch(self) -> Iterator[None]:
        """A batch is executed inside."""
        site = self._site
        if site is None:
            yield
            return
        site.metrics.gauges.batch_began(self._job)
        try:
            yield
        except Exception as error:
            cause = error if isinstance(error, VarviteError) or error.__cause__ is None else error.__cause__
            site.metrics.failed(self._job, type(cause).__name__)
            raise
        finally:
            site.metrics.gauges.batch_ended(self._job)

    def acknowledged(self, checkpoint: JobCheckpoint) -> None:
        """A checkpoint was acknowledged."""
        if self._site is None:
            return
        try:
            self._site.metrics.acknowledged(self._job, checkpoint)
        except Exception:  # noqa: BLE001  the checkpoint is durable and its output written: figures must not undo that
            _log.exception("job %s: a checkpoint could not be counted", self._job)

    def lost_input(self, offsets: int) -> None:
        """Rows of the input are gone before they were read."""
        if self._site is not None:
            self._site.metrics.lost_input(self._job, offsets)

    def materializer_started(self) -> None:
        """The job's own materializer was started."""
        if self._site is not None:
            self._site.metrics.materializer_started(self._job)

    def trouble(self, text: str) -> None:
        """Set the reason why the job is not ready; an empty text: it is."""
        if self._site is not None:
            self._site.health.trouble(self._job, text)

    def close(self) -> None:
        """The run has ended. Closing again does nothing."""
        site, self._site = self._site, None
        if site is not None and self._ports is not None:
            site.health.trouble(self._job, "")
            site.metrics.ended(self._job, self._epoch)
            self._sites.close(self._host, self._ports)
