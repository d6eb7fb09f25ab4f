"""Partitions keep their executors, on clusters of real processes; each test's driver is a process of its own."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests.spark.keyed_jobs import SumsModel, in_order
from tests.tidy.pages.doc_blocks import blocks_of
from tests.workers.standalone_cluster import standalone_cluster

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1500)]
ROOT = Path(__file__).parents[3]
BATCHES = 20
KEYS = 24
EMPTY, ONE_KEY = 2, 4
"""Batches without rows, and with rows of one partition only."""
WAIT_MAX_S = 600
PAGE = "docs/operate/cluster.md"
WARM_UP = 1
"""Batches in which executors start their processes, one sooner than the other."""
WAIT = "100s"
"""However slow the machine is, a task waits so long for its executor."""
SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.varvite.pipeline.max-parallelism": "64",
}


@dataclass
class ClusterJob:
    """A driver process, its input, and what it said."""

    directory: Path
    master: str
    count: int
    """Executors that the driver waits for."""
    settings: dict[str, str]
    batches: int = BATCHES
    expected: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])

    def write_input(self) -> None:
        """One file per batch, with two rows of each key in an order that matters."""
        (self.directory / "input").mkdir()
        model = SumsModel()
        for batch in range(self.batches):
            keys = {EMPTY: 0, ONE_KEY: 1}.get(batch, KEYS)
            rows = [(f"key-{key}", value) for value in (batch * 10 + 9, batch * 10) for key in range(keys)]
            path = self.directory / "input" / f"{batch:05d}.json"
            path.write_text("".join(json.dumps({"k": k, "v": v}) + "\n" for k, v in rows))
            os.utime(path, (1_700_000_000 + batch, 1_700_000_000 + batch))
            self.expected += [model.add(k, v) for k, v in rows]

    def pause_after(self, batch: int, *orders: str) -> None:
        """Let the driver wait after that batch, and before do this to the oldest executor."""
        (self.directory / f"pause-{batch}").write_text(" ".join(orders))

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        """The driver; it is killed if it still runs at the end."""
        self.write_input()
        path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
        environment = {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
        settings = [f"{key}={value}" for key, value in (SETTINGS | self.settings).items()]
        command = [sys.executable, "-m", "tests.spark.drivers.cluster_driver", str(self.directory), self.master]
        command += [str(self.count), *settings]
        with (self.directory / "driver.log").open("ab") as log:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            application = self.directory / "application"
            if application.exists():  # `local-cluster` writes into PySpark's own directory
                shutil.rmtree(Path(pyspark.__file__).parent / "work" / application.read_text(), ignore_errors=True)

    def log(self) -> str:
        """The end of what the driver said."""
        return (self.directory / "driver.log").read_text(errors="replace")[-4000:]

    def wait_until(self, condition: Callable[[], bool], driver: subprocess.Popen[bytes]) -> None:
        """Wait for something that happens while the driver runs."""
        deadline = time.monotonic() + WAIT_MAX_S
        while not condition():
            assert driver.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.05)

    def is_paused(self, batch: int) -> bool:
        """True if the driver waits after that batch."""
        return (self.directory / f"paused-{batch}").exists()

    def executors(self) -> list[str]:
        """Those that a driver that waits knows."""
        path = self.directory / "executors.json"
        return json.loads(path.read_text()) if path.exists() else []

    def copies(self) -> list[dict[str, int]]:
        """By partition: the seq of the copies that the driver knows, by host."""
        path = self.directory / "copies.json"
        (found,) = (json.loads(path.read_text()) if path.exists() else []) or [[]]
        return found

    def go_on(self, batch: int) -> None:
        """End the pause."""
        (self.directory / f"pause-{batch}").unlink()

    def rows(self, batches: int | None = None) -> list[list[list[Any]]]:
        """The output rows by batch, of the first ones or of all."""
        numbers = range(self.batches if batches is None else batches)
        return [json.loads((self.directory / "out" / f"{batch}.json").read_text()) for batch in numbers]

    def check_rows(self) -> None:
        """No row was lost or doubled, and each key's rows came in order."""
        rows = [row for batch in self.rows() for row in batch]
        assert in_order(tuple(row[:4]) for row in rows) == in_order(self.expected)
        assert all(times == n for _, n, *_, times in rows)

    def homes(self, batches: int | None = None) -> list[dict[int, str]]:
        """By batch, of the first ones or of all: the executor of every partition that has had rows so far."""
        found: list[dict[int, str]] = []
        for batch in self.rows(batches):
            found.append({**(found[-1] if found else {}), **{row[4]: row[5] for row in batch}})
        return found

    def statistics(self) -> list[dict[str, Any]]:
        """Of every batch."""
        return json.loads((self.directory / "statistics.json").read_text())


def moved(before: dict[int, str], after: dict[int, str]) -> set[int]:
    """Partitions with another executor."""
    return {partition for partition, home in before.items() if after[partition] != home}


def stays(homes: list[dict[int, str]], partitions: int) -> float:
    """Part of the (partition, batch) pairs that stayed on their executor."""
    changes = sum(len(moved(before, after)) for before, after in itertools.pairwise(homes))
    return 1 - changes / (partitions * (len(homes) - 1))


def shares(partitions: int, executors: int) -> list[int]:
    """Partitions of the job's two operators that the executors have when they have as many as one another."""
    least, larger = divmod(partitions, executors)
    return [2 * (least + (place < larger)) for place in range(executors)]


@pytest.mark.rare
def test_on_a_local_cluster_only_partitions_of_an_executor_that_is_decommissioned_or_excluded_move(
    tmp_path: Path,
) -> None:
    """Each of them once, in the very next batch, to an executor that is there to stay."""
    partitions, decommissioned_after, excluded_after = 7, 6, 13
    settings = {
        "spark.varvite.parallelism.default": str(partitions),
        "spark.locality.wait": WAIT,
        "spark.decommission.enabled": "true",
        "spark.excludeOnFailure.enabled": "true",
        "spark.excludeOnFailure.application.fetchFailure.enabled": "true",
    }
    job = ClusterJob(tmp_path, "local-cluster[3,1,1024]", 3, settings)
    job.pause_after(decommissioned_after, "decommission")
    job.pause_after(excluded_after, "exclude")
    with job.running() as driver:
        for pause in (decommissioned_after, excluded_after):
            job.wait_until(lambda pause=pause: job.is_paused(pause) and len(job.executors()) == 2, driver)
            job.go_on(pause)
        assert driver.wait(1200) == 0, job.log()
    job.check_rows()
    homes, statistics = job.homes(), job.statistics()
    assert set(homes[0]) == set(range(partitions))
    assert [sorted(s["partitions_of_executors"], reverse=True) for s in statistics] == [
        shares(partitions, 3 if batch <= decommissioned_after else 2) for batch in range(BATCHES)
    ]
    for batch, (before, after) in enumerate(itertools.pairwise(homes)):
        lost = moved(before, after)
        gone = {before[partition] for partition in lost}
        assert statistics[batch + 1]["moved_partitions"] == 2 * len(lost)
        assert len(gone) == (batch in (decommissioned_after, excluded_after))
        assert lost == {partition for partition, home in before.items() if home in gone}
        assert gone.isdisjoint(after.values())
    assert stays(homes, partitions) >= 0.95


def recommended() -> dict[str, str]:
    """Spark's settings that the page names."""
    (block,) = (block for block in blocks_of(PAGE, (ROOT / PAGE).read_text()) if block.language == "ini")
    settings = dict(line.split() for line in block.text.splitlines())
    return {key: value for key, value in settings.items() if not key.startswith("spark.varvite.")}


# Spark's own settings, and so the merge join, are those of the test above, too.
@pytest.mark.parametrize("form", ["hash join", pytest.param("merge join", marks=pytest.mark.rare)])
def test_only_partitions_of_an_executor_that_is_lost_move_and_the_replacement_gets_its_share(
    tmp_path: Path, form: str
) -> None:
    """With the settings of the page, and with Spark's own; the form of the join follows from them."""
    partitions, executors, killed_after, replaced_after = 7, 3, 6, 13
    settings = recommended()
    assert set(settings) == {"spark.shuffle.reduceLocality.enabled", "spark.locality.wait.process"}
    if form == "merge join":
        del settings["spark.shuffle.reduceLocality.enabled"]
    with standalone_cluster(tmp_path / "cluster") as cluster:
        job = ClusterJob(
            tmp_path, cluster.url, executors, {**settings, "spark.varvite.parallelism.default": str(partitions)}
        )
        for pause in (killed_after, replaced_after):
            job.pause_after(pause)
        with job.running() as driver:
            job.wait_until(lambda: job.is_paused(killed_after) and len(job.executors()) == executors, driver)
            known = set(job.executors())
            cluster.kill_executor(1)
            job.wait_until(lambda: bool(known.difference(job.executors())), driver)
            job.go_on(killed_after)
            job.wait_until(lambda: job.is_paused(replaced_after) and len(job.executors()) == executors, driver)
            job.go_on(replaced_after)
            assert driver.wait(1200) == 0, job.log()
    job.check_rows()
    try:
        check_loss(job, partitions, executors, killed_after, replaced_after)
    except AssertionError:
        wait_ms = 1000 * int(settings["spark.locality.wait.process"].removesuffix("s"))
        if any(one["operators_ms"] >= wait_ms for one in job.statistics()[WARM_UP:]):
            pytest.skip("on so slow a machine a task may have given its executor up, as the page says")
        raise


def check_loss(job: ClusterJob, partitions: int, executors: int, killed_after: int, replaced_after: int) -> None:
    """Partitions that moved when an executor was killed and replaced; checks that partitions were evenly spread all the
    time.
    """
    homes, statistics = job.homes()[WARM_UP:], job.statistics()[WARM_UP:]
    killed, replaced = killed_after - WARM_UP, replaced_after - WARM_UP
    spread = [sorted(one["partitions_of_executors"], reverse=True) for one in statistics]
    assert all(found == shares(partitions, executors) for found in [*spread[: killed + 1], *spread[replaced + 1 :]])
    assert all(found in (shares(partitions, n) for n in (executors - 1, executors)) for found in spread)
    assert all(home == homes[0] for home in homes[: killed + 1])
    lost = moved(homes[killed], homes[killed + 1])
    gone = {homes[0][partition] for partition in lost}
    assert len(gone) == 1
    assert lost == {partition for partition, home in homes[0].items() if home in gone}
    assert all(gone.isdisjoint(home.values()) for home in homes[killed + 1 :])
    # A replacement that can be used only after the next batch gets its share from the executors that have taken over.
    after = homes[replaced + 1]
    new = set(after.values()).difference(homes[0].values())
    assert len(new) == 1
    given = moved(homes[killed + 1], after)
    assert {after[partition] for partition in given} <= new
    assert not new.isdisjoint(homes[killed + 1].values()) or len(given) == partitions // executors
    assert sum(one["moved_partitions"] for one in statistics[1:]) == 2 * (len(lost) + len(given))
    assert all(home == after for home in homes[replaced + 1 :])
    assert stays(homes, partitions) >= 0.95
