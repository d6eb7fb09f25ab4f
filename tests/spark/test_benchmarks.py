"""The benchmarks with Spark, as they are typed, with sizes that say nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]


def cases_of(module: str, results: Path, *arguments: str) -> list[dict[str, Any]]:
    """Run a benchmark; the cases that it has written."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments, "--results", str(results)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=400)
    return json.loads(results.read_text())["cases"]


def test_a_run_is_resumed(tmp_path: Path) -> None:
    results = tmp_path / "smoke.json"
    chosen = ("--tiny", "--workload", "map-update", "--system", "varve-rocksdb")
    (first,) = cases_of("smoke", results, *chosen)
    assert (first["workload"], first["system"], first["batches"]) == ("map-update", "varve-rocksdb", 2)
    assert first["objects_per_checkpoint"] == 1
    assert results.with_suffix(".png").stat().st_size > 0
    more = cases_of("smoke", results, *chosen, "--workload", "list-append", "--resume")
    assert more[0] == first
    assert [c["workload"] for c in more] == ["map-update", "list-append"]


def test_the_changelogs_cost_is_measured(tmp_path: Path) -> None:
    sizes = ("--rows", "100", "--backend", "rocksdb", "--pairs", "2", "--warm-up", "1")
    (case,) = cases_of("changelog_cost", tmp_path / "cost.json", *sizes)
    logged, kept = case["variants"]
    assert (logged["variant"], kept["variant"]) == ("changelog", "kept only")
    assert logged["written_bytes_p50"] > kept["written_bytes_p50"]
    assert case["cpu_time_change"]["low"] <= case["cpu_time_change"]["median"] <= case["cpu_time_change"]["high"]
