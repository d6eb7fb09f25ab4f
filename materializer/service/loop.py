"""The loop of a materializer: find the jobs, give each a step per poll, until asked to stop.

Ranges of all jobs are materialized by one pool of threads, while the loop goes on looking.

Invariants: I9 (nothing here must outlive the process), I10 (one job's trouble costs the others a look's time and a
place in the pool at most).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from varvite.materializer.monitoring.events import JobFailed, Step, Waiting
from varvite.materializer.monitoring.server import MonitoringServer, monitoring_app
from varvite.materializer.options.materializer_config import WORKING_DIRECTORY
from varvite.materializer.resources.bandwidth import TokenBucket
from varvite.materializer.resources.stop_signal import Stopped
from varvite.materializer.resources.workspace import Workspace, working_directory
from varvite.materializer.service.announcements import Announcements
from varvite.materializer.service.context import MaterializerContext
from varvite.materializer.service.job import JobMaterializer, object_name_of
from varvite.storage.clock import SystemClock, SystemTokens
from varvite.storage.errors import InvalidRequestError, VarviteError
from varvite.storage.job.listing import job_names
from varvite.storage.object_stores.backoff import Backoff
from varvite.storage.object_stores.open import open_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varvite.materializer.monitoring.events import Reporter
    from varvite.materializer.options.materializer_config import MaterializerConfig
    from varvite.materializer.resources.stop_signal import StopSignal
    from varvite.storage.object_stores.contract import ObjectStore

DISCOVERY_BACKOFF: Final = Backoff(attempts=1, initial_s=1.0, maximum_s=300.0)
"""Pauses after failed listings of the jobs, where they are longer than the interval of discovery."""
ROUNDS_MAX: Final = 3
"""Rounds of `run_once` over the ranges: a lost snapshot number, or a chain that moved on, is retried."""


class MaterializerService:
    """Materializes the jobs of one storage; for one thread."""

    def __init__(self, root: ObjectStore, context: MaterializerContext) -> None:
        """`root` holds the jobs as `<root>/<job>/`."""
        self._root = root
        self._context = context
        self._pool = ThreadPoolExecutor(context.config.parallel, "varvite-materialize")
        self._jobs: dict[str, JobMaterializer] = {}
        self._trouble = ""
        self._discovered_ms: int | None = None
        self._discovery_pause_ms = 0
        self._discovery_failures = 0
        self._is_waiting = False

    def run(self) -> None:
        """Go on until asked to stop."""
        poll_s = self._context.config.poll_ms / 1_000
        self._context.health.moved(self._context.now_ms())
        while not self._context.stop.is_set:
            self.step(wait_for_ranges=False)
            self._context.stop.wait(poll_s)

    def run_once(self) -> bool:
        """Materialize everything that has a log, and collect; True if nothing failed and there is a job."""
        ok = self.step(on_demand=True)
        for _ in range(ROUNDS_MAX - 1):
            if ok or self._context.stop.is_set:
                break
            ok = self.step(on_demand=True)
        return ok and not self._context.stop.is_set and any(job.exists for job in self._jobs.values())

    def step(self, *, on_demand: bool = False, wait_for_ranges: bool = True) -> bool:
        """Poll every job; True if nothing failed. A stop request ends it early.

        The arguments are those of `JobMaterializer.step`.
        """
        ok = True
        try:
            ok = self._discover(on_demand=on_demand)
            for job in self._jobs.values():
                self._context.stop.check()
                ok &= job.step(on_demand=on_demand, wait_for_ranges=wait_for_ranges)
                self._context.health.moved(self._context.now_ms())
        except Stopped:
            return False
        self._context.health.turned(self._context.now_ms(), self._trouble)
        return ok

    def close(self) -> None:
        """Leave the sharing of all jobs, and wait for the ranges that are being materialized."""
        for job in self._jobs.values():
            job.leave()
        self._pool.shutdown(wait=True, cancel_futures=True)
        for job in self._jobs.values():
            job.close()

    def _discover(self, *, on_demand: bool) -> bool:
        """Look for new jobs; False if that failed."""
        only_job, now_ms = self._context.config.job, self._context.now_ms()
        if only_job is not None:
            self._follow([only_job])
            return True
        pause_until_ms = None if self._discovered_ms is None else self._discovered_ms + self._discovery_pause_ms
        if not on_demand and pause_until_ms is not None and now_ms < pause_until_ms:
            return True
        self._discovered_ms = now_ms
        self._discovery_pause_ms = self._context.config.discovery_ms
        try:
            names = job_names(self._root)
        except VarviteError as error:
            self._trouble = f"the jobs could not be listed: {error}"
            self._discovery_failures += 1
            pause_ms = round(DISCOVERY_BACKOFF.pause_s(self._discovery_failures) * 1_000)
            self._discovery_pause_ms = max(self._discovery_pause_ms, pause_ms)
            self._report_failure(error)
            return False
        self._trouble, self._discovery_failures = "", 0
        for name in [name for name, job in self._jobs.items() if name not in names and job.is_over]:
            self._jobs.pop(name).end()
        self._follow(names)
        if not self._jobs:
            self._discovery_pause_ms = self._context.config.poll_ms  # a sidecar may start just before its job
        if not self._jobs and not self._is_waiting:
            text = f"there is no job in {self._root.url}" + ("" if on_demand else " yet; waiting for one")
            self._context.reporter.report(Waiting(job="", time_ms=self._context.clock.now_ms(), message=text))
        self._is_waiting = not self._jobs
        return True

    def _follow(self, names: Sequence[str]) -> None:
        for name in names:
            if name not in self._jobs:
                store = self._context.config.job_store(self._root, name)
                self._jobs[name] = JobMaterializer(name, store, self._context, self._root, self._pool)

    def _report_failure(self, error: VarviteError) -> None:
        event = JobFailed(
            job="",
            time_ms=self._context.clock.now_ms(),
            step=Step.DISCOVER.value,
            error=str(error),
            error_type=type(error).__name__,
            object_name=object_name_of(error),
            failures=self._discovery_failures,
            retry_ms=self._discovery_pause_ms,
        )
        self._context.reporter.report(event)
        self._context.metrics.report(event)


def run_materializer(
    config: MaterializerConfig,
    reporter: Reporter,
    stop: StopSignal,
    *,
    once: bool = False,
    announcements: Announcements | None = None,
) -> bool:
    """Run a materializer in this process until it is asked to stop, or once.

    Args:
        config: Its configuration.
        reporter: Gets its events.
        stop: The stop flag.
        once: Materialize everything there is, and end.
        announcements: Those of the driver that runs it; None: there is no such driver.

    Returns:
        False if something failed with `once`.

    Raises `InvalidRequestError` if the storage or the working directory cannot be used as configured.
    """
    root = open_store(config.storage_url, config.storage_options)
    if root.url.startswith("memory:"):
        raise InvalidRequestError(
            f"{config.storage_url} is private to a process; a materializer cannot see a job in it"
        )
    directory = working_directory(config.working_directory, root.url, WORKING_DIRECTORY.key)
    with ExitStack() as stack:
        workspace = stack.enter_context(Workspace(directory))
        clock, rate = SystemClock(), config.bandwidth_bytes_per_s
        bandwidth = None if rate is None else TokenBucket(rate, clock, stop)
        context = MaterializerContext(
            config=config,
            clock=clock,
            tokens=SystemTokens(),
            workspace=workspace,
            bandwidth=bandwidth,
            reporter=reporter,
            stop=stop,
            announcements=announcements or Announcements(),
        )
        _serve_metrics(context, stack)
        service = MaterializerService(root, context)
        try:
            if once:
                return service.run_once()
            service.run()
            return True
        finally:
            service.close()


def _serve_metrics(context: MaterializerContext, stack: ExitStack) -> None:
    port = context.config.metrics_port
    if port is None:
        return
    app = monitoring_app(context.metrics.registry, context.health, context.now_ms)
    server = stack.enter_context(MonitoringServer(app, context.config.metrics_host or "", port))
    event = Waiting(
        job="",
        time_ms=context.clock.now_ms(),
        message=f"/metrics, /healthz and /readyz are served on port {server.port}",
    )
    context.reporter.report(event)
