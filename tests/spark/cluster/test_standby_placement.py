"""A partition whose executor is lost goes to the host whose standby has a copy, and is not restored there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.spark.cluster.test_placement import ONE_KEY, ROOT, WAIT, ClusterJob, moved
from tests.workers.standalone_cluster import StandaloneCluster, host_name, standalone_cluster

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1500)]
HOSTS = 3
BATCHES, KILLED_AFTER = 7, ONE_KEY


@contextmanager
def standby(cluster: StandaloneCluster, index: int, storage: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`varvite standby` on the host of a worker, with that host's directories."""
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    environment = {**os.environ, "PYTHONPATH": path, **cluster.places(index)}
    program = "from varvite.materializer.commands.cli import main; main()"
    command = ["standby", "job", "--storage", str(storage), "--host", host_name(index), "--followers", "1"]
    with (cluster.directory / f"standby-{index}.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", program, *command], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def hosts(homes: dict[int, str]) -> dict[int, str]:
    """By partition: the host of the executor that it ran on."""
    return {p: host_name(int(found[1])) for p, home in homes.items() if (found := re.search(r"-worker-(\d+)", home))}


def copies(job: ClusterJob, homes: dict[int, str]) -> dict[int, str]:
    """The host of the copy of each partition that has one and no more, elsewhere than it runs, as the driver knows."""
    found = [[host for host, seq in by_host.items() if seq] for by_host in job.copies()]
    return {p: own[0] for p, own in enumerate(found) if len(own) == 1 and own[0] != homes[p]}


def test_a_lost_partition_comes_up_on_the_host_of_its_standby_and_is_not_restored(tmp_path: Path) -> None:
    """Each partition has one copy, on one of the two hosts where it does not run."""
    settings = {
        "spark.varvite.parallelism.default": str(HOSTS),
        "spark.varvite.execution.state-recovery.from-local": "true",
        "spark.shuffle.reduceLocality.enabled": "false",
        "spark.locality.wait": WAIT,
    }
    with standalone_cluster(tmp_path / "cluster", workers=HOSTS) as cluster:
        job = ClusterJob(tmp_path, cluster.url, HOSTS, settings, BATCHES)
        job.pause_after(KILLED_AFTER)
        storage = tmp_path / "state"
        with (
            job.running() as driver,
            standby(cluster, 0, storage),
            standby(cluster, 1, storage) as killed,
            standby(cluster, 2, storage),
        ):
            job.wait_until(lambda: job.is_paused(KILLED_AFTER), driver)
            before = hosts(job.homes(KILLED_AFTER + 1)[-1])
            assert set(before.values()) == {host_name(index) for index in range(HOSTS)}
            job.wait_until(lambda: len(copies(job, before)) == HOSTS, driver)
            copied_to = copies(job, before)
            cluster.kill_host(1)
            killed.kill()
            job.wait_until(lambda: len(job.executors()) == HOSTS - 1, driver)
            job.go_on(KILLED_AFTER)
            assert driver.wait(1200) == 0, job.log()
    job.check_rows()
    homes = job.homes()
    (lost,) = moved(homes[KILLED_AFTER], homes[KILLED_AFTER + 1])
    assert before[lost] == host_name(1)
    assert hosts(homes[KILLED_AFTER + 1])[lost] == copied_to[lost]
    assert all(home == homes[KILLED_AFTER + 1] for home in homes[KILLED_AFTER + 2 :])
    restored = [statistics["restored"] for statistics in job.statistics()]
    assert restored[KILLED_AFTER + 1]["caught-up"] == 2, "of both operators"
    assert all("restored" not in found for found in restored[1:])
