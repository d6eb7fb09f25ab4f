"""The programs of docs/guide/vectorized.md, run as they stand but for their places and an end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.tidy.pages.doc_blocks import ROOT, blocks_of

pytestmark = pytest.mark.spark
PAGE = "docs/guide/vectorized.md"


def programs(work: Path) -> list[str]:
    """The blocks that are marked to run, with the places of this test."""
    texts = [b.text for b in blocks_of(PAGE, (ROOT / PAGE).read_text()) if "run" in b.tags]
    placed = [
        text.replace("/data/", f"{work}/").replace("file:///var/lib/varvite", f"file://{work}/varvite")
        for text in texts
    ]
    return [text.replace('writer.start("', 'writer.trigger(availableNow=True).start("') for text in placed]


def written(directory: Path) -> list[dict[str, Any]]:
    table = ds.dataset(directory, format="parquet", partitioning="hive", ignore_prefixes=["_", "."]).to_table()
    return table.to_pylist()


def test_the_programs_of_the_page_do_what_it_says(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()

    def add(name: str, *rows: tuple[str, str | None, float]) -> None:
        customers, products, amounts = zip(*rows, strict=True)
        columns = {"customer": customers, "product": products, "amount": amounts}
        pq.write_table(pa.table(columns), tmp_path / "orders" / name)

    add("1.parquet", ("ann", "tea", 1.0), ("bob", "ink", 5.0), ("ann", None, 3.0))
    aggregates, functions = programs(tmp_path)
    # As a program of its own would: what it defines is pickled by value.
    exec(compile(aggregates, PAGE, "exec", dont_inherit=True), {"__name__": "__main__"})
    exec(compile(functions, PAGE, "exec", dont_inherit=True), {"__name__": "__main__"})
    assert written(tmp_path / "above") == []
    add("2.parquet", ("ann", "tea", 2.5), ("ann", "ink", 1.5), ("eve", "pen", 9.0))
    exec(compile(aggregates, PAGE, "exec", dont_inherit=True), {"__name__": "__main__"})
    exec(compile(functions, PAGE, "exec", dont_inherit=True), {"__name__": "__main__"})
    totals = {(row["customer"], row["n"]): row for row in written(tmp_path / "totals")}
    assert sorted(totals) == [("ann", 2), ("ann", 4), ("bob", 1), ("eve", 1)]
    ann = totals["ann", 4]
    assert (ann["total"], ann["average"], ann["largest"]) == (8.0, 2.0, [3.0, 2.5, 1.5])
    assert (ann["products"], ann["latest"], totals["ann", 2]["latest"]) == (2, "ink", "tea")
    above = [(row["customer"], row["amount"], row["average"]) for row in written(tmp_path / "above")]
    assert above == [("ann", 2.5, 2.0)]
