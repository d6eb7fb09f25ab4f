"""The benchmarks that need no Spark, as they are typed, with sizes that say nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.servers.ceph import missing_programs

ROOT = Path(__file__).resolve().parents[3]


def tiny_cases_of(module: str, results: Path, *arguments: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", f"benchmarks.{module}", "--tiny", *arguments]
    path = results / f"{module}.json"
    subprocess.run([*command, "--results", str(path)], cwd=ROOT, check=True, capture_output=True, text=True)
    assert path.with_suffix(".png").stat().st_size > 0
    return json.loads(path.read_text())["cases"]


@pytest.mark.long
def test_space_is_measured(tmp_path: Path) -> None:
    cases = tiny_cases_of("space", tmp_path)
    assert [c["contents"] for c in cases] == ["elements", "sums"]
    for case in cases:
        assert case["ratio_max"] >= case["ratio_p50"] > 0
        assert case["live_bytes_p50"] > 0


@pytest.mark.long
def test_a_fold_is_measured(tmp_path: Path) -> None:
    new, again = tiny_cases_of("materializer_speed", tmp_path, "--only", "kind=fold", "--only", "storage=local")
    assert new["mutations"] == again["mutations"] == 400  # two of three batches are final
    assert new["cpu_s_per_gb"] > 0


@pytest.mark.long
@pytest.mark.s3
@pytest.mark.skipif(bool(missing_programs()), reason="Ceph is not installed")
def test_requests_are_counted(tmp_path: Path) -> None:
    small, large, *clouds = tiny_cases_of("requests_and_bill", tmp_path, "--only", "system=varvite")
    for cloud in clouds:  # the same protocol
        assert cloud["parts"]["job"]["requests"] == small["parts"]["job"]["requests"]
    assert small["parts"]["job"]["requests"]["PUT"] >= 1
    assert large["parts"]["job"]["requests"]["PUT"] > small["parts"]["job"]["requests"]["PUT"]


@pytest.mark.s3
@pytest.mark.skipif(bool(missing_programs()), reason="Ceph is not installed")
def test_tasks_of_a_first_batch_read_no_entry_of_the_chain(tmp_path: Path) -> None:
    path = tmp_path / "restart_reads.json"
    command = [sys.executable, "-m", "benchmarks.many_partitions.restart_reads", "--partitions", "4", "--batches", "3"]
    subprocess.run([*command, "--results", str(path)], cwd=ROOT, check=True, capture_output=True, text=True)
    alone, slices = json.loads(path.read_text())["cases"]
    assert alone["requests"] >= 4
    assert (slices["requests"], slices["bytes"]) == (0, 0)
