"""`JobPlan`: everything about a job that is known before its query starts, as one frozen value."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from varvite.spark_integration.plan.operator import check_columns, timestamp_column_of
from varvite.storage.errors import InvalidRequestError
from varvite.storage.format.layout import check_job_name
from varvite.storage.options.kinds import DURATION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from varvite.materializer.options.materializer_config import MaterializerConfig
    from varvite.spark_integration.options.job_config import JobConfig
    from varvite.spark_integration.plan.input_branches import BranchedPreparation
    from varvite.spark_integration.plan.input_watermarks import InputDelay
    from varvite.spark_integration.plan.operator import OperatorPlan
    from varvite.spark_integration.plan.preparation import Preparation
    from varvite.storage.transfer.upload import UploadPolicy

WATERMARK_DELAY: str = "spark.watermarkDelayMs"
"""Spark's mark, in a column's metadata, of `DataFrame.withWatermark`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """A job."""

    job: str
    """Directory name below the storage root; also Spark's query name."""
    input: DataFrame = field(repr=False)
    """The streaming DataFrame that the job reads, united with heartbeats if there are any."""
    heartbeat: bool
    """There are heartbeats."""
    input_ends: bool = False
    """The input is a collection: it ends, and all of it comes in one batch."""
    preparation: Preparation | BranchedPreparation | None = None
    """What happens to its rows before the first operator; None: nothing."""
    operators: tuple[OperatorPlan, ...]
    """Each reading the output of the one before; there may be none, if no state is kept."""
    checkpoint_location: str
    """Spark's checkpoint location of the query."""
    parallelism: int
    """Partitions of every operator that has no number of its own; at least 1, at most `config.max_parallelism`."""
    watermark_delay_ms: int | None
    """How far the watermark is behind the largest event time; None without an event time column."""
    input_delays: tuple[InputDelay, ...] = ()
    """By branch of the preparation: how the watermark follows it. Empty: the job has one input."""
    config: JobConfig
    """All settings."""
    executors: int = 1
    """Executors that the application has for certain; they share the partitions."""

    def __post_init__(self) -> None:
        """Raises `InvalidRequestError` if the memory budget is too small for so many state workers."""
        _ = self.backend_options

    @property
    def backend_options(self) -> dict[str, Any]:
        """What a state worker needs to open its stores."""
        return self.config.backend_options(len(self.operators), self.parallelism, self.executors)

    @property
    def upload_policy(self) -> UploadPolicy:
        """Limits of a state worker's uploads."""
        return self.config.worker_uploads(self.parallelism, self.executors)

    @property
    def output_schema(self) -> StructType:
        """Columns of the rows that the sink gets."""
        if self.operators:
            return self.operators[-1].output_schema
        return self.preparation.output_schema if self.preparation else self.input.schema

    @property
    def materializer_config(self) -> MaterializerConfig:
        """Configuration of a materializer for this job only."""
        return replace(self.config.materializer, job=self.job)


@dataclass(frozen=True, slots=True)
class EventTime:
    """The column with the event time: one that `with_watermark` named, here or in Spark, or that a function filled."""

    column: str
    delay_ms: int | None
    """How far the watermark is behind the largest event time; None: there is no watermark."""


def event_time_column(schema: StructType, column: str, delay: Any) -> EventTime:
    """Event time from a column, with a watermark that is `delay` behind.

    Args:
        schema: Columns of the stream.
        column: Name of a timestamp column.
        delay: As text ("10 seconds"), a timedelta, or milliseconds; not negative.

    Raises:
        InvalidRequestError: No such column, no timestamps, or no delay.
    """
    if column not in schema.names:
        close = difflib.get_close_matches(str(column), schema.names, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"the columns are {schema.names}"
        raise InvalidRequestError(f"there is no column {column!r}; {hint}")
    if timestamp_column_of(schema, column) is None:
        raise InvalidRequestError(
            f"column {column!r} of type {schema[column].dataType.simpleString()} is no event time: cast it to a "
            "timestamp, for example with timestamp_millis"
        )
    delay_ms = DURATION.read(delay)
    if delay_ms < 0:
        raise InvalidRequestError(f"a watermark cannot be ahead of the event time: the delay is {delay!r}")
    return EventTime(column, delay_ms)


def event_time_of(schema: StructType) -> EventTime | None:
    """The event time column of a DataFrame.

    Raises:
        InvalidRequestError: It has more than one.
    """
    marked = [f for f in schema.fields if WATERMARK_DELAY in f.metadata]
    if len(marked) > 1:
        raise InvalidRequestError(
            f"the stream has several event time columns: {[f.name for f in marked]}; call withWatermark once"
        )
    return EventTime(marked[0].name, int(marked[0].metadata[WATERMARK_DELAY])) if marked else None


def check_input(df: Any) -> None:
    """Whether rows of that DataFrame can be processed. Raises `InvalidRequestError`."""
    if not hasattr(df, "isStreaming"):
        raise InvalidRequestError(f"a streaming DataFrame is needed, not {type(df).__name__}")
    if not df.isStreaming:
        raise InvalidRequestError("the DataFrame is not streaming; make it with spark.readStream")
    check_columns(df.schema, "the input")


def check_query_name(name: str | None) -> str:
    """Name of the job. Raises `InvalidRequestError`."""
    if not name:
        raise InvalidRequestError(
            "the query needs a name, which names the job and its directory in the storage: query_name('flights')"
        )
    return check_job_name(name)


def check_parallelism(parallelism: int | None, shuffle_partitions: int, max_parallelism: int) -> int:
    """Partitions of every operator: what is configured, else Spark's, but not more than key groups."""
    return min(shuffle_partitions, max_parallelism) if parallelism is None else parallelism


def take_option(options: dict[str, Any], name: str) -> Any:
    """Remove and return an option of Spark's; as in Spark, case does not count. None if it is not given."""
    for key in list(options):
        if key.lower() == name.lower():
            return options.pop(key)
    return None


def missing_checkpoint_location(options: dict[str, Any]) -> InvalidRequestError:
    """The error for a query without a checkpoint location."""
    close = difflib.get_close_matches("checkpointlocation", [key.lower() for key in options], 1)
    written = next((key for key in options if close and key.lower() == close[0]), None)
    hint = (
        f"did you mean checkpointLocation instead of {written}?" if written else "set option('checkpointLocation', ...)"
    )
    return InvalidRequestError(f"Spark's checkpointLocation is missing: {hint}")
