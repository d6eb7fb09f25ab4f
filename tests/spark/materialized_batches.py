"""Materializes a job's storage after every other batch, in the driver's process; if it has no materializer itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.materializer_world import Events
from tests.storage_switches import MATERIALIZE_EVERY
from varvite.materializer.monitoring.events import Failed, JobFailed
from varvite.materializer.resources.stop_signal import StopSignal
from varvite.materializer.service.loop import run_materializer
from varvite.spark_integration.driver import services
from varvite.spark_integration.driver.coordinator import Coordinator
from varvite.spark_integration.driver.snapshot_watch import SnapshotWatch

WATCH_S = 0.05
"""Batches of tests are short: a driver must look more often than it usually does to adopt anything."""


def materialize_every_other_batch(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    """Makes every job with a changelog from now on is materialized after every other batch of a run."""
    process = Coordinator.process_batch
    batches: Counter[int] = Counter()

    def process_and_materialize(self: Coordinator, rows: Any, batch: int) -> None:
        process(self, rows, batch)
        plan = self._plan
        if plan.config.changelog_enabled and plan.config.materializer_mode != "embedded":
            batches[id(self)] += 1
            if batches[id(self)] % MATERIALIZE_EVERY == 0:
                materialize(replace(plan.materializer_config, working_directory=directory))

    monkeypatch.setattr(Coordinator, "process_batch", process_and_materialize)
    monkeypatch.setattr(services, "SnapshotWatch", partial(SnapshotWatch, poll_s=WATCH_S, rare_poll_s=WATCH_S))


def materialize(config: Any) -> None:
    """Fold the changelog of a job, and collect its garbage."""
    events = Events()
    done = run_materializer(config, events, StopSignal(), once=True)
    assert done, [*events.of(Failed), *events.of(JobFailed)]
