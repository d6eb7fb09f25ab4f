"""How much memory a materializer takes for a state that is much larger than what it was given."""

from __future__ import annotations

import base64
import os
import random
from typing import TYPE_CHECKING

import pytest

from tests.integration.sidecar_site import Site
from tests.state_model import BatchChanges

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.sidecar, pytest.mark.timeout(300)]
MB = 1 << 20
VALUE_BYTES = 16 << 10
BATCHES, BATCH_KEYS = 24, 1_000
MEMORY_MB = 32
BUFFERS_MB = 2 * 64
"""What docs/materializer.md says a range holds besides: log that was read ahead, and files that are uploaded."""
SLACK_MB = 64
"""What allocators keep."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()


def peak_mb(site: Site, *options: str) -> float:
    """Peak resident memory of one `materialize --once`, which ends well."""
    sidecar = site.sidecar("--once", "--parallel", "1", *options)
    _, status, usage = os.wait4(sidecar.process.pid, 0)
    sidecar.process.returncode = os.waitstatus_to_exitcode(status)
    assert sidecar.process.returncode == 0, site.logs()
    return usage.ru_maxrss / 1024


def test_a_state_of_hundreds_of_megabytes_is_materialized_in_the_memory_that_is_given(site: Site) -> None:
    rng = random.Random(3)
    site.job.start()
    site.commit(2)
    idle = peak_mb(site)
    for batch in range(BATCHES):
        texts = [base64.b64encode(rng.randbytes(VALUE_BYTES * 3 // 4)).decode() for _ in range(BATCH_KEYS)]
        changes = {f"key {batch} {number}": (True, [text]) for number, text in enumerate(texts)}
        site.job.commit(BatchChanges(events=changes), upload=True)
        site.job.models = dict(list(site.job.models.items())[-1:])
    state_mb = BATCHES * BATCH_KEYS * VALUE_BYTES / MB
    taken = peak_mb(site, "--memory", f"{MEMORY_MB} mb") - idle
    assert taken <= MEMORY_MB + BUFFERS_MB + SLACK_MB < state_mb, f"{taken:.0f} MB for a state of {state_mb:.0f} MB"
    site.commit()
    assert site.job.adopted
