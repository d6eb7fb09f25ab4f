"""The plan of an operator harness: a program of one stateful operator, planned as a job without Spark.

The program is a function from streams to a stream, so that a test says what the job says. The job's own planner plans
it; only what Spark would do is left out: reading sources, and combining rows before the shuffle.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from varvite.spark_integration.api.environment import StreamExecutionEnvironment
from varvite.spark_integration.api.stream import DataStream
from varvite.spark_integration.messages.protocol import EVENT_TIME_COLUMN
from varvite.spark_integration.options.job_config import resolve
from varvite.spark_integration.options.state_backends import HashMapStateBackend, StateBackend
from varvite.spark_integration.plan.graph import plan_graph
from varvite.spark_integration.plan.input_branches import BranchedPreparation
from varvite.spark_integration.plan.job import JobPlan, check_generic_types
from varvite.spark_integration.plan.operator import elements_of
from varvite.spark_integration.plan.preparation import Preparation
from varvite.spark_integration.plan.transformations import DataFrameSource, KeyedTransformation
from varvite.storage.errors import InvalidRequestError
from varvite.storage.job.options import DIRECTORY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from varvite.spark_integration.elements.types import ElementType
    from varvite.spark_integration.functions.output_tag import OutputTag
    from varvite.spark_integration.plan.transformations import Transformation

JOB: Final = "harness"
"""Name of the job in a harness' storage."""


@dataclass(frozen=True, kw_only=True)
class HarnessSettings:
    """Settings of a harness."""

    parallelism: int = 1
    """Partitions."""
    max_parallelism: int = 128
    """Key groups; what is restored keeps its number."""
    backend: StateBackend = field(default_factory=HashMapStateBackend)
    """State backend of the working state."""
    changelog: bool = True
    """A checkpoint writes the changes; else a snapshot of all state."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Other options of the job, as `StreamExecutionEnvironment.configure` takes them."""
    materialize_every: int | None = None
    """The changelog is materialized after every so many checkpoints; None: only by `materialize`."""
    processing_time: int = 0
    """Processing time of the start, milliseconds since 1970; what is restored goes on at its own."""
    side_outputs: tuple[OutputTag, ...] = ()
    """Side outputs that are read; others are dropped, as in a job that does not read them."""

    def __post_init__(self) -> None:
        """Raises `InvalidRequestError`."""
        if self.materialize_every is not None and self.materialize_every < 1:
            raise InvalidRequestError(f"materialize_every is {self.materialize_every}; give 1 or more, or None")


@dataclass(frozen=True, slots=True)
class HarnessProgram:
    """The program that is run."""

    build: Callable[..., DataStream]
    """Function of one stream for each input; returns the output stream."""
    inputs: tuple[ElementType, ...]
    """Types of the input's elements."""


@dataclass(frozen=True, slots=True)
class HarnessPlan:
    """A program as it runs."""

    job: JobPlan
    inputs: tuple[ElementType, ...]
    takes_timestamps: bool
    """Event times are given with the elements; else the program says where they are."""
    elements: ElementType
    """Type of the output's elements."""
    sides: Mapping[str, ElementType]
    """Id of each side output that is read, in the order of their numbers → type of its elements."""


def harness_program(build: Callable[..., DataStream], input_types: tuple[Any, ...]) -> HarnessProgram:
    """A program. Raises `InvalidRequestError` if a type is none, or `build` cannot be called."""
    if not callable(build) or isinstance(build, type):
        raise InvalidRequestError(
            f"a harness takes a function from a stream to what is made of it, not {build!r}: OperatorHarness(lambda "
            "stream: stream.key_by('k').process(...)), or OperatorHarness.of_function(MyFunction(), ...)"
        )
    return HarnessProgram(build, tuple(elements_of(kind) for kind in input_types or (None,)))


def harness_plan(program: HarnessProgram, settings: HarnessSettings) -> HarnessPlan:
    """Plan a program.

    Raises:
        InvalidRequestError: It has not exactly one stateful operator, needs Spark, or an option does not fit.
    """
    without_spark: Any = None
    environment = StreamExecutionEnvironment(without_spark).configure(settings.options)
    environment.configure(DIRECTORY.key, f"memory://{JOB}")
    environment.set_state_backend(settings.backend).enable_changelog_state_backend(settings.changelog)
    environment.set_parallelism(settings.parallelism).set_max_parallelism(settings.max_parallelism)
    sources = [DataFrameSource(elements=e, dataframe=without_spark, event_time=None) for e in program.inputs]
    stream = program.build(*[DataStream(environment, source) for source in sources])
    if not isinstance(stream, DataStream):
        raise InvalidRequestError(f"the program must return a stream, not a {type(stream).__name__}")
    end = stream.transformation
    operator_node = DataStream(environment, _operator(end))
    sides = [operator_node.get_side_output(tag) for tag in settings.side_outputs]
    of_job = environment.graph_settings.with_parallelism(settings.parallelism)
    graph = plan_graph(end, of_job, [side.transformation for side in sides])
    if len(graph.operators) != 1:
        raise InvalidRequestError(
            "the program unites what its stateful operator yields with another stream: let the harness' program end "
            "with the operator, and unite its output in the test"
        )
    operator = graph.operators[0]
    if operator.prepare is not None or operator.initial_state is not None or operator.broadcast is not None:
        raise InvalidRequestError(
            "Spark itself does a part of aggregate(), reads an initial state and hands out broadcast elements: test "
            "these with a SparkSession",
            operator=operator.uid,
        )
    config = resolve([environment.code_level()])
    if config.runtime_mode == "batch":
        raise InvalidRequestError(
            "execution.runtime-mode is BATCH, but a harness runs one batch after the other: leave the option out"
        )
    check_generic_types(JOB, graph.operators, (), allowed=config.generic_types)
    preparation = graph.preparation
    takes_timestamps = operator.timestamp_column is None
    if takes_timestamps:
        operator, preparation = replace(operator, timestamp_column=EVENT_TIME_COLUMN), _with_times(preparation)
    job = JobPlan(
        job=JOB,
        input=without_spark,
        heartbeat=False,
        preparation=preparation,
        operators=(operator,),
        checkpoint_location="",
        parallelism=operator.parallelism or settings.parallelism,
        watermark_delay_ms=graph.watermark_delay_ms,
        input_delays=graph.input_delays,
        config=config,
    )
    said = [side.transformation.elements for side in sides]
    tags = [tag.tag_id for tag in settings.side_outputs]
    return HarnessPlan(job, program.inputs, takes_timestamps, graph.elements, dict(zip(tags, said, strict=True)))


def _operator(end: Transformation) -> KeyedTransformation:
    """The one stateful operator. Raises `InvalidRequestError`."""
    nodes = [node for node in end.lineage() if isinstance(node, KeyedTransformation)]
    if len(nodes) != 1:
        raise InvalidRequestError(
            f"a harness runs one stateful operator, and the program has {len(nodes)}: give each a harness of its own"
        )
    return nodes[0]


def _with_times(preparation: Preparation | BranchedPreparation | None) -> Any:
    """The preparation when event times come beside the elements: it hands them on."""
    if isinstance(preparation, Preparation):
        return replace(preparation, event_time_from=EVENT_TIME_COLUMN, event_time_out=True)
    if isinstance(preparation, BranchedPreparation):
        branches = tuple(replace(branch, event_time_from=EVENT_TIME_COLUMN) for branch in preparation.branches)
        return replace(preparation, branches=branches, event_time_out=True)
    return None
