"""The conformance suite of keyed state, in the manner of Flink's StateBackendTestBase.

Every test runs over all stores, one of them as a user would write it, and seven ways of life: what it wrote is still
pending, is folded, or went through a crash and a restore at each `job.step()`: from the log, from a snapshot, or with
the backend changed as well; or it was cut off as a part of the batch, which either goes on and on or crashes and is
restored from its parts at every other step. Some jobs are materialized after every other batch besides, as a seed says
(tests/storage_switches.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.jobs.keyed_job import Changelog, KeyedJob
from tests.jobs.living_job import LIVES, LivingJob
from tests.stores.working_stores import KINDS
from varvite.storage.private_directories import TemporaryDirectory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.storage_switches import StorageSwitches


@pytest.fixture(params=LIVES)
def life(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def job(kind: str, life: str, storage_switches: StorageSwitches) -> Iterator[LivingJob]:
    with TemporaryDirectory("test") as directory:
        made = LivingJob(kind, life, directory)
        made.materializes = storage_switches.materializes
        yield made
        made.close()


@pytest.fixture(params=[(kind, changelog) for kind in KINDS for changelog in ("on", "off")], ids="-".join)
def keyed_job(request: pytest.FixtureRequest, storage_switches: StorageSwitches, tmp_path: Path) -> Iterator[KeyedJob]:
    """A job on every store, with the changelog on and off, for what is not about ways of life."""
    kind: str = request.param[0]
    changelog: Changelog = request.param[1]
    made = KeyedJob(kind, changelog, tmp_path)
    made.materializes = storage_switches.materializes
    yield made
    made.close()
