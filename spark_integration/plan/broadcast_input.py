"""`BroadcastInput`: distributes the rows of a stream and of a broadcast stream to the partitions.

Both are one input, side by side. Each broadcast row is copied to all partitions within the same shuffle: the input is
read once, no row passes through the driver, and none has to fit into memory. Then every partition is sorted by the
rows' places in the input, the broadcast rows first. So all partitions read the same broadcast rows in the same order,
before their own rows.

Places follow the order in which Spark reads the sources. Spark may execute a part of the input again during a batch; if
it then has another order or other rows, partitions may read different broadcast rows. So each partition computes a
digest of them, and the driver compares the digests and executes the batch again if they differ (I3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that every PySpark program uses
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from varvite.spark_integration.elements.arrow_rows import quoted
from varvite.spark_integration.elements.side_by_side import INPUT_COLUMN, rows_column
from varvite.spark_integration.messages.protocol import KEY_COLUMN, KEY_GROUP_COLUMN

OWN: Final = 0
"""Number of the stream that is divided over the partitions."""
BROADCAST: Final = 1
"""Number of the broadcast stream."""
_PLACE_COLUMN: Final = "__varvite_place"
"""int64, before the pump only: the row's place in the input; negative in broadcast rows."""
_BEFORE_ALL: Final = -(1 << 62)
"""Added to the places of broadcast rows, which sorts them first if an input has less than 2**29 partitions."""


class Placement(Protocol):
    """Chooses the executors of a shuffle's partitions; the driver's `Anchor` is one."""

    def partitioned(self, rows: DataFrame, partition: str) -> DataFrame:
        """Shuffle the rows by an expression that gives each its partition, never null."""
        ...


@dataclass(frozen=True, slots=True)
class BroadcastInput:
    """The input of an operator that reads a broadcast stream beside another one."""

    keyed: bool
    """The other stream has keys; else each row goes to the partition of its hash."""
    rows: StructType
    """Columns of the other stream's rows."""

    def distributed(
        self,
        rows: DataFrame,
        parallelism: int,
        max_parallelism: int,
        placement: Placement | None = None,
        in_order: str | None = None,
    ) -> DataFrame:
        """The rows with their key group, each in its shuffle partition, broadcast rows first.

        Rows that are not broadcast are in the order of the column `in_order`; None: in that of the input.
        """
        is_broadcast = f"{INPUT_COLUMN} = {BROADCAST}"
        place = f"IF({is_broadcast}, {_BEFORE_ALL}L, 0L) + monotonically_increasing_id() AS {_PLACE_COLUMN}"
        groups = f"transform(sequence(0L, {parallelism - 1}L), p -> {first_group('p', parallelism, max_parallelism)})"
        group = self._key_group(parallelism, max_parallelism)
        # Outer: else Spark adds a filter for empty arrays, which computes them twice.
        key_group = f"explode_outer(IF({is_broadcast}, {groups}, array({group}))) AS {KEY_GROUP_COLUMN}"
        copied = rows.selectExpr("*", place).selectExpr("*", key_group)
        divided = to_partitions(copied, parallelism, max_parallelism, placement)
        order = [_PLACE_COLUMN]
        if in_order is not None:
            order = [f"IF({is_broadcast}, NULL, {quoted(in_order)})", _PLACE_COLUMN]
        return divided.sortWithinPartitions(*map(F.expr, order)).drop(_PLACE_COLUMN)

    def group_of(self, parallelism: int, max_parallelism: int) -> str:
        """The key group of each row, null if it is a broadcast row, as a named expression."""
        group = self._key_group(parallelism, max_parallelism)
        return f"IF({INPUT_COLUMN} = {BROADCAST}, NULL, {group}) AS {KEY_GROUP_COLUMN}"

    def _key_group(self, parallelism: int, max_parallelism: int) -> str:
        """Key group of a row that is not broadcast, as an expression."""
        if self.keyed:
            return f"CAST(pmod(xxhash64({KEY_COLUMN}), {max_parallelism}L) AS INT)"
        # By the row's content: round-robin would lose and duplicate rows when a part is computed again.
        content = quoted(rows_column(OWN))
        if _has_no_hash(self.rows):
            content = f"CAST({content} AS STRING)"
        return first_group(f"pmod(xxhash64({content}), {parallelism}L)", parallelism, max_parallelism)


def first_group(partition: str, parallelism: int, max_parallelism: int) -> str:
    """The first key group of a partition, as an expression."""
    return f"CAST(({partition} * {max_parallelism}L + {parallelism - 1}L) DIV {parallelism}L AS INT)"


def _has_no_hash(kind: DataType) -> bool:
    """True if Spark's hash functions refuse values of that type."""
    if isinstance(kind, StructType):
        return any(_has_no_hash(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return _has_no_hash(kind.elementType)
    return isinstance(kind, (MapType, VariantType))


def to_partitions(rows: DataFrame, parallelism: int, max_parallelism: int, placement: Placement | None) -> DataFrame:
    """Shuffle the rows, each to the partition that owns its key group; a placement also chooses the executor."""
    partition = f"CAST({KEY_GROUP_COLUMN} * {parallelism}L DIV {max_parallelism}L AS INT)"
    if placement is None:
        return rows.repartitionById(parallelism, F.expr(partition))
    return placement.partitioned(rows, partition)
