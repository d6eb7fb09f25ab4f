"""The benchmarks with Spark, as they are typed, with sizes that say nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.servers.ceph import missing_programs

NEEDS_CEPH = pytest.mark.skipif(bool(missing_programs()), reason="Ceph is not installed")
pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]


def cases_of(module: str, results: Path, *arguments: str) -> list[dict[str, Any]]:
    """Run a benchmark; the cases that it has written."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments, "--results", str(results)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=400)
    return json.loads(results.read_text())["cases"]


def tiny_cases_of(module: str, results: Path, *only: str) -> list[dict[str, Any]]:
    """The chosen tiny cases of a program of `make bench`."""
    chosen = [argument for condition in only for argument in ("--only", condition)]
    cases = cases_of(module, results / f"{module}.json", "--tiny", *chosen)
    assert (results / f"{module}.png").stat().st_size > 0
    return cases


def test_a_run_is_resumed(tmp_path: Path) -> None:
    results = tmp_path / "smoke.json"
    chosen = ("--tiny", "--workload", "map-update", "--system", "varvite-rocksdb")
    (first,) = cases_of("smoke", results, *chosen)
    assert (first["workload"], first["system"], first["batches"]) == ("map-update", "varvite-rocksdb", 2)
    assert first["objects_per_checkpoint"] == 1
    assert results.with_suffix(".png").stat().st_size > 0
    more = cases_of("smoke", results, *chosen, "--workload", "list-append", "--resume")
    assert more[0] == first
    assert [c["workload"] for c in more] == ["map-update", "list-append"]


@pytest.mark.rare
def test_the_changelogs_cost_is_measured(tmp_path: Path) -> None:
    sizes = ("--rows", "100", "--backend", "rocksdb", "--pairs", "2", "--warm-up", "1")
    (case,) = cases_of("changelog_cost", tmp_path / "cost.json", *sizes)
    logged, kept = case["variants"]
    assert (logged["variant"], kept["variant"]) == ("changelog", "kept only")
    assert logged["written_bytes_p50"] > kept["written_bytes_p50"]
    assert case["cpu_time_change"]["low"] <= case["cpu_time_change"]["median"] <= case["cpu_time_change"]["high"]


@pytest.mark.rare
@NEEDS_CEPH
def test_acknowledgements_are_measured_on_s3(tmp_path: Path) -> None:
    (case,) = tiny_cases_of("ack_state_size", tmp_path, "storage=s3")
    assert [size["state_keys"] for size in case["sizes"]] == [100, 1_000]
    assert case["plain_ms_p50"] >= 20  # the latency
    for size in case["sizes"]:
        assert size["durable_ms_p50"] >= size["ack_ms_p50"] >= 20  # that of the one PUT


@pytest.mark.rare
def test_trigger_intervals_are_found(tmp_path: Path) -> None:
    own = ("storage=local", "system=varvite-rocksdb")
    (case,) = tiny_cases_of("trigger_interval", tmp_path, "job=aggregation", *own)
    assert case["tried"][-1]["interval_ms"] == case["interval_ms"] > 0
    peer = ("storage=local", "system=spark-changelog")
    (case,) = tiny_cases_of("trigger_interval", tmp_path, "job=function", *peer)
    assert case["tried"][-1]["interval_ms"] == case["interval_ms"] > 0


@pytest.mark.rare
def test_triggers_of_few_rows_are_measured_by_both_ways(tmp_path: Path) -> None:
    (case,) = tiny_cases_of("trigger_latency", tmp_path, "rows=100")
    assert set(case["systems"]) == {
        "driver-hashmap", "driver-rocksdb", "tasks-hashmap", "tasks-rocksdb", "groupBy", "noop"
    }  # fmt: skip
    assert [case["systems"][name]["ways"] for name in ("driver-hashmap", "tasks-rocksdb")] == [["driver"], ["spark"]]
    assert all(figures["p99_ms"] >= figures["p50_ms"] > 0 for figures in case["systems"].values())


@pytest.mark.rare
@NEEDS_CEPH
def test_requests_of_a_whole_query_are_counted(tmp_path: Path) -> None:
    (case,) = tiny_cases_of("requests_and_bill", tmp_path, "system=varvite-query")
    assert case["parts"]["query"]["requests"]["PUT"] >= 1


@pytest.mark.rare
def test_sparks_requests_are_counted(tmp_path: Path) -> None:
    (case,) = tiny_cases_of("requests_and_bill", tmp_path, "system=spark-changelog")
    assert case["parts"]["job"]["requests"]["PUT"] >= 4  # a changelog for each of the partitions
    assert case["parts"]["maintenance"]["requests"]["PUT"] > 0
    assert case["parts"]["Spark's logs"]["requests"]["PUT"] >= 2


@pytest.mark.rare
def test_restarts_are_measured(tmp_path: Path) -> None:
    (case,) = tiny_cases_of("recovery", tmp_path, "system=varvite-rocksdb")
    log, base, *_ = case["restarts"]
    assert (log["mode"], log["how"]) == ("log", "restored")
    assert (base["mode"], base["how"]) == ("base + log", "restored")


@pytest.mark.rare
def test_a_job_is_measured_beside_a_materializer(tmp_path: Path) -> None:
    (case,) = cases_of("materializer_speed", tmp_path / "speed.json", "--tiny", "--only", "kind=beside")
    assert case["batch_ms_with"] > 0
    assert case["batch_ms_alone"] > 0
