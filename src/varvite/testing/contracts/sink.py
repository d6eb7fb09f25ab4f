"""The claims about a `Sink` whose output is exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pytest

from varvite.changelog.commit.base_decision import SinkCommit
from varvite.storage.errors import FencedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from varvite.spark_integration.connectors.sink import Sink


class SinkOutput(Protocol):
    """The place that the sinks of a test write to."""

    def open(self) -> Sink:
        """A sink as a new driver makes it, prepared."""
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

    def test_batches_add_up_and_the_last_one_is_told(self, spark: SparkSession, output: SinkOutput) -> None:
        sink = output.open()
        assert sink.last_committed() is None
        sink.write(self.rows(spark, 1, 2), commit(0, 2))
        sink.write(self.rows(spark, 3), commit(1, 3))
        assert output.values() == [1, 2, 3]
        assert sink.last_committed() == output.open().last_committed() == commit(1, 3)

    def test_the_same_call_again_changes_nothing(self, spark: SparkSession, output: SinkOutput) -> None:
        """Its reply was lost."""
        sink = output.open()
        for _ in range(2):
            sink.write(self.rows(spark, 1, 2), commit(0, 2))
        output.open().write(self.rows(spark, 1, 2), commit(0, 2))
        assert output.values() == [1, 2]

    def test_a_batch_that_is_executed_again_replaces_its_rows(self, spark: SparkSession, output: SinkOutput) -> None:
        output.open().write(self.rows(spark, 1), commit(0, 2))
        output.open().write(self.rows(spark, 2, 3), commit(1, 3))
        again = output.open()
        again.write(self.rows(spark, 4), commit(1, 5))
        again.write(self.rows(spark, 5), commit(2, 6))
        assert output.values() == [1, 4, 5]
        assert output.open().last_committed() == commit(2, 6)

    def test_a_driver_that_was_replaced_is_refused(self, spark: SparkSession, output: SinkOutput) -> None:
        older = output.open()
        older.write(self.rows(spark, 1), commit(0, 2))
        newer = output.open()
        newer.write(self.rows(spark, 2), commit(1, 4))
        with pytest.raises(FencedError):
            older.write(self.rows(spark, 3), commit(1, 3))
        newer.write(self.rows(spark, 4), commit(2, 5))
        assert output.values() == [1, 2, 4]
        assert output.open().last_committed() == commit(2, 5)

    def test_a_newer_driver_refuses_the_older_one_by_a_batch_without_rows(
        self, spark: SparkSession, output: SinkOutput
    ) -> None:
        older = output.open()
        older.write(self.rows(spark, 1), commit(0, 2))
        output.open().write(self.rows(spark, 2).limit(0), commit(1, 4))
        with pytest.raises(FencedError):
            older.write(self.rows(spark, 3), commit(1, 3))
        assert output.values() == [1]

    def test_a_batch_without_rows_carries_its_commit(self, spark: SparkSession, output: SinkOutput) -> None:
        sink = output.open()
        sink.write(self.rows(spark, 1), commit(0, 2))
        sink.write(self.rows(spark, 1).limit(0), commit(1, 3))
        sink.write(self.rows(spark, 1).where("v > 1"), commit(2, 4))
        assert output.values() == [1]
        assert output.open().last_committed() == commit(2, 4)

    def test_after_a_restore_rows_of_later_batches_go(self, spark: SparkSession, output: SinkOutput) -> None:
        sink = output.open()
        for batch in range(4):
            sink.write(self.rows(spark, batch), commit(batch, batch + 2))
        output.open().write(self.rows(spark, 10), commit(1, 8))
        assert output.values() == [0, 10]

    def test_another_commit_of_the_same_seq_replaces(self, spark: SparkSession, output: SinkOutput) -> None:
        """Storage that was restored from a backup uses a seq again, with another token."""
        output.open().write(self.rows(spark, 1), commit(0, 2))
        output.open().write(self.rows(spark, 2), commit(1, 3, "a" * 32))
        output.open().write(self.rows(spark, 3), commit(1, 3, "b" * 32))
        assert output.values() == [1, 3]
        assert output.open().last_committed() == commit(1, 3, "b" * 32)
