"""Spark's facilities for user code in a state worker, compared with those of its own Python workers."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.functions.environment import Adding, Contexts, Exiting, Lists, context_facts
from tests.spark.keyed_jobs import KeyedJob, in_order
from varvite.storage.errors import DidNotHappenError

pytestmark = pytest.mark.spark


def test_accumulators_count_each_committed_batch_once(spark: SparkSession, tmp_path: Path) -> None:
    """Found as a silent zero. Neither a killed worker, a failed function, nor a sink that gets a batch twice adds."""
    rows = spark.sparkContext.accumulator(0)
    values: Any = spark.sparkContext.accumulator([], Lists())
    job = KeyedJob(spark, tmp_path, function=Adding(rows, values, tmp_path))
    job.add(("a", 1), ("b", 2))
    job.add(("a", 13), ("b", 4), ("c", 5))
    job.add(("a", 6))
    (tmp_path / "failing").touch()
    with pytest.raises(Exception, match="13"):
        job.run()
    assert (rows.value, sorted(values.value)) == (2, [1, 2])
    (tmp_path / "failing").unlink()

    def failing(rows: DataFrame, batch: int) -> None:
        job.collect(rows, batch)
        if batch == 1:
            raise OSError("the sink is full")

    with pytest.raises(Exception, match="the sink is full"):
        job.run(failing)
    assert rows.value == 2, "the batch is committed, and is executed again"
    job.run()
    assert (rows.value, sorted(values.value)) == (6, [1, 2, 4, 5, 6, 13])
    assert job.rows() == in_order(job.expected)


@pytest.mark.parametrize("mine", ["of the user", "of a later query of the application"])
def test_a_function_finds_the_context_of_its_task_and_cannot_make_a_session(
    spark: SparkSession, tmp_path: Path, mine: str
) -> None:
    """Found as None, and as another Spark in each state worker: what PySpark does not find, it starts."""
    spark.sparkContext.setLocalProperty("mine", mine)
    try:
        expected = spark.sparkContext.parallelize([0], 1).map(lambda _: context_facts()).first()
        job = KeyedJob(spark, tmp_path, function=Contexts(), output="k string, ids string, batch string, facts string")
        for key in "ab", "cd", "ef":
            job.add(*((k, 1) for k in key))
        job.run()
    finally:
        spark.sparkContext.setLocalProperty("mine", None)  # type: ignore[arg-type]
    assert expected[4] == mine
    assert "CONTEXT_ONLY_VALID_ON_DRIVER" in expected[-1]
    read = [(batch, *row) for batch, rows in job.received for row in rows]
    assert len(read) == 6
    for batch, _, _, named, facts in read:
        assert (named, ast.literal_eval(facts)) == (str(batch), [expected, expected])
    ids = {ast.literal_eval(row[2]) for row in read}
    assert {partition for partition, _, _ in ids} <= {0, 1}
    assert len({stage for _, stage, _ in ids}) >= 3, "each batch has a context of its own"
    assert all(task >= 0 for _, _, task in ids)


def test_a_function_that_ends_its_process_is_told_of_with_exit_code_and_last_lines(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Found as an error of a connection, for exit codes and for signals such as that of a system without memory."""
    job = KeyedJob(spark, tmp_path, function=Exiting())
    job.add(("a", 1))
    job.add(("a", 13))
    with pytest.raises(DidNotHappenError, match="the state worker ended with exit code 3") as raised:
        job.run()
    assert {k: raised.value.context[k] for k in ("job", "operator", "batch")} == {
        "job": "job",
        "operator": "sums",
        "batch": 1,
    }
    assert "] the last line of a\n" in raised.value.__notes__[0]
