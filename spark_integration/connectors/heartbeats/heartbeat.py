"""Heartbeats: batches that Spark runs although the job's input is quiet, so that timers fire.

Spark starts a micro-batch only when a source has new rows. So the input is united with a `rate` source, which has some
every second. Its rows carry only a flag and are dropped before the first operator. The batch is then like any other: it
is executed, committed and acknowledged (`docs/guide/timers.md`).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812  the name that every PySpark program uses

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HEARTBEAT_COLUMN: Final = "__varvite_heartbeat"
"""boolean: the row is a heartbeat."""


def with_heartbeat(df: DataFrame) -> DataFrame:
    """The streaming input, with the flag and the heartbeats' rows."""
    rate = df.sparkSession.readStream.format("rate").option("rowsPerSecond", 1).option("numPartitions", 1).load()
    empty = [F.lit(None).cast(field.dataType).alias(field.name) for field in df.schema.fields]
    # Not a literal true: from that the optimizer could conclude that a batch of heartbeats alone has no rows.
    beats = rate.select(*empty, (F.col("value") >= 0).alias(HEARTBEAT_COLUMN))
    return df.withColumn(HEARTBEAT_COLUMN, F.lit(False)).union(beats)


class InputRows:
    """The rows of the user's input in a batch."""

    def __init__(self, rows: DataFrame, *, has_heartbeats: bool) -> None:
        """`rows` are those of the batch, which may have heartbeats among them."""
        self._rows = rows
        self._has_heartbeats = has_heartbeats

    @cached_property
    def frame(self) -> DataFrame:
        """The rows, without heartbeats. Spark plans that, so a batch that has no others does not ask for it."""
        rows = self._rows
        return rows.where(~F.col(HEARTBEAT_COLUMN)).drop(HEARTBEAT_COLUMN) if self._has_heartbeats else rows
