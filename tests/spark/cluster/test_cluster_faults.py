"""Speculation, and executors that come, go and die, on clusters of real processes: state right, output right.

The functions of both chained operators are never twice the same, see `tests.spark.functions.tokens`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.spark.drivers.fault_driver import FOLLOWING
from tests.spark.functions.tokens import (
    UNTIL_RELEASED,
    UNTIL_SECOND,
    UNTIL_SUNK,
    check_chains,
    check_following,
    check_state,
    note,
)
from tests.spark.keyed_jobs import UID
from tests.workers.standalone_cluster import standalone_cluster

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[3]
KEYS = "abcdef"
SINKS = ("spark", "driver")
"""Its rows are cached, or come to the driver with the summaries."""


def write_input(directory: Path, batches: int) -> list[list[tuple[str, int]]]:
    """A file per batch; gives its rows."""
    (directory / "input").mkdir()
    found: list[list[tuple[str, int]]] = []
    for number in range(batches):
        rows = [(k, number * 10 + i) for i, k in enumerate(KEYS)]
        path = directory / "input" / f"{number:05d}.json"
        path.write_text("".join(json.dumps({"k": k, "v": v}) + "\n" for k, v in rows))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
        found.append(rows)
    return found


def run_driver(
    directory: Path,
    master: str,
    scenario: str,
    pauses: Mapping[str, Mapping[int, str]],
    conf: Mapping[str, str],
    sink: str,
) -> list[dict[str, Any]]:
    """One run of `tests.spark.drivers.fault_driver` to its end; what Spark's listeners were told."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *(p for p in sys.path if p)])}
    environment |= {"PYSPARK_PYTHON": sys.executable, "FAULT_PAUSES": json.dumps(pauses), "FAULT_SINK": sink}
    settings = [f"{key}={value}" for key, value in conf.items()]
    command = [sys.executable, "-m", "tests.spark.drivers.fault_driver", str(directory), master, scenario, *settings]
    with (directory / "driver.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        code = process.wait(850)
    finally:
        process.kill()
        process.wait()
    assert code == 0, (directory / "driver.log").read_text()[-6000:]
    logs = [path for path in (directory / "events").rglob("*") if path.is_file() and not path.name.startswith(".")]
    return [json.loads(line) for path in logs for line in path.read_text().splitlines() if line.startswith("{")]


def check(directory: Path, batches: list[list[tuple[str, int]]]) -> None:
    """Each batch is in the sink, and the state that is stored is that of the rows there."""
    files = sorted((directory / "sink").glob("*.json"), key=lambda path: int(path.stem))
    assert len(files) == len(batches)
    rows = [row for path in files for row in json.loads(path.read_text())]
    check_state(directory / "state", check_chains(rows, batches), UID)
    check_state(directory / "state", check_following(rows), FOLLOWING)


def of_kind(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["Event"] == f"SparkListener{kind}"]


@pytest.mark.rare
@pytest.mark.parametrize("sink", SINKS)
def test_of_a_task_and_its_speculative_copy_only_one_is_in_state_and_output(tmp_path: Path, sink: str) -> None:
    """Spark copies a task only to another host, so the workers have hosts of their own."""
    batches = write_input(tmp_path, 7)
    # The copy is first; or both end together, which leaves two answers that both are complete. An execution that waits
    # for the sink keeps its host busy, so no other task of its batch can be copied.
    pauses = {
        UID: {12: UNTIL_SUNK, 31: UNTIL_SECOND, 42: UNTIL_SECOND, 53: UNTIL_SUNK},
        FOLLOWING: {2: UNTIL_SECOND, 21: UNTIL_SUNK, 32: UNTIL_SECOND, 64: UNTIL_SUNK},
    }
    conf = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.minTaskRuntime": "100ms",
        "spark.locality.wait": "0s",
        "spark.executor.memory": "512m",
    }
    with standalone_cluster(tmp_path / "cluster", workers=2) as cluster:
        events = run_driver(tmp_path, cluster.url, "speculation", pauses, conf, sink)
    paused = [(uid, v) for uid, found in pauses.items() for v in found]
    for uid, v in paused:
        assert note(tmp_path / "notes" / uid, "second", v).exists(), f"the task of {uid} was not copied"
    assert sum(event["Task Info"]["Speculative"] for event in of_kind(events, "TaskStart")) >= len(paused)
    check(tmp_path, batches)


@pytest.mark.parametrize("sink", [SINKS[0], pytest.param(SINKS[1], marks=pytest.mark.rare)])
def test_executors_that_come_go_and_die_leave_state_and_output_right(tmp_path: Path, sink: str) -> None:
    """Idle ones go and others come (dynamic allocation); one is killed while it executes, with its shuffle files."""
    batches = write_input(tmp_path, 6)
    pauses = {UID: {42: UNTIL_RELEASED}, FOLLOWING: {51: UNTIL_RELEASED}}
    conf = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.timeout": "1s",
        "spark.dynamicAllocation.cachedExecutorIdleTimeout": "1s",
        "spark.dynamicAllocation.executorIdleTimeout": "1s",
        "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
        "spark.dynamicAllocation.sustainedSchedulerBacklogTimeout": "1s",
        "spark.dynamicAllocation.initialExecutors": "2",
        "spark.dynamicAllocation.minExecutors": "1",
        "spark.dynamicAllocation.maxExecutors": "2",
        "spark.executor.memory": "512m",
    }
    events = run_driver(tmp_path, "local-cluster[2,1,1024]", "executors", pauses, conf, sink)
    for uid, v in ((UID, 42), (FOLLOWING, 51)):
        assert note(tmp_path / "notes" / uid, "killed", v).exists()
        assert note(tmp_path / "notes" / uid, "second", v).exists()
    assert len(of_kind(events, "ExecutorRemoved")) >= 3
    assert len(of_kind(events, "ExecutorAdded")) >= 5
    check(tmp_path, batches)
