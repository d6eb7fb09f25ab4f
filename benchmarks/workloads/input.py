"""The input of the workloads: sizes, and one Parquet file per batch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

INPUT = "key string, category long, price double"
CATEGORIES = 20
pc: Any = pyarrow.compute


@dataclass(frozen=True)
class Case:
    """One size of a workload: every batch has `rows` rows over `keys` keys."""

    rows: int
    keys: int
    state_keys: int = 0
    """Keys put into the state by a first batch that is not measured; 0: none."""

    def part(self, of: int) -> Case:
        """The same in small."""
        return Case(max(1, self.rows // of), max(1, self.keys // of), self.state_keys // of)


def write_input(directory: Path, case: Case, batches: int, seed: int = 7) -> list[Path]:
    """One Parquet file per batch, file names in batch order.

    The rows of one key have different categories, all of them if there are enough rows.
    """
    directory.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    keys = pa.array([f"key-{n:09d}" for n in range(max(case.keys, case.state_keys))])
    first = [np.arange(case.state_keys)] if case.state_keys else []
    rows = np.arange(case.rows)
    written: list[Path] = []
    for number, numbers in enumerate([*first, *[rows] * batches]):
        written.append(directory / f"batch-{number:05d}.parquet")
        _write(written[-1], keys, numbers, case.keys if numbers is rows else case.state_keys, rng)
    return written


def _write(path: Path, keys: pa.Array, rows: np.ndarray, count: int, rng: np.random.Generator) -> None:
    """`rows` are numbers from 0, over the first `count` keys in turn, written in random order."""
    rows = rng.permutation(rows)
    key, nth = rows % count, rows // count
    category = (nth + rng.integers(CATEGORIES, size=count)[key]) % CATEGORIES
    columns = {"key": keys.take(pa.array(key)), "category": category, "price": rng.random(len(rows))}
    write_whole(path, pa.table(columns))


def write_keys(path: Path, numbers: np.ndarray, rng: np.random.Generator) -> None:
    """One file with a row for each number, whose key it makes; quick for millions."""
    digits = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 9, "0")
    keys = pc.binary_join_element_wise("key-", digits, "")
    price = rng.integers(1_000_000, size=len(numbers)) / 100
    columns = {"key": keys, "category": numbers % CATEGORIES, "price": price}
    write_whole(path, pa.table(columns))


def write_whole(path: Path, rows: pa.Table, compression: str = "snappy") -> None:
    """One file, which a stream over its directory finds when it is complete."""
    written = path.with_name(f"_{path.name}")  # Spark does not look at such a name
    pq.write_table(rows, written, compression=compression)
    written.rename(path)


def source(spark: SparkSession, directory: Path) -> DataFrame:
    """The files as a stream, one per batch."""
    reader = spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(directory))
