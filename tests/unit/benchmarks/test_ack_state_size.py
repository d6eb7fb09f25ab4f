"""The states that are loaded one after the other, and what they say."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.ack_state_size import findings, sizes_of, write_input


def test_a_state_is_loaded_in_steps_and_changed_after_each(tmp_path: Path) -> None:
    given = {"backend": "hashmap", "storage": "local", "keys": 100, "changed": 20, "batches": 2}
    assert sizes_of(given) == [20, 100]
    assert write_input(tmp_path / "input", given) == [(20, range(3, 5)), (100, range(8, 10))]
    files = sorted((tmp_path / "input").glob("*.parquet"))
    keys = [pq.read_table(file)["key"].to_pylist() for file in files]
    assert [len(one) for one in keys] == [20, *[20] * 4, 80, *[20] * 4]
    assert len({key for one in keys for key in one}) == 100
    assert keys[0][7] == "key-000000007"


def test_the_real_sizes_grow_tenfold() -> None:
    assert sizes_of({"keys": 1_000_000, "changed": 10_000}) == [10_000, 100_000, 1_000_000]


def test_a_state_that_slows_checkpoints_down_is_found() -> None:
    size = {"ack_ms_p50": 1.0, "ack_ms_p99": 2.0, "durable_ms_p50": 1.0, "durable_ms_p99": 2.0}
    sizes = [size | {"state_keys": 10}, size | {"state_keys": 1_000, "durable_ms_p50": 1.6}]
    flat, tail = findings(
        [{"backend": "rocksdb", "storage": "s3", "sizes": sizes, "plain_ms_p50": 2.0, "plain_ms_p99": 5.0}]
    )
    assert flat.startswith("NOT met")
    assert "1.60x with 100 times the state" in flat
    assert tail.startswith("met")
    assert "plain PUTs 2.50x (2.0 ms)" in tail
