"""Plans unions and connected streams: the ways that lead to an operator, from sources and from other operators."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from varvite.spark_integration.elements.side_by_side import ConnectedElements
from varvite.spark_integration.plan.fusion import broadcasts_of, fused_steps, key_step
from varvite.spark_integration.plan.input_branches import BranchedPreparation, BranchForm, InputBranch
from varvite.spark_integration.plan.input_watermarks import InputDelay
from varvite.spark_integration.plan.transformations import (
    CollectionSource,
    DataFrameSource,
    KeyedTransformation,
    KeyFunction,
    OutputsTransformation,
    SideOutputTransformation,
    StepTransformation,
    StreamKey,
    Transformation,
)
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from varvite.spark_integration.elements.types import ElementType
    from varvite.spark_integration.functions.pickling import PickledFunction
    from varvite.spark_integration.plan.function_chain import KeyStep
    from varvite.spark_integration.plan.transformations import EventTime, GraphSettings

Source = DataFrameSource | CollectionSource


@dataclass(frozen=True, slots=True)
class Path:
    """A way to a node without a stateful operator on it."""

    origin: Source | KeyedTransformation
    """The beginning: a source, or the last stateful operator before the node."""
    steps: tuple[StepTransformation, ...] = ()
    """The steps after it."""
    tag: SideOutputTransformation | None = None
    """The side output of the operator that the steps read; None: its main output."""

    @property
    def elements(self) -> ElementType:
        """The elements at the end."""
        return self.steps[-1].elements if self.steps else (self.tag or self.origin).elements

    @property
    def is_timed(self) -> bool:
        """True if elements of the source have event times at the end."""
        event_time = self.origin.event_time if isinstance(self.origin, DataFrameSource) else None
        has_column = event_time is not None and event_time.column is not None
        return has_column or any(step.step == "timestamps" for step in self.steps)


def paths_to(node: Transformation) -> Iterator[Path]:
    """Every path to a node. Raises `InvalidRequestError` if time stamps are assigned behind a stateful operator."""
    if isinstance(node, DataFrameSource | CollectionSource | KeyedTransformation):
        yield Path(node)
    elif isinstance(node, SideOutputTransformation):
        yield from (Path(operator, (), node) for operator in node.inputs if isinstance(operator, KeyedTransformation))
    elif isinstance(node, StepTransformation):
        for path in paths_to(node.inputs[0]):
            if node.step == "timestamps" and isinstance(path.origin, KeyedTransformation):
                raise InvalidRequestError(
                    "assign_timestamps_and_watermarks is possible before the first stateful operator only; call it "
                    "there"
                )
            yield replace(path, steps=(*path.steps, node))
    else:
        for before in node.inputs:
            yield from paths_to(before)


@dataclass(frozen=True, slots=True)
class Meeting:
    """The ways that lead to an operator, or to the end of a program."""

    operator: KeyedTransformation | None
    """None: to the end."""
    paths: tuple[tuple[int, Path], ...]
    """Each with the number of the input of the operator that it leads to."""
    inputs: tuple[ElementType, ...]
    """Elements of each input."""

    @staticmethod
    def at(node: Transformation, operator: KeyedTransformation | None = None) -> Meeting:
        """The ways to an operator, or to a node behind the last one."""
        inputs = node.inputs if operator is not None or isinstance(node, OutputsTransformation) else (node,)
        paths = tuple((number, path) for number, before in enumerate(inputs) for path in paths_to(before))
        return Meeting(operator, paths, tuple(before.elements for before in inputs))

    @property
    def is_single(self) -> bool:
        """True if there is one way, to an operator with one input or to the end."""
        return len(self.paths) == 1 and not self.is_side_by_side

    @property
    def is_side_by_side(self) -> bool:
        """Do the rows of each input have columns of their own: of connected streams, and of several ends?"""
        return bool(self.connected) or (self.operator is None and len(self.inputs) > 1)

    @property
    def connected(self) -> tuple[StreamKey, ...]:
        """The key of each connected stream."""
        return self.operator.connected if self.operator else ()

    @property
    def sourced(self) -> tuple[tuple[int, Path], ...]:
        """The paths from sources."""
        return tuple((n, path) for n, path in self.paths if not isinstance(path.origin, KeyedTransformation))

    @property
    def behind(self) -> tuple[tuple[int, Path, KeyedTransformation], ...]:
        """The paths from operators, with these."""
        return tuple((n, path, path.origin) for n, path in self.paths if isinstance(path.origin, KeyedTransformation))

    def key_of(self, number: int) -> KeyFunction | None:
        """The key function of an input; None: its key is in columns, or there is none."""
        if self.connected:
            return self.connected[number].function
        return self.operator.key if self.operator else None

    def form(self, number: int, *, event_time_out: bool) -> BranchForm:
        """The form of the rows of an input."""
        operator, connected = self.operator, self.connected
        key = operator.key if operator else None
        is_computed = self.key_of(number) is not None
        return BranchForm(
            whole=ConnectedElements(self.inputs) if self.is_side_by_side else self.inputs[0],
            number=number if self.is_side_by_side else None,
            key_columns=connected[number].columns if connected and not is_computed else (),
            key_type=connected[0].key_type if connected else key.key_type if key else None,
            event_time_out=event_time_out,
        )


def plan_branches(
    meeting: Meeting, sources: Sequence[Source], settings: GraphSettings, *, first_branch: int, event_time_out: bool
) -> tuple[BranchedPreparation, tuple[InputDelay, ...]]:
    """The branches that lead from sources to an operator, or to the end, and the watermark of each.

    Args:
        meeting: The ways there.
        sources: All sources; a branch refers to its source by position.
        settings: Names of the steps.
        first_branch: Number of the first branch in the job.
        event_time_out: Add a column with the event time.

    Raises:
        InvalidRequestError: The watermark of a source cannot be told.
    """
    branches: list[InputBranch] = []
    delays: list[InputDelay] = []
    functions: list[PickledFunction] = []
    form = meeting.form(0, event_time_out=event_time_out)
    for number, path in meeting.sourced:
        key, of_input = meeting.key_of(number), meeting.form(number, event_time_out=event_time_out)
        branch, delay = _branch(path, key_step(key, meeting.operator, settings), settings)
        source: Any = path.origin
        numbered = replace(
            branch, source=sources.index(source), key_columns=of_input.key_columns, number=of_input.number
        )
        branches.append(numbered)
        delays.append(delay)
        functions += [step.function for step in path.steps]
        if key is not None:
            functions.append(key.function)
    preparation = BranchedPreparation(
        branches=tuple(branches),
        output=form.whole,
        key_type=form.key_type,
        event_time_out=event_time_out,
        first_branch=first_branch,
        broadcasts=broadcasts_of(functions),
    )
    return preparation, tuple(delays)


def _branch(path: Path, key: KeyStep | None, settings: GraphSettings) -> tuple[InputBranch, InputDelay]:
    source: Any = path.origin
    steps = path.steps
    source_time = source.event_time if isinstance(source, DataFrameSource) else None
    assigned = [i for i, step in enumerate(steps) if step.step == "timestamps"]
    timed = assigned[-1] + 1 if assigned else 0
    fused = fused_steps(steps, settings, is_followed=key is not None)
    branch = InputBranch(
        source=0,
        input=source.elements,
        output=path.elements,
        timing=fused[:timed],
        steps=fused[timed:],
        key=key,
        key_columns=(),
        event_time_from=source_time.column if source_time else None,
        number=None,
    )
    if assigned:
        last = steps[assigned[-1]]
        return branch, InputDelay(last.watermark_delay_ms, last.idle_timeout_ms)
    if source_time is not None and source_time.spark_watermarks:
        _check_own_watermark(source, source_time)
    return branch, InputDelay(source_time.delay_ms if source_time else None)


def _check_own_watermark(source: Source, event_time: EventTime) -> None:
    """Check that the watermark of a united or connected DataFrame is told by one of its columns.

    Spark has one watermark for all inputs of a query, and not one for each of them.
    """
    if event_time.spark_watermarks == 1 and event_time.column is not None:
        return
    raise InvalidRequestError(
        f"the DataFrame with the columns {source.elements.schema.names} has "
        + (
            f"{event_time.spark_watermarks} watermarks (withWatermark)"
            if event_time.spark_watermarks > 1
            else "a watermark (withWatermark), but not its column"
        )
        + ", so its own watermark cannot be told beside that of another input: call "
        "assign_timestamps_and_watermarks on the stream before the union or connect, or unite the inputs with "
        "DataFrame.union before from_dataframe"
    )
