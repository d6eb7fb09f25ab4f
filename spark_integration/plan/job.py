"""`JobPlan`: everything about a job that is fixed before its query starts, as one frozen value; and its checks."""

from __future__ import annotations

import difflib
import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from varvite.changelog.schema.pickled import GENERIC_TYPES, is_generic
from varvite.spark_integration.options.progress_mode import IN_SPARK_LOG, ProgressMode
from varvite.spark_integration.plan.transformations import CollectionSource
from varvite.storage.errors import InvalidRequestError
from varvite.storage.format.layout import check_job_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from varvite.changelog.working_stores.options import BackendSettings
    from varvite.materializer.options.materializer_config import MaterializerConfig
    from varvite.spark_integration.functions.implicit_state import ImplicitState
    from varvite.spark_integration.options.job_config import JobConfig
    from varvite.spark_integration.plan.input_branches import BranchedPreparation
    from varvite.spark_integration.plan.input_watermarks import InputDelay
    from varvite.spark_integration.plan.operator import OperatorPlan
    from varvite.spark_integration.plan.preparation import Preparation
    from varvite.spark_integration.plan.transformations import DataFrameSource
    from varvite.storage.transfer.upload import UploadPolicy

_log: Final = logging.getLogger(__name__)


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
    """The input ends, as collections do, and all of it comes in one batch."""
    is_batch: bool = False
    """Flink's BATCH mode: only final results, and no state is kept."""
    preparation: Preparation | BranchedPreparation | None = None
    """The step on its rows before the first operator; None: there is none."""
    operators: tuple[OperatorPlan, ...]
    """Each reads the output of the one before; there may be none, in a job without state."""
    checkpoint_location: str
    """Spark's checkpoint location of the query."""
    is_private_location: bool = False
    """The user has named none: the location goes with the run, and each run's is made from the chain."""
    begun_query_id: str | None = None
    """Of a query that has begun, whose location is empty; None: a new one begins, or the location says it."""
    progress: ProgressMode = IN_SPARK_LOG
    """The way in which Spark keeps the query's progress."""
    parallelism: int
    """Partitions of every operator that has no number of its own; at least 1, at most `config.max_parallelism`."""
    watermark_delay_ms: int | None
    """Distance of the watermark behind the largest event time; None without an event time column."""
    is_spark_watermark: bool = False
    """Spark computes the watermark, and each batch reads it there."""
    has_spark_state: bool = False
    """The input has operators of Spark with state of their own, which need every batch."""
    input_delays: tuple[InputDelay, ...] = ()
    """The watermark of each branch of the preparation. Empty: the job has one input."""
    config: JobConfig
    """All settings."""
    executors: int = 1
    """Executors on which the application can rely; they share the partitions."""

    def __post_init__(self) -> None:
        """Raises `InvalidRequestError` if the memory budget is too small for so many state workers."""
        _ = self.backend_options

    @property
    def backend_options(self) -> BackendSettings:
        """Settings with which a state worker opens its stores."""
        return self.config.backend_options(len(self.operators), self.parallelism, self.executors)

    @property
    def upload_policy(self) -> UploadPolicy:
        """Limits of a state worker's uploads."""
        return self.config.worker_uploads(self.parallelism, self.executors)

    @property
    def has_watermark(self) -> bool:
        """False if event time never moves on: the input, or one of several inputs, has no watermark."""
        if self.input_ends or self.is_spark_watermark:
            return True
        if self.input_delays:
            return all(delay.delay_ms is not None for delay in self.input_delays)
        return self.watermark_delay_ms is not None

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


def is_batch_job(mode: str, sources: Iterable[DataFrameSource | CollectionSource]) -> bool:
    """True if a program runs in Flink's BATCH mode.

    Args:
        mode: The option `execution.runtime-mode`.
        sources: All sources of the program.

    Raises:
        InvalidRequestError: BATCH is set, and a source does not end.
    """
    if mode == "streaming":
        return False
    is_bounded = all(source.is_bounded for source in sources)
    if mode == "batch" and not is_bounded:
        raise InvalidRequestError(
            "a source does not end (a DataFrame, files that are monitored, Kafka without set_bounded), and "
            "execution.runtime-mode is BATCH, in which every source has to: set STREAMING or AUTOMATIC, or give the "
            "source an end"
        )
    return is_bounded


def check_streaming(config: JobConfig, sources: Iterable[DataFrameSource | CollectionSource]) -> None:
    """Check that a query that a writer starts is in STREAMING mode. Raises `InvalidRequestError`."""
    if is_batch_job(config.runtime_mode, sources):
        raise InvalidRequestError(
            f"execution.runtime-mode is {config.runtime_mode.upper()}, and every source ends, so this is a job in "
            "BATCH mode, which execute() and execute_and_collect() run: end the stream with sink_to(...), or set "
            "STREAMING"
        )


def check_query_name(name: str | None) -> str:
    """Check the name of the job. Raises `InvalidRequestError`."""
    if not name:
        raise InvalidRequestError(
            "the query needs a name, which names the job and its directory in the storage: query_name('flights')"
        )
    return check_job_name(name)


def check_key_groups(operators: Iterable[OperatorPlan], max_parallelism: int) -> None:
    """Raise `InvalidRequestError` if an operator has more partitions than there are key groups."""
    for operator in operators:
        if (operator.parallelism or 1) > max_parallelism:
            raise InvalidRequestError(
                f"the operator's parallelism is {operator.parallelism}, but there are only {max_parallelism} key "
                "groups (max parallelism)",
                operator=operator.uid,
            )


def check_parallelism(parallelism: int | None, default: int, max_parallelism: int) -> int:
    """Partitions of every operator: as configured, else the default, at most as many as key groups."""
    return min(default, max_parallelism) if parallelism is None else parallelism


def take_option(options: dict[str, Any], name: str) -> Any:
    """Remove and return an option of Spark's; as in Spark, case is ignored. None if it is missing."""
    for key in list(options):
        if key.lower() == name.lower():
            return options.pop(key)
    return None


def missing_checkpoint_location(options: dict[str, Any], reason: str) -> InvalidRequestError:
    """The error for a query without a checkpoint location, which needs one for that reason."""
    close = difflib.get_close_matches("checkpointlocation", [key.lower() for key in options], 1)
    misspelt = next((key for key in options if close and key.lower() == close[0]), None)
    hint = (
        f"did you mean checkpointLocation instead of {misspelt}?"
        if misspelt
        else "set option('checkpointLocation', ...), or the Spark property spark.sql.streaming.checkpointLocation"
    )
    return InvalidRequestError(f"Spark's checkpointLocation is missing, and {reason}: {hint}")


def check_bounds(sources: Sequence[DataFrameSource | CollectionSource], trigger: Mapping[str, Any]) -> None:
    """Check that a source that ends is read in one batch.

    Args:
        sources: Of the job.
        trigger: The user's; empty: none.

    Raises:
        InvalidRequestError: It would not be. Collections are in any case.
    """
    if not any(source.is_bounded and not isinstance(source, CollectionSource) for source in sources):
        return
    if not all(source.is_bounded for source in sources):
        raise InvalidRequestError(
            "the job has a source that ends, and another one that does not: read both without an end "
            "(monitor_continuously for files; no set_bounded for Kafka), or the one that ends with from_collection"
        )
    if "processingTime" in trigger:
        raise InvalidRequestError("the job's source ends, and is read in one batch: leave trigger(processingTime) out")


def check_generic_types(
    job: str,
    operators: Sequence[OperatorPlan],
    sources: Sequence[DataFrameSource | CollectionSource],
    *,
    allowed: bool,
) -> None:
    """Warn of states that hold pickled objects without a declaration, or refuse all generic types.

    Args:
        job: Name of the job.
        operators: Operators of the job.
        sources: Sources of the job. A collection is stored until it is processed.
        allowed: `pipeline.generic-types`.

    Raises `InvalidRequestError`.
    """
    generic = [(plan.uid, state) for plan in operators for state in plan.implicit_states if is_generic(state.kind)]
    if allowed:
        undeclared = [_described(uid, state) for uid, state in generic if state.undeclared]
        if undeclared:
            _log.warning(
                "job %s keeps pickled objects, because their types are not declared: %s. Who can write the storage "
                "could have code run when they are read (docs/operate/security.md); %s=false refuses such jobs",
                job,
                "; ".join(undeclared),
                GENERIC_TYPES.key,
            )
        return
    for uid, state in generic:
        raise InvalidRequestError(
            f"{_described(uid, state)}, which {GENERIC_TYPES.key}=false does not allow: its values would be pickled",
            operator=uid,
        )
    if any(isinstance(s, CollectionSource) and is_generic(s.elements.state_type) for s in sources):
        raise InvalidRequestError(
            f"the elements of from_collection would be pickled until they are processed, which "
            f"{GENERIC_TYPES.key}=false does not allow; give their type_info"
        )


def _described(uid: str, state: ImplicitState) -> str:
    advice = f" (declare {state.undeclared})" if state.undeclared else f" ({state.kind})"
    return f"state {state.name!r} of operator {uid!r}{advice}"
