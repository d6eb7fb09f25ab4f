"""Fixtures that several directories of tests share, the switches of all tests, and the profile of property tests.

Temporary files of a run lie in memory where that has room: on a disk the syncs would take half of the time. A
`TMPDIR` of the caller's stays as it is. Files of a test that passed are removed.

Properties have no deadline, because the machine may be busy. Under CI the examples are the same in every run, so that a
change is judged by what it changed; elsewhere they are new.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.short_lived_java import set_java_options
from tests.storage_switches import FIXED, SEED_VARIABLE, StorageSwitches, seed_of
from tests.stores.clouds.servers import azure_server, careless_gcs_server, gcs_server, hdfs_server
from tests.stores.kafka_broker import kafka
from tests.stores.postgres_server import postgres
from tests.stores.s3_servers import (
    careless_s3_server,
    ceph_cluster,
    ceph_server,
    engine,
    moto_server,
    seaweedfs_server,
)

__all__ = [
    "azure_server",
    "careless_gcs_server",
    "careless_s3_server",
    "ceph_cluster",
    "ceph_server",
    "engine",
    "gcs_server",
    "hdfs_server",
    "kafka",
    "moto_server",
    "postgres",
    "seaweedfs_server",
]

MEMORY, ROOM_BYTES = Path("/dev/shm"), 2 << 30


def has_room(directory: Path) -> bool:
    """Answers whether tests may put their files there, programs among them."""
    return (
        directory.is_dir()
        and not os.statvfs(directory).f_flag & os.ST_NOEXEC
        and shutil.disk_usage(directory).free >= ROOM_BYTES
    )


if "TMPDIR" not in os.environ and has_room(MEMORY):
    os.environ["TMPDIR"] = str(MEMORY)  # also of the processes that tests start
    tempfile.tempdir = None

set_java_options(os.environ)  # also of the processes that tests start

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
