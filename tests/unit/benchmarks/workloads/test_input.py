"""The input of the workloads."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.workloads.input import CATEGORIES, Case, write_input


def test_each_batch_has_its_rows_over_its_keys(tmp_path: Path) -> None:
    files = write_input(tmp_path / "input", Case(40, 10, state_keys=100), 2)
    assert [file.name for file in files] == ["batch-00000.parquet", "batch-00001.parquet", "batch-00002.parquet"]
    keys = [pq.read_table(file)["key"].to_pylist() for file in files]
    assert [len(column) for column in keys] == [100, 40, 40]
    assert [len(set(column)) for column in keys] == [100, 10, 10]
    assert keys[1] != keys[2]


def test_enough_rows_of_a_key_have_every_category(tmp_path: Path) -> None:
    (file,) = write_input(tmp_path / "input", Case(CATEGORIES * 3, 3), 1)
    rows = pq.read_table(file).to_pylist()
    for key in {row["key"] for row in rows}:
        assert sorted(row["category"] for row in rows if row["key"] == key) == list(range(CATEGORIES))


def test_a_part_of_a_case_has_at_least_one_row() -> None:
    assert Case(20_000, 1_000, 50).part(2_000) == Case(10, 1, 0)
