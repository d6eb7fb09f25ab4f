"""The job of docs/windows.md on real Spark, over restarts."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.doc_blocks import ROOT, blocks_of
from tests.spark.test_job import kill_state_workers

pytestmark = pytest.mark.spark


def test_the_job_of_the_documentation_tells_mean_delays(spark: SparkSession, tmp_path: Path) -> None:
    blocks = blocks_of("docs/windows.md", (ROOT / "docs" / "windows.md").read_text())
    text = next(block.text for block in blocks if block.tags == ("run",))
    text = text.replace("/data/", f"{tmp_path}/").replace("file:///var/lib/varve", f"file://{tmp_path}/varve")
    text = text.replace('processingTime="10 seconds"', "availableNow=True")
    (tmp_path / "flights").mkdir()
    days = [[(0, 5, 10), (0, 25, 20)], [(3, 0, 99)], []]
    for number, flights in enumerate(days):
        if flights:
            departed = [datetime(2013, 1, 1, hour, minute, tzinfo=UTC) for hour, minute, _ in flights]
            delays = pa.array([delay for _, _, delay in flights], pa.int32())
            table = pa.table({"origin": ["IAH"] * len(flights), "departed": departed, "delay": delays})
            pq.write_table(table, tmp_path / "flights" / f"{number}.parquet")
        time.sleep(1.1)  # a heartbeat is due every second
        names: dict[str, Any] = {}
        exec(compile(text, "docs/windows.md", "exec"), names)
        names["query"].awaitTermination()
        kill_state_workers(spark)
    output = ds.dataset(tmp_path / "delays", format="parquet", partitioning="hive", ignore_prefixes=["_", "."])
    rows = sorted((row["origin"], row["end_ms"], row["mean"]) for row in output.to_table().to_pylist())
    midnight = int(datetime(2013, 1, 1, tzinfo=UTC).timestamp() * 1000)
    means = [(10, 10), (20, 10), (30, 15), (40, 15), (50, 15), (60, 15), (70, 20), (80, 20)]
    assert rows == [("IAH", midnight + minutes * 60_000, mean) for minutes, mean in means]
