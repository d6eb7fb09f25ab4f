"""Memory that a materializer takes for a state that is much larger than what it was given."""

from __future__ import annotations

import random
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.sidecar_site import Site
from tests.jobs.state_model import BatchChanges, random_text

if TYPE_CHECKING:
    pass

pytestmark = [
    pytest.mark.sidecar,
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc"),
]
MB = 1 << 20
VALUE_BYTES = 16 << 10
BATCHES, BATCH_KEYS = 40, 1_000
MEMORY_MB = 32
BUFFERS_MB = 2 * 64
"""Held by a range besides, as docs/operate/materializer.md says: log that was read ahead, and files that are uploaded.
"""
ALLOCATORS = 2.75
"""Memory that they take for what they do, rows that are being written included."""
TICK_S = 0.02


def peak_mb(site: Site, *options: str) -> float:
    """Peak resident memory of one `materialize --once`, which ends well."""
    sidecar = site.sidecar("--once", "--parallel", "1", *options)
    # Not ru_maxrss, which begins with what the process had that this one was forked from.
    status, peak = Path(f"/proc/{sidecar.process.pid}/status"), 0.0
    while sidecar.process.poll() is None:
        found = re.search(r"^VmHWM:\s+(\d+) kB", status.read_text(), re.MULTILINE)
        peak = peak if found is None else int(found[1]) / 1024  # a process that has ended has none
        time.sleep(TICK_S)
    assert sidecar.process.returncode == 0, site.logs()
    return peak


@pytest.mark.long
def test_a_state_of_hundreds_of_megabytes_is_materialized_in_the_memory_that_is_given(site: Site) -> None:
    rng = random.Random(3)
    site.job.start()
    site.commit(2)
    idle = peak_mb(site)
    for batch in range(BATCHES):
        changes = {f"key {batch} {n}": (True, [random_text(rng, VALUE_BYTES)]) for n in range(BATCH_KEYS)}
        site.job.commit(BatchChanges(events=changes), upload=True)
        site.job.models = dict(list(site.job.models.items())[-1:])
    state_mb = BATCHES * BATCH_KEYS * VALUE_BYTES / MB
    taken = peak_mb(site, "--memory", f"{MEMORY_MB} mb") - idle
    limit_mb = ALLOCATORS * (MEMORY_MB + BUFFERS_MB)
    assert taken <= limit_mb < state_mb, f"{taken:.0f} MB for a state of {state_mb:.0f} MB"
    site.commit()
    assert site.job.adopted
