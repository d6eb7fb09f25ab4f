"""Spark's checkpoint location, as a real query writes it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from varvite.spark_integration.connectors.spark_progress import SparkCheckpoint
from varvite.storage.errors import CorruptDataError, InvalidRequestError, MissingObjectError

pytestmark = pytest.mark.spark


def run(stream: Any, location: Path, function: Any = None) -> str:
    """Execute all batches of the stream; the query's id."""
    writer = stream.read().writeStream.foreachBatch(function or (lambda rows, batch: None))
    query = writer.option("checkpointLocation", str(location)).trigger(availableNow=True).start()
    query.awaitTermination()
    return query.id


def test_a_location_without_a_query_is_empty(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint = SparkCheckpoint(spark, str(tmp_path / "none"))
    assert checkpoint.known_query_id() is None
    assert checkpoint.latest_committed_batch() is None
    assert checkpoint.latest_planned_batch() is None
    with pytest.raises(MissingObjectError):
        checkpoint.query_id()
    with pytest.raises(MissingObjectError):
        checkpoint.source_hash(0)


def test_progress_of_a_real_query(spark: SparkSession, tmp_path: Path, rows_of_k: Any) -> None:
    query_id = run(rows_of_k, tmp_path / "c")
    checkpoint = SparkCheckpoint(spark, str(tmp_path / "c"))
    assert checkpoint.query_id() == query_id
    assert (checkpoint.latest_planned_batch(), checkpoint.latest_committed_batch()) == (2, 2)
    hashes = [checkpoint.source_hash(batch) for batch in range(3)]
    assert len(set(hashes)) == 3
    progress = checkpoint.progress(2)
    assert (progress.query_id, progress.source_hash, progress.previous_source_hash) == (query_id, hashes[2], hashes[1])
    assert checkpoint.progress(0).previous_source_hash is None


def test_offsets_are_there_while_the_batch_is_executed(spark: SparkSession, tmp_path: Path, rows_of_k: Any) -> None:
    checkpoint = SparkCheckpoint(spark, str(tmp_path / "c"))
    seen: list[tuple[str, int | None]] = []
    run(
        rows_of_k,
        tmp_path / "c",
        lambda rows, batch: seen.append((checkpoint.source_hash(batch), checkpoint.latest_committed_batch())),
    )
    assert seen == [(checkpoint.source_hash(0), None), (checkpoint.source_hash(1), 0), (checkpoint.source_hash(2), 1)]


def test_the_same_offsets_planned_by_another_query_have_the_same_hash(
    spark: SparkSession, tmp_path: Path, rows_of_k: Any
) -> None:
    run(rows_of_k, tmp_path / "one")
    run(rows_of_k, tmp_path / "two")
    one, two = (SparkCheckpoint(spark, str(tmp_path / name)) for name in ("one", "two"))
    assert one.source_hash(1) == two.source_hash(1)
    assert one.query_id() != two.query_id()
    text = [(tmp_path / name / "offsets" / "1").read_text() for name in ("one", "two")]
    assert text[0] != text[1]


@pytest.mark.parametrize("name", ["metadata", "offsets/1"])
@pytest.mark.parametrize("with_checksum", [True, False], ids=["crc", "no-crc"])
def test_a_torn_file_is_corrupt(
    spark: SparkSession, tmp_path: Path, rows_of_k: Any, name: str, with_checksum: bool
) -> None:
    """Hadoop's local file system finds it by its own checksum file, others only by what is left."""
    run(rows_of_k, tmp_path / "c")
    file = tmp_path / "c" / name
    file.write_bytes(file.read_bytes()[:8])
    if not with_checksum:
        (file.parent / f".{file.name}.crc").unlink()
    with pytest.raises(CorruptDataError, match=file.name):
        SparkCheckpoint(spark, str(tmp_path / "c")).progress(1)


def test_a_missing_previous_offset_is_not_an_error_of_progress(
    spark: SparkSession, tmp_path: Path, rows_of_k: Any
) -> None:
    run(rows_of_k, tmp_path / "c")
    (tmp_path / "c" / "offsets" / "0").unlink()
    assert SparkCheckpoint(spark, str(tmp_path / "c")).progress(1).previous_source_hash is None


def test_a_location_of_an_unknown_file_system_is_refused(spark: SparkSession) -> None:
    with pytest.raises(InvalidRequestError, match="nosuch"):
        SparkCheckpoint(spark, "nosuch://bucket/c")


def test_reading_the_hash_takes_a_few_milliseconds(spark: SparkSession, tmp_path: Path, rows_of_k: Any) -> None:
    """It is on the path of every batch; the bound is far above the 2 ms that were measured."""
    run(rows_of_k, tmp_path / "c")
    checkpoint = SparkCheckpoint(spark, str(tmp_path / "c"))
    took = []
    for _ in range(9):
        started = time.monotonic()
        checkpoint.source_hash(2)
        took.append(time.monotonic() - started)
    assert sorted(took)[4] < 0.1
