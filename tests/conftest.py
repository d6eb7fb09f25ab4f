"""Fixtures that several directories of tests share, the switches of all tests, and the profile of property tests.

Properties have no deadline, because the machine may be busy. Under CI the examples are the same in every run, so that a
change is judged by what it changed; elsewhere they are new.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings

from tests.storage_switches import FIXED, SEED_VARIABLE, StorageSwitches, seed_of
from tests.stores.s3_servers import ceph_cluster, ceph_server, moto_server

__all__ = ["ceph_cluster", "ceph_server", "moto_server"]

SEED = os.environ[SEED_VARIABLE] = seed_of(os.environ)  # also of pytest's processes, if there are several

settings.register_profile(
    "varvite", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("varvite")


def pytest_report_header() -> str:
    """The seed, at the head of every run."""
    return f"storage switches: {SEED_VARIABLE}={SEED} makes this run again"


@pytest.fixture
def storage_switches(request: pytest.FixtureRequest) -> StorageSwitches:
    """Draws the switches: changelog on or off, materialized every other batch or not, if the test does not say."""
    switches = StorageSwitches.drawn(SEED, request.node.nodeid)
    if request.node.get_closest_marker("fixed_storage"):
        switches = replace(FIXED, small_batches=switches.small_batches)
    if request.node.get_closest_marker("spark_tasks"):
        switches = replace(switches, small_batches=False)
    return switches
