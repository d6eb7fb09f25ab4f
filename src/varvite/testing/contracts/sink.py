"""The claims about a `Sink` whose output is exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from varvite.changelog.commit.base_decision import RepeatedBatch, SinkCommit
from varvite.spark_integration.connectors.output.table import output_table
from varvite.storage.errors import FencedError, LineageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from varvite.spark_integration.connectors.sink import Sink


class SinkOutput(Protocol):
    """The place that the sinks of a test write to."""

    def open(self) -> Sink:
        """A sink as a new driver makes it, after `prepare` and `take_over`."""
        ...

    def values(self) -> list[int]:
        """Column `v`, a long, of all rows that a reader sees, in order."""
        ...


def commit(batch: int, seq: int, token: str = "") -> SinkCommit:
    """A commit; its token is made of its seq if none is given."""
    return SinkCommit(batch, seq, token or f"{seq:032x}")


class SinkContract:
    """The behavior of a sink that is exactly once. Override `output`; a fixture `spark` returns a Spark session."""

    @pytest.fixture
    def output(self) -> SinkOutput:
        """A new, empty place; the test's own."""
        raise NotImplementedError("override the fixture `output`: it returns a place that sinks write to")

    @staticmethod
    def rows(spark: SparkSession, *values: int) -> DataFrame:
        """Rows with these values in column `v`."""
        return spark.range(1).selectExpr(f"explode(array({', '.join(f'{v}L' for v in values)})) AS v").coalesce(1)

    @pytest.fixture(params=["write", "write_table"])
    def write(self, request: pytest.FixtureRequest, spark: SparkSession) -> Callable[..., None]:
        """Writes values in column `v` to a sink: `write(sink, commit, *values)`."""

        def write(sink: Sink, at: SinkCommit, *values: int) -> None:
            if request.param == "write":
                sink.write(self.rows(spark, *(values or (0,))).limit(len(values)), at)
            else:
                rows = pa.RecordBatch.from_pydict({"v": pa.array(values, pa.int64())})
                sink.write_table(output_table(StructType([StructField("v", LongType())]), [[rows]]), at)
            sink.complete(at)

        return write

    @staticmethod
    def is_written_again(write: Callable[..., None], sink: Sink, at: SinkCommit, *values: int) -> bool:
        """Write a batch that was executed again; False if the sink refuses such batches, which is an error."""
        if sink.repeated_batch is RepeatedBatch.REFUSED:
            with pytest.raises(LineageError):
                write(sink, at, *values)
            sink.close()
            return False
        write(sink, at, *values)
        return True

    def test_batches_add_up_and_the_last_one_is_told(self, write: Callable[..., None], output: SinkOutput) -> None:
        sink = output.open()
        assert sink.last_committed() is None
        write(sink, commit(0, 2), 1, 2)
        write(sink, commit(1, 3), 3)
        assert output.values() == [1, 2, 3]
        assert sink.last_committed() == output.open().last_committed() == commit(1, 3)

    def test_the_same_call_again_changes_nothing(self, write: Callable[..., None], output: SinkOutput) -> None:
        """Its reply was lost."""
        sink = output.open()
        for _ in range(2):
            write(sink, commit(0, 2), 1, 2)
        write(output.open(), commit(0, 2), 1, 2)
        assert output.values() == [1, 2]

    def test_a_batch_that_is_executed_again_replaces_its_rows_or_is_refused(
        self, write: Callable[..., None], output: SinkOutput
    ) -> None:
        write(output.open(), commit(0, 2), 1)
        write(output.open(), commit(1, 3), 2, 3)
        again = output.open()
        if self.is_written_again(write, again, commit(1, 5), 4):
            write(again, commit(2, 6), 5)
            assert output.values() == [1, 4, 5]
        else:
            assert output.open().last_committed() == commit(1, 3)
            write(output.open(), commit(2, 6), 5)
            assert output.values() == [1, 2, 3, 5]
        assert output.open().last_committed() == commit(2, 6)

    def test_a_driver_that_was_replaced_is_refused(self, write: Callable[..., None], output: SinkOutput) -> None:
        older = output.open()
        write(older, commit(0, 2), 1)
        newer = output.open()
        write(newer, commit(1, 4), 2)
        with pytest.raises(FencedError):
            write(older, commit(1, 3), 3)
        write(newer, commit(2, 5), 4)
        assert output.values() == [1, 2, 4]
        assert output.open().last_committed() == commit(2, 5)

    def test_a_newer_driver_refuses_the_older_one_by_a_batch_without_rows(
        self, write: Callable[..., None], output: SinkOutput
    ) -> None:
        older = output.open()
        write(older, commit(0, 2), 1)
        write(output.open(), commit(1, 4))
        with pytest.raises(FencedError):
            write(older, commit(1, 3), 3)
        assert output.values() == [1]

    def test_a_batch_without_rows_carries_its_commit(
        self, spark: SparkSession, write: Callable[..., None], output: SinkOutput
    ) -> None:
        sink = output.open()
        write(sink, commit(0, 2), 1)
        write(sink, commit(1, 3))
        sink.write(self.rows(spark, 1).where("v > 1"), commit(2, 4))  # whose plan does not say that it has none
        sink.complete(commit(2, 4))
        assert output.values() == [1]
        assert output.open().last_committed() == commit(2, 4)

    def test_after_a_restore_rows_of_later_batches_go(self, write: Callable[..., None], output: SinkOutput) -> None:
        sink = output.open()
        for batch in range(4):
            write(sink, commit(batch, batch + 2), batch)
        is_written = self.is_written_again(write, output.open(), commit(1, 8), 10)
        assert output.values() == ([0, 10] if is_written else [0, 1, 2, 3])

    def test_another_commit_of_the_same_seq_replaces(self, write: Callable[..., None], output: SinkOutput) -> None:
        """Storage that was restored from a backup uses a seq again, with another token."""
        write(output.open(), commit(0, 2), 1)
        write(output.open(), commit(1, 3, "a" * 32), 2)
        if self.is_written_again(write, output.open(), commit(1, 3, "b" * 32), 3):
            assert output.values() == [1, 3]
            assert output.open().last_committed() == commit(1, 3, "b" * 32)
        else:
            assert output.values() == [1, 2]

    def test_rows_that_are_not_complete_are_not_there(self, spark: SparkSession, output: SinkOutput) -> None:
        """A driver that dies before its transaction ends; a sink that ends it in `write` has them."""
        sink = output.open()
        sink.write(self.rows(spark, 1), commit(0, 2))
        rows = output.values()
        again = output.open()
        assert (again.last_committed() == commit(0, 2)) == (rows == [1])
        if not rows:
            again.write(self.rows(spark, 2), commit(0, 4))
            again.complete(commit(0, 4))
            assert output.values() == [2]

    def test_a_sink_that_is_closed_can_be_opened_again(self, write: Callable[..., None], output: SinkOutput) -> None:
        sink = output.open()
        write(sink, commit(0, 2), 1)
        for _ in range(2):
            sink.close()
        write(output.open(), commit(1, 3), 2)
        assert output.values() == [1, 2]
