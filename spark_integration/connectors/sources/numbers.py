"""`NumberSequenceSource`: numbers in a row, over Spark's source `rate-micro-batch`, whose first batch has them all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812  the name that every PySpark program uses

from varvite.changelog.types.factory import Types, as_type
from varvite.spark_integration.connectors.sources.stream_source import VALUE_COLUMN, StreamSource
from varvite.spark_integration.elements.types import TypedElements
from varvite.spark_integration.plan.operator import elements_of
from varvite.spark_integration.plan.transformations import DataFrameSource
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from varvite.changelog.types.contract import TypeInformation
    from varvite.spark_integration.plan.transformations import Transformation

_LARGEST: Final = (1 << 63) - 1


class NumberSequenceSource(StreamSource):
    """The numbers from `start` to `end`, both included; with a parallelism of 1 in their order.

    A job that goes on with its state after the end gets none of them again.

    Args:
        start: The first, a LONG.
        end: The last.

    Raises:
        InvalidRequestError: `end` is below `start`, or they are no such numbers.
    """

    def __init__(self, start: int, end: int) -> None:
        kind = as_type(Types.LONG())
        self._start, end = kind.freeze(start), kind.freeze(end)
        self._count = end - start + 1
        if not 0 < self._count <= _LARGEST:
            raise InvalidRequestError(
                f"NumberSequenceSource({start}, {end}) has {self._count} numbers; give 1 to 2^63 - 1 of them"
            )

    def transformation(
        self, spark: SparkSession, parallelism: int, type_info: TypeInformation | None
    ) -> Transformation:
        reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", self._count)
        numbers = reader.option("numPartitions", min(parallelism, self._count)).load()
        # A later run begins behind the last one.
        numbers = numbers.where(F.col(VALUE_COLUMN) < self._count)
        numbers = numbers.select((F.col(VALUE_COLUMN) + self._start).alias(VALUE_COLUMN))
        elements = TypedElements(as_type(Types.LONG())) if type_info is None else elements_of(type_info)
        if elements.schema.names != [VALUE_COLUMN] or elements.schema[VALUE_COLUMN].dataType.typeName() != "long":
            raise InvalidRequestError(f"the elements of NumberSequenceSource are of Types.LONG(), not of {type_info!r}")
        return DataFrameSource(elements=elements, dataframe=numbers, event_time=None, is_bounded=True)
