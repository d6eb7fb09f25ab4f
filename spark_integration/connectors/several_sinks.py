"""Several sinks of a job as one.

Each batch is written to those first that may write it again at any time, then to those that replace its rows, and last
to those that cannot, which share one transaction. A driver that dies in between writes the batch again, and finds rows
only where that does no harm. If the last ones hold a commit, all do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from varvite.changelog.commit.base_decision import RepeatedBatch
from varvite.spark_integration.connectors.output.table import table_of_output, table_of_stream
from varvite.spark_integration.connectors.sink import (
    JobSink,
    Sink,
    bind,
    close,
    complete_in,
    last_committed_of,
    write_to,
)
from varvite.spark_integration.elements.side_by_side import rows_column, rows_of_output, rows_of_stream
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from varvite.changelog.commit.base_decision import SinkCommit
    from varvite.spark_integration.plan.job import JobPlan

_ORDER: Final = (RepeatedBatch.DOUBLED, RepeatedBatch.REPLACED, RepeatedBatch.REFUSED)


class SeveralSinks(JobSink):
    """Writes each batch to several sinks, in the order that the module says, and else in their own."""

    def __init__(self, sinks: Iterable[Sink]) -> None:
        self._keep((None, sink) for sink in sinks)

    def _keep(self, outputs: Iterable[tuple[int | None, Sink]]) -> None:
        """Keep the sinks of outputs, each of several ones by itself."""
        flat = ((output, each) for output, sink in outputs for each in _each(sink))
        self._outputs = in_order(flat)
        self.brings_rows_to_driver = all(sink.brings_rows_to_driver for sink in self.sinks)

    @property
    def sinks(self) -> list[Sink]:
        """The sinks, in the order of writing."""
        return [sink for _, sink in self._outputs]

    def bind(self, spark: SparkSession, plan: JobPlan) -> None:
        for sink in self.sinks:
            bind(sink, spark, plan)

    def check_columns(self, schema: StructType) -> None:
        for sink in self.sinks:
            sink.check_columns(schema)

    @property
    def repeated_batch(self) -> RepeatedBatch:
        return self._outputs[-1][1].repeated_batch

    def prepare(self, job_id: str) -> None:
        share_transactions(self.sinks)
        for sink in self.sinks:
            sink.prepare(job_id)

    def take_over(self) -> None:
        for sink in self.sinks:
            sink.take_over()

    def write(self, df: DataFrame, commit: SinkCommit) -> None:
        self._write(df, commit)

    def write_table(self, table: pa.Table, commit: SinkCommit) -> None:
        self._write(table, commit)

    def complete(self, commit: SinkCommit) -> None:
        for sink in self.sinks:
            complete_in(sink, commit)

    def last_committed(self) -> SinkCommit | None:
        return held_by_all(self.sinks)

    def close(self) -> None:
        for sink in self.sinks:
            close(sink)

    def _write(self, rows: DataFrame | pa.Table, commit: SinkCommit) -> None:
        for output, sink in self._outputs:
            write_to(sink, self._rows_of(rows, output), commit)

    def _rows_of(self, rows: DataFrame | pa.Table, output: int | None) -> DataFrame | pa.Table:
        del output
        return rows


class OutputSinks(SeveralSinks):
    """Writes the outputs of an operator, each to sinks of its own."""

    def __init__(self, sinks: Iterable[tuple[int | None, Sink]]) -> None:
        """Keep the sinks.

        Args:
            sinks: Each with the number of its side output; None for the main output.
        """
        self._keep(sinks)

    def _rows_of(self, rows: DataFrame | pa.Table, output: int | None) -> DataFrame | pa.Table:
        return table_of_output(rows, output) if isinstance(rows, pa.Table) else rows_of_output(rows, output)


class StreamSinks(SeveralSinks):
    """Writes several streams that have no operator in common, each to sinks of its own."""

    def __init__(self, sinks: Iterable[tuple[int, Sink]]) -> None:
        """Keep the sinks, each with the number of its stream."""
        self._keep(sinks)

    def check_columns(self, schema: StructType) -> None:
        for number, sink in self._outputs:
            columns: Any = schema[rows_column(number or 0)].dataType
            sink.check_columns(columns)

    def _rows_of(self, rows: DataFrame | pa.Table, output: int | None) -> DataFrame | pa.Table:
        number = output or 0
        return table_of_stream(rows, number) if isinstance(rows, pa.Table) else rows_of_stream(rows, number)


def _each(sink: Sink) -> list[Sink]:
    return sink.sinks if isinstance(sink, SeveralSinks) else [sink]


def in_order(outputs: Iterable[tuple[int | None, Sink]]) -> list[tuple[int | None, Sink]]:
    """The outputs in the order of writing."""
    return sorted(outputs, key=lambda pair: _ORDER.index(pair[1].repeated_batch))


def share_transactions(sinks: Sequence[Sink]) -> None:
    """Let sinks share what transactions they can. Raises `InvalidRequestError` if two refuse repeated batches."""
    of_transactions: list[Sink] = []
    for sink in sinks:
        is_shared = any(sink.share_transaction(earlier) for earlier in of_transactions)
        if not is_shared and sink.repeated_batch is RepeatedBatch.REFUSED:
            of_transactions.append(sink)
    if len(of_transactions) > 1:
        names = " and ".join(type(sink).__qualname__ for sink in of_transactions)
        raise InvalidRequestError(
            f"{names} would commit the same batch one after the other, and a driver that dies in between could not "
            "take rows back: let Kafka sinks of one cluster have the same servers and options, so that they share a "
            "transaction, or give all but one delivery='at-least-once' (Kafka) or allow_repeats (tables)"
        )


def held_by_all(sinks: Sequence[Sink]) -> SinkCommit | None:
    """The last commit whose output is complete in all sinks that know; None if they do not hold the same.

    Those that are written last answer for all; those that know nothing were written before any other.
    """
    kinds = [sink.repeated_batch for sink in sinks]
    kind = RepeatedBatch.REFUSED if RepeatedBatch.REFUSED in kinds else RepeatedBatch.REPLACED
    commits = {last_committed_of(sink) for sink in sinks if sink.repeated_batch is kind}
    return commits.pop() if len(commits) == 1 else None
