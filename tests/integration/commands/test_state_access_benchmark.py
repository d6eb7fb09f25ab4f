"""The benchmark of single accesses, as it is typed, with small sizes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SIZES = ("--entries", "400", "--rows", "10", "--repetitions", "2")


def test_every_store_is_measured(tmp_path: Path) -> None:
    results = tmp_path / "state.json"
    stores = ["hashmap", "rocksdb", "rocksdb-small-caches"]
    chosen = [argument for store in stores for argument in ("--store", store)]
    command = [sys.executable, "-m", "benchmarks.state_access", *SIZES, *chosen, "--results", str(results)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    cases = json.loads(results.read_text())["cases"]
    assert [(c["store"], c["changelog"]) for c in cases if c["access"] == "put"] == [
        (store, changelog) for store in stores for changelog in (True, False)
    ]
    assert all(c["checkpoint_ns"] > 0 for c in cases if c["mutations"])
    assert "hashmap: median ns per access" in done.stdout
    assert results.with_suffix(".png").stat().st_size > 0
