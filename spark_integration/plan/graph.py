"""Plans the graph of transformations: the input's preparation and the operators, with stateless steps fused in.

```
source → map → filter → key_by → process → map → print
         └── Preparation, with the key ──┘ └── ElementOperator ──┘
```
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from pyspark import SparkContext
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import LongType, StructField, StructType

from varvite.spark_integration.elements.side_by_side import ConnectedElements, side_output_fields
from varvite.spark_integration.elements.types import RowElements
from varvite.spark_integration.functions.pickling import PickledFunction, pickle_with_broadcasts
from varvite.spark_integration.messages.protocol import EVENT_TIME_COLUMN, KEY_COLUMN
from varvite.spark_integration.plan.branches import plan_branches
from varvite.spark_integration.plan.element_operator import ElementOperator, SideOutput
from varvite.spark_integration.plan.fusion import broadcasts_of, fused_steps, key_step
from varvite.spark_integration.plan.preparation import Preparation
from varvite.spark_integration.plan.transformations import (
    CollectionSource,
    DataFrameSource,
    EventTime,
    GraphSettings,
    KeyedTransformation,
    SideOutputTransformation,
    StepTransformation,
    Transformation,
    UnionTransformation,
    operator_uids,
    sources_of,
)
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varvite.spark_integration.elements.types import ElementType
    from varvite.spark_integration.plan.function_chain import KeyStep, Step
    from varvite.spark_integration.plan.input_branches import BranchedPreparation
    from varvite.spark_integration.plan.input_watermarks import InputDelay
    from varvite.spark_integration.plan.operator import OperatorPlan

_Head = DataFrameSource | CollectionSource | UnionTransformation | KeyedTransformation


@dataclass(frozen=True, kw_only=True)
class GraphPlan:
    """The plan of the graph that leads to one sink."""

    sources: tuple[DataFrameSource | CollectionSource, ...]
    """In order; a preparation of branches reads them side by side."""
    preparation: Preparation | BranchedPreparation | None
    """The step on the sources' rows before the first operator; None: there is none."""
    operators: tuple[OperatorPlan, ...]
    """In order; the first reads the prepared rows. There may be none."""
    watermark_delay_ms: int | None
    is_spark_watermark: bool
    """Spark computes the watermark."""
    input_delays: tuple[InputDelay, ...]
    """The watermark of each branch. Empty: there are no branches."""
    elements: ElementType
    """The output."""


@dataclass(frozen=True)
class _Segment:
    """Steps in a row, and the stateful operator after them."""

    steps: tuple[StepTransformation, ...]
    operator: KeyedTransformation | None
    tag: SideOutputTransformation | None = None
    """The side output of the operator before that the steps read; None: its main output."""


@dataclass(frozen=True, slots=True)
class _Times:
    """The readers of the event times that an operator gives to its output."""

    to_next: bool
    """The next operator."""
    to_steps: bool
    """Process functions on it."""


def plan_graph(end: Transformation, settings: GraphSettings, sides: Sequence[Transformation] = ()) -> GraphPlan:
    """Plan the graph that leads to a transformation.

    Args:
        end: The end of the main output.
        settings: Names and parallelism of the transformations.
        sides: Ends of other outputs of the last stateful operator, in the order of their numbers.

    Raises:
        InvalidRequestError: Uids are not unique, or the graph has a shape that cannot run.
    """
    head, segments = _segments(end)
    uids = operator_uids(end, settings)
    sources = tuple(sources_of(end))
    first, delays = segments[0], ()
    preparation: Preparation | BranchedPreparation | None
    if isinstance(head, DataFrameSource | CollectionSource):
        preparation, event_time = _preparation(head, first, settings)
    else:
        preparation, delays = plan_branches(head, first.steps, first.operator, sources, settings)
        event_time = EventTime(EVENT_TIME_COLUMN, None) if preparation.event_time_out else None
    operators: list[OperatorPlan] = []
    last = next((segment.operator for segment in reversed(segments) if segment.operator), None)
    side_plans = _side_plans(last, sides, settings)
    for segment, after in pairwise(segments):
        node = segment.operator
        if node is None:
            break
        node_settings = settings.of(node)
        column = event_time.column if event_time and not operators else node.plan.timestamp_column
        if operators and _gives_times(segments[len(operators) - 1].operator, node, event_time):
            column = EVENT_TIME_COLUMN
        plan = replace(
            node.plan,
            uid=uids[node],
            name=node_settings.name or uids[node],
            parallelism=node_settings.parallelism,
            timestamp_column=column,
            prepare=node.plan.prepare and node.plan.prepare.with_event_time(column),
        )
        has_times = after.operator is not None and _gives_times(node, after.operator, event_time)
        sides_of_node = side_plans if node is last else ()
        of_steps = [step.kind for side, _ in sides_of_node for step in side.steps] + [s.step for s in after.steps]
        is_timed = event_time is not None and node.kind in _TIMED and not node.plan.vectorized
        times = _Times(to_next=has_times, to_steps=is_timed and "process" in of_steps)
        operators.append(_with_elements(plan, node, after, settings, sides_of_node, times))
    return GraphPlan(
        sources=sources,
        preparation=preparation,
        operators=tuple(operators),
        watermark_delay_ms=event_time.delay_ms if event_time else None,
        is_spark_watermark=event_time is not None and event_time.spark_watermarks > 0,
        input_delays=delays,
        elements=end.elements,
    )


_TIMED: Final = frozenset(
    {"process", "map", "flat_map", "filter", "reduce", "window", "co_process", "co_map", "co_flat_map"}
)
"""Kinds of operators whose elements keep event times: the input's, a window's last millisecond, a timer's."""


def _gives_times(
    node: KeyedTransformation | None, following: KeyedTransformation, event_time: EventTime | None
) -> bool:
    """True if an operator gives the one after it event times beside the elements, for it has no column with them."""
    if node is None or event_time is None or following.plan.timestamp_column is not None:
        return False
    return all(each.kind in _TIMED and not each.plan.vectorized for each in (node, following))


def _segments(end: Transformation) -> tuple[_Head, list[_Segment]]:
    """The head of the single path to the end, and the path divided after each stateful operator.

    The last segment has no operator.
    """
    path: list[StepTransformation | KeyedTransformation | SideOutputTransformation] = []
    node: Transformation = end
    while isinstance(node, StepTransformation | KeyedTransformation) or (
        isinstance(node, SideOutputTransformation) and any(isinstance(after, KeyedTransformation) for after in path)
    ):
        path.insert(0, node)
        if isinstance(node, KeyedTransformation) and node.connected:
            break
        node = node.inputs[0]
    segments: list[_Segment] = []
    steps: list[StepTransformation] = []
    tag: SideOutputTransformation | None = None
    for at in path:
        if isinstance(at, StepTransformation):
            steps.append(at)
        elif isinstance(at, SideOutputTransformation):
            tag = at
        else:
            segments.append(_Segment(tuple(steps), at, tag))
            steps, tag = [], None
    if not isinstance(node, _Head):
        raise InvalidRequestError(
            f"a {node.kind} cannot be read by another stateful operator; write it, and read it in a job of its own"
        )
    return node, [*segments, _Segment(tuple(steps), None)]


def _steps(segment: _Segment, settings: GraphSettings) -> tuple[Step, ...]:
    return fused_steps(segment.steps, settings, is_followed=_key_step(segment.operator) is not None)


def _key_step(operator: KeyedTransformation | None) -> KeyStep | None:
    return key_step(operator.key if operator else None)


def side_output_of(end: Transformation) -> SideOutputTransformation | None:
    """The side output from which stateless steps lead to an end; None: the end is a main output."""
    while isinstance(end, StepTransformation):
        end = end.inputs[0]
    return end if isinstance(end, SideOutputTransformation) else None


def last_operator_of(end: Transformation) -> KeyedTransformation | None:
    """The last stateful operator before an end; None: there is none."""
    return next((node for node in reversed(list(end.lineage())) if isinstance(node, KeyedTransformation)), None)


def has_several_outputs(operator: KeyedTransformation | None) -> bool:
    """True if different steps may follow the main output of an operator in one query."""
    kinds = _TIMED | {"broadcast_process", "keyed_broadcast_process"}
    return operator is not None and operator.kind in kinds and not operator.plan.vectorized


def _side_plans(
    node: KeyedTransformation | None, ends: Sequence[Transformation], settings: GraphSettings
) -> tuple[tuple[SideOutput, tuple[PickledFunction, ...]], ...]:
    """Each other output for the workers, with the functions that its steps call."""
    plans: list[tuple[SideOutput, tuple[PickledFunction, ...]]] = []
    for end in ends:
        tagged = side_output_of(end)
        of_node = tagged.inputs[0] if tagged else last_operator_of(end)
        if node is None or of_node is not node:
            raise InvalidRequestError(
                "a job writes the main output and side outputs of its last stateful operator, and nothing else; "
                f"this {end.kind} comes from another operator: write it with a job of its own"
            )
        before = set(node.lineage())
        steps = [s for s in end.lineage() if isinstance(s, StepTransformation) and s not in before]
        if any(step.step == "timestamps" for step in steps):
            raise InvalidRequestError("assign_timestamps_and_watermarks has no effect behind a side output; remove it")
        fused = fused_steps(steps, settings, is_followed=False)
        side = SideOutput(
            tag_id=tagged.tag_id if tagged else None,
            yields=(tagged or node).elements,
            output=end.elements,
            steps=fused,
        )
        plans.append((side, tuple(step.function for step in steps)))
    return tuple(plans)


def _preparation(
    source: DataFrameSource | CollectionSource, first: _Segment, settings: GraphSettings
) -> tuple[Preparation | None, EventTime | None]:
    """The step before the first operator, and the event time of its output."""
    source_time = source.event_time if isinstance(source, DataFrameSource) else None
    key = _key_step(first.operator)
    if not first.steps and key is None:
        return None, source_time
    assigned = [step for step in first.steps if step.step == "timestamps"]
    output = first.steps[-1].elements if first.steps else source.elements
    # Elements that are no longer the input's rows have their timestamps in a column of their own.
    column = source_time.column if source_time else None
    beside = bool(assigned) or (column is not None and any(step.step != "timestamps" for step in first.steps))
    functions = [step.function for step in first.steps]
    if first.operator is not None and first.operator.key is not None:
        functions.append(first.operator.key.function)
    preparation = Preparation(
        input=source.elements,
        output=output,
        steps=_steps(first, settings),
        key=key,
        event_time_from=column,
        event_time_out=beside and first.operator is not None,
        broadcasts=broadcasts_of(functions),
    )
    if not beside:
        return preparation, source_time
    if assigned or source_time is None:
        return preparation, EventTime(EVENT_TIME_COLUMN, assigned[-1].watermark_delay_ms if assigned else None)
    return preparation, replace(source_time, column=EVENT_TIME_COLUMN)


def _with_elements(
    plan: OperatorPlan,
    node: KeyedTransformation,
    after: _Segment,
    settings: GraphSettings,
    sides: Sequence[tuple[SideOutput, tuple[PickledFunction, ...]]],
    times: _Times,
) -> OperatorPlan:
    """The operator with the steps after it and the next operator's key; unchanged if rows come in and go out."""
    late = next((step for step in after.steps if step.step == "timestamps"), None)
    if late is not None:
        raise InvalidRequestError(
            "assign_timestamps_and_watermarks is possible before the first stateful operator only; call it there",
            operator=plan.uid,
        )
    input_elements = (
        ConnectedElements(tuple(n.elements for n in node.inputs)) if node.connected else node.inputs[0].elements
    )
    key = _key_step(after.operator)
    yields = after.tag.elements if after.tag else node.elements
    output = after.steps[-1].elements if after.steps else yields
    plain = isinstance(input_elements, RowElements) and isinstance(node.elements, RowElements) and after.tag is None
    # Event times in a column of their own are not columns of the user's rows.
    plain = plain and plan.timestamp_column != EVENT_TIME_COLUMN and not sides and not times.to_next
    if plain and node.key is None and key is None and not after.steps:
        return plan
    if plan.vectorized:
        raise InvalidRequestError(
            "aggregate and vectorised functions work on columns: key rows by columns, write the result or key it by "
            "columns, without map, flat_map, filter or a key function in between",
            operator=plan.uid,
        )
    functions = [plan.function, *[step.function for step in after.steps]]
    if after.operator is not None and after.operator.key is not None:
        functions.append(after.operator.key.function)
    operator = ElementOperator(
        function=plan.function.function,
        input=input_elements,
        yields=yields,
        tag_id=after.tag.tag_id if after.tag else None,
        output=output,
        steps=_steps(after, settings),
        key=key,
        event_time_out=times.to_next,
        has_timed_steps=times.to_steps,
        sides=tuple(side for side, _ in sides),
    )
    pickled = pickle_with_broadcasts(SparkContext._active_spark_context, operator)  # noqa: SLF001  as for functions
    schema = output.schema
    if times.to_next:
        schema = StructType([*schema.fields, StructField(EVENT_TIME_COLUMN, LongType())])
    if key is not None:
        schema = StructType([*schema.fields, StructField(KEY_COLUMN, from_arrow_type(key.key_type.arrow_type))])
    schema = StructType([*schema.fields, *side_output_fields([side.output.schema for side, _ in sides])])
    functions += [function for _, of_side in sides for function in of_side]
    shipped = PickledFunction(pickled.function, {**pickled.broadcasts, **broadcasts_of(functions)})
    return replace(plan, output_schema=schema, function=shipped)
