"""Side outputs: several outputs of one execution, printed, collected and written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.functions.connected import LATE, ODD, Sorted
from tests.spark.functions.stream import Unlucky
from tests.tidy.pages.doc_blocks import ROOT, blocks_of
from varvite.common import Types
from varvite.datastream import DataStream, StreamExecutionEnvironment
from varvite.storage.errors import UserFunctionError

pytestmark = pytest.mark.spark


@pytest.fixture
def sorted_numbers(spark: SparkSession) -> DataStream:
    env = StreamExecutionEnvironment.get_execution_environment(spark).set_parallelism(1)
    numbers = env.from_collection([1, 2, 3, 6], Types.LONG())
    return numbers.key_by(lambda x: x % 2, Types.LONG()).process(Sorted(), Types.LONG())


def test_all_outputs_are_printed_by_one_job(sorted_numbers: DataStream, capsys: pytest.CaptureFixture[str]) -> None:
    sorted_numbers.map(lambda x: x * 10).print("main")
    late = sorted_numbers.get_side_output(LATE).map(str.upper, Types.STRING())
    late.print("late")
    late.print("again")
    sorted_numbers.get_side_output(ODD).print("odd")
    sorted_numbers.get_execution_environment().execute("sorted")
    assert capsys.readouterr().out.splitlines() == [
        *["main> 20", "main> 20", "main> 60", "main> 60"],
        *["late> LATE 3", "late> LATE 6", "again> LATE 3", "again> LATE 6"],
        *["odd> (1, 1)", "odd> (3, 1)"],
    ]


def test_an_output_may_be_read_alone(sorted_numbers: DataStream) -> None:
    for stream, expected in (
        (sorted_numbers.get_side_output(ODD), [(1, 1), (3, 1)]),
        (sorted_numbers, [2, 2, 6, 6]),
    ):
        with stream.execute_and_collect("alone") as elements:
            assert list(elements) == expected
    unlucky = sorted_numbers.get_side_output(ODD).map(lambda pair: pair[0] + 10).map(Unlucky()).name("careful")
    with (
        pytest.raises(UserFunctionError, match="13 is unlucky in step careful, at element 13"),
        unlucky.execute_and_collect("unlucky") as elements,
    ):
        list(elements)


def test_files_and_a_function_get_their_own_columns(
    sorted_numbers: DataStream, spark: SparkSession, tmp_path: Path
) -> None:
    found: list[Any] = []

    def keep(rows: DataFrame, batch: int) -> None:
        found.extend((batch, *row) for row in rows.collect())

    late = sorted_numbers.get_side_output(LATE)
    writer = sorted_numbers.format("parquet").side_output(late, keep).query_name("files")
    writer.option("execution.checkpointing.dir", str(tmp_path / "state")).option("materializer.mode", "off")
    query = writer.option("checkpointLocation", str(tmp_path / "spark")).start(str(tmp_path / "numbers"))
    query.awaitTermination()
    assert found == [(0, "late 3"), (0, "late 6")]
    rows = spark.read.parquet(str(tmp_path / "numbers"))
    assert rows.columns == ["value", "batch_id"]
    assert sorted(row.value for row in rows.collect()) == [2, 2, 6, 6]


def test_the_program_of_the_page_runs(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert SparkSession.getActiveSession() is spark, "the program finds the session by itself"
    page = blocks_of("docs/guide/side-outputs.md", (ROOT / "docs" / "guide" / "side-outputs.md").read_text())
    (program,) = [block for block in page if "run" in block.tags]
    exec(compile(program.text, program.name, "exec", dont_inherit=True), {"__name__": "page"})
    assert capsys.readouterr().out == "".join(block.text for block in page if block.language == "text")
