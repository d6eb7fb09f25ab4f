"""The formats that a writer takes, and the sink of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from varvite.spark_integration.connectors.driver_sinks.spark_sinks import CONSOLE, MEMORY, ConsoleSink, MemorySink
from varvite.spark_integration.connectors.files.catalog_table import BATCH_COLUMN
from varvite.spark_integration.connectors.files.file_sink import FileSink, check_format
from varvite.spark_integration.connectors.kafka.settings import arguments_of_options
from varvite.spark_integration.connectors.kafka.sink import KafkaSink
from varvite.spark_integration.connectors.tables.delta_sink import delta_sink_of
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from varvite.spark_integration.connectors.files.catalog_table import CatalogTable
    from varvite.spark_integration.connectors.sink import Sink
    from varvite.spark_integration.plan.job import JobPlan

KAFKA: Final = "kafka"
DELTA: Final = "delta"
_WITHOUT_PATH: Final = (KAFKA, CONSOLE, MEMORY)


def known_format(name: str) -> str:
    """The name of a format in lower case, as Spark ignores case. Raises `InvalidRequestError` for others."""
    lower = name.lower()
    return lower if lower in {DELTA, *_WITHOUT_PATH} else check_format(name)


def sink_of_format(
    name: str,
    spark: SparkSession,
    plan: JobPlan,
    options: dict[str, Any],
    path: str | None,
    partition_by: Sequence[str],
    *,
    table: CatalogTable | None = None,
) -> Sink:
    """The sink of a format.

    Args:
        name: Of the format, as `known_format` gives it.
        spark: The session of the program.
        plan: The job.
        options: Of the format.
        path: Directory of the output, if it has one.
        partition_by: Columns that partition it.
        table: Of Spark's catalogue, whose files these are, if there is one.

    Raises:
        InvalidRequestError: These do not fit the format.
    """
    if partition_by and name in _WITHOUT_PATH:
        raise InvalidRequestError("only files and format('delta') have partition_by; leave it out")
    if name in _WITHOUT_PATH:
        if path:
            raise InvalidRequestError(f"format {name!r} has no path; leave {path!r} out")
        if name == KAFKA:
            return KafkaSink(**arguments_of_options(options))
        return ConsoleSink(options) if name == CONSOLE else MemorySink(spark, plan.job, options)
    if not path:
        raise InvalidRequestError(f"format {name!r} needs a directory: start('...')")
    if name == DELTA:
        return delta_sink_of(path, options, partition_by)
    if BATCH_COLUMN in (column.lower() for column in plan.output_schema.names):
        raise InvalidRequestError(
            f"the output has a column {BATCH_COLUMN}, which readers get from the directories' names; rename it"
        )
    sink = FileSink if table is None else table.sink
    return sink(
        spark,
        name,
        path,
        plan.checkpoint_location,
        options,
        partition_by=partition_by,
        begun_query_id=plan.begun_query_id,
    )
