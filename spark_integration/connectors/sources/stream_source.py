"""The contract of a `StreamSource`, which `from_source` takes: a streaming DataFrame, and elements of its rows.

A source that ends is read in one batch, with Spark's trigger `availableNow`; so all sources of a job end, or none does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final

from varvite.changelog.types.factory import Types, as_type
from varvite.spark_integration.elements.types import TypedElements
from varvite.spark_integration.functions.stateless import FlatMapFunction
from varvite.spark_integration.plan.operator import elements_of
from varvite.spark_integration.plan.stateless import step
from varvite.spark_integration.plan.transformations import DataFrameSource, EventTime
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

    from varvite.changelog.types.contract import TypeInformation
    from varvite.spark_integration.elements.formats.schemas import DeserializationSchema
    from varvite.spark_integration.plan.transformations import Transformation

VALUE_COLUMN: Final = "value"
"""The bytes of a record."""
TIME_COLUMN: Final = "__varvite_record_time"
"""int64: a record's own time stamp, milliseconds since the epoch."""


class StreamSource(ABC):
    """A source of a stream, under one of PyFlink's names."""

    @property
    def has_watermarks_apart(self) -> bool:
        """Does Flink have a watermark for each of its partitions, where there is one for all here?"""
        return False

    @abstractmethod
    def transformation(
        self, spark: SparkSession, parallelism: int, type_info: TypeInformation | None
    ) -> Transformation:
        """The node of the elements, which have time stamps if their records have some.

        Args:
            spark: The session.
            parallelism: The environment's.
            type_info: Type of the elements, if the program says another one.

        Raises:
            InvalidRequestError: The source cannot be read.
        """


def records(
    dataframe: DataFrame,
    schema: DeserializationSchema,
    type_info: TypeInformation | None,
    *,
    is_bounded: bool,
    interval_ms: int | None = None,
) -> Transformation:
    """The elements of records.

    Args:
        dataframe: A stream with the records' bytes in `VALUE_COLUMN`, and perhaps their times in `TIME_COLUMN`.
        schema: Makes elements of them.
        type_info: Type of the elements, if it is another one than the schema's.
        is_bounded: The stream ends.
        interval_ms: Time between two looks for records, unless the job says it.
    """
    source = DataFrameSource(
        elements=TypedElements(as_type(Types.BINARY())),
        dataframe=dataframe,
        event_time=EventTime(TIME_COLUMN, None) if TIME_COLUMN in dataframe.columns else None,
        is_bounded=is_bounded,
        interval_ms=interval_ms,
    )
    elements = elements_of(type_info or schema.get_produced_type())
    return step(source, "flat_map", Deserialization(schema), elements)


class Deserialization(FlatMapFunction[Any, Any]):
    """The elements of records' bytes."""

    def __init__(self, schema: DeserializationSchema) -> None:
        self._schema = schema

    def flat_map(self, value: bytes | None) -> Iterable[Any]:
        if value is None:
            raise InvalidRequestError(
                f"a record without a value (a tombstone) is nothing that {type(self._schema).__name__} can read: "
                "leave such records out of the topic, or read it with Spark and filter them"
            )
        element = self._schema.deserialize(value)
        return () if element is None else (element,)
