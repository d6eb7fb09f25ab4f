"""Plans the graph of transformations: the input's preparation and the operators, with stateless steps fused in.

```
source → map → filter → key_by → process → map → print
         └── Preparation, with the key ──┘ └── ElementOperator ──┘
```

An operator whose output meets other streams, in a union or in connected streams, has an output for each way that leads
from it to another operator. These have the form of all rows of that operator's input.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark import SparkContext
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import LongType, StructField, StructType

from varvite.changelog.types.factory import Types
from varvite.spark_integration.elements.side_by_side import ConnectedElements, side_output_fields
from varvite.spark_integration.elements.types import RowElements
from varvite.spark_integration.functions.keyed_operations import KeyedMap
from varvite.spark_integration.functions.pickling import PickledFunction, pickle_with_broadcasts
from varvite.spark_integration.messages.protocol import EVENT_TIME_COLUMN, KEY_COLUMN
from varvite.spark_integration.plan.branches import Meeting, Path, plan_branches
from varvite.spark_integration.plan.element_operator import ElementOperator, SideOutput
from varvite.spark_integration.plan.fusion import broadcasts_of, fused_steps, key_step
from varvite.spark_integration.plan.input_branches import BranchedPreparation
from varvite.spark_integration.plan.keyed import keyed_operator, same, stream_key
from varvite.spark_integration.plan.operator import OperatorInput
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
    operator_uids,
    sources_of,
)
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varvite.spark_integration.elements.types import ElementType
    from varvite.spark_integration.plan.branches import Source
    from varvite.spark_integration.plan.function_chain import KeyStep, Step
    from varvite.spark_integration.plan.input_watermarks import InputDelay
    from varvite.spark_integration.plan.operator import OperatorPlan


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

    steps: tuple[StepTransformation, ...] = ()
    operator: KeyedTransformation | None = None
    tag: SideOutputTransformation | None = None
    """The side output of the operator before that the steps read; None: its main output."""


@dataclass(frozen=True)
class _Output:
    """The readers of an operator's output."""

    after: _Segment
    """Of its main output, or of a side output in its place."""
    sides: tuple[tuple[SideOutput, tuple[PickledFunction, ...]], ...]
    """Other outputs for the workers, with the functions that their steps call."""
    is_read: bool
    """False: the main output is not read, but as one of `sides`."""
    event_time_out: bool
    """The next operator gets event times."""
    gives_times: bool
    """Functions after it, or operators that read one of `sides`, get event times."""


@dataclass(frozen=True)
class _Sourced:
    """The steps on the rows of sources, and what they give."""

    preparations: dict[KeyedTransformation | None, Preparation | BranchedPreparation | None]
    """Of each operator that reads sources; None: of the end."""
    event_time: EventTime | None
    delays: tuple[InputDelay, ...]


@dataclass(frozen=True)
class _Graph:
    """A graph as it is planned."""

    nodes: Sequence[KeyedTransformation]
    """The operators, each after those that it reads."""
    meetings: Sequence[Meeting]
    """The ways to each of them, then to the end."""
    sourced: _Sourced
    settings: GraphSettings
    sides: Sequence[Transformation]
    """Ends of other outputs of the last operator."""


def plan_graph(end: Transformation, settings: GraphSettings, sides: Sequence[Transformation] = ()) -> GraphPlan:
    """Plan the graph that leads to a transformation.

    Args:
        end: The end of the main output.
        settings: Names and parallelism of the transformations.
        sides: Ends of other outputs of the last stateful operator, in the order of their numbers.

    Raises:
        InvalidRequestError: Uids are not unique, or the graph has a shape that cannot run.
    """
    uids = operator_uids(end, settings)
    sources = tuple(sources_of(end))
    nodes = [node for node in end.lineage() if isinstance(node, KeyedTransformation)]
    last = Meeting.at(end)
    if last.behind and not last.is_single:
        node, steps = _passed_on(end)
        uids = {**uids, node: _passing_uid(node, settings, uids)}
        nodes.append(node)
        last = Meeting(None, ((0, Path(node, steps)),), (end.elements,))
    meetings = [*(Meeting.at(node, node) for node in nodes), last]
    sourced = _sourced(meetings, sources, settings)
    event_time = sourced.event_time
    whole = _Graph(nodes, meetings, sourced, settings, sides)
    operators = [_operator(whole, meeting, uids[node]) for node, meeting in zip(nodes, meetings, strict=False)]
    first = nodes[0] if nodes else None
    return GraphPlan(
        sources=sources,
        preparation=sourced.preparations[first],
        operators=tuple(operators),
        watermark_delay_ms=event_time.delay_ms if event_time else None,
        is_spark_watermark=event_time is not None and event_time.spark_watermarks > 0,
        input_delays=sourced.delays,
        elements=end.elements,
    )


def _operator(graph: _Graph, meeting: Meeting, uid: str) -> OperatorPlan:
    """One operator of the graph, with all that happens to its output in its worker."""
    node: Any = meeting.operator
    meetings, settings = graph.meetings, graph.settings
    node_settings = settings.of(node)
    column = _time_column(meeting, graph.sourced)
    plan = replace(
        node.plan,
        uid=uid,
        name=node_settings.name or uid,
        parallelism=settings.chosen_parallelism_of(node),
        timestamp_column=column,
        prepare=node.plan.prepare and node.plan.prepare.with_event_time(column),
        input=_input_of(meeting, meetings, graph.nodes, graph.sourced),
    )
    is_last = node is graph.nodes[-1]
    is_read = is_last or _is_chained(meetings, node)
    if is_read:
        ((reader, _, path),) = _outputs_of(meetings, node)
        after = _Segment(path.steps, reader.operator, path.tag)
        others = _side_plans(node, graph.sides, settings) if is_last else ()
    else:
        after, others = _Segment(), _branch_outputs(node, meetings, graph.sourced, settings)
    event_time = graph.sourced.event_time
    steps = [step.step for step in after.steps] + [step.kind for side, _ in others for step in side.steps]
    is_timed = (event_time is not None and "process" in steps) or any(
        side.form and side.form.event_time_out for side, _ in others
    )
    output = _Output(
        after,
        others,
        is_read=is_read,
        event_time_out=after.operator is not None and _gives_times(node, after.operator, event_time),
        gives_times=is_timed and _keeps_times(node),
    )
    return _with_elements(plan, node, output, settings)


_TIMED: Final = frozenset(
    {
        "process", "map", "flat_map", "filter", "reduce", "window", "co_process", "co_map", "co_flat_map", "union",
        "partition_custom",
    }
)  # fmt: skip
"""Kinds of operators whose elements keep event times: the input's, a window's last millisecond, a timer's."""
_WITH_BROADCAST: Final = frozenset({"broadcast_process", "keyed_broadcast_process"})


def _gives_times(
    node: KeyedTransformation | None, following: KeyedTransformation, event_time: EventTime | None
) -> bool:
    """True if an operator gives the one after it event times beside the elements, for it has no column with them."""
    if node is None or event_time is None or following.plan.timestamp_column is not None:
        return False
    return _keeps_times(node) and _keeps_times(following)


def _keeps_times(node: KeyedTransformation) -> bool:
    return node.kind in _TIMED and not node.plan.vectorized


def _sourced(meetings: Sequence[Meeting], sources: Sequence[Source], settings: GraphSettings) -> _Sourced:
    """Plan the steps before all operators that read sources, or before the end."""
    readers = [meeting for meeting in meetings if meeting.sourced]
    if len(readers) == 1 and readers[0].is_single and not readers[0].behind:
        reader = readers[0]
        _, path = reader.paths[0]
        source: Any = path.origin
        preparation, event_time = _preparation(source, _Segment(path.steps, reader.operator), settings)
        return _Sourced({reader.operator: preparation}, event_time, ())
    is_timed = any(path.is_timed for reader in readers for _, path in reader.sourced)
    event_time = EventTime(EVENT_TIME_COLUMN, None) if is_timed and readers[0].operator is not None else None
    preparations: dict[KeyedTransformation | None, Preparation | BranchedPreparation | None] = {}
    delays: list[InputDelay] = []
    for reader in readers:
        preparations[reader.operator], of_reader = plan_branches(
            reader,
            sources,
            settings,
            first_branch=len(delays),
            event_time_out=_reads_times(reader, event_time),
        )
        delays += of_reader
    return _Sourced(preparations, event_time, tuple(delays))


def _reads_times(meeting: Meeting, event_time: EventTime | None) -> bool:
    """True if the rows that come to an operator on several ways have a column with event times."""
    operator = meeting.operator
    if event_time is None or operator is None:
        return False
    takes = operator.kind in _TIMED | _WITH_BROADCAST and not operator.plan.vectorized
    has_times = any(_keeps_times(node) for _, _, node in meeting.behind)
    return any(path.is_timed for _, path in meeting.sourced) or (takes and has_times)


def _time_column(meeting: Meeting, sourced: _Sourced) -> str | None:
    """The column of an operator's input with the event times."""
    node, event_time = meeting.operator, sourced.event_time
    if node is None:
        return None
    if not meeting.behind and not isinstance(sourced.preparations[node], BranchedPreparation):
        return event_time.column if event_time else node.plan.timestamp_column
    if meeting.is_single and meeting.behind:
        before = meeting.behind[0][2]
        return EVENT_TIME_COLUMN if _gives_times(before, node, event_time) else node.plan.timestamp_column
    return EVENT_TIME_COLUMN if _reads_times(meeting, event_time) else None


def _is_chained(meetings: Sequence[Meeting], node: KeyedTransformation) -> bool:
    """True if one operator, or the end, reads the output of another one, and nothing else."""
    readers = [meeting for meeting in meetings for _, _, before in meeting.behind if before is node]
    return len(readers) == 1 and readers[0].is_single


def _outputs_of(meetings: Sequence[Meeting], node: KeyedTransformation) -> list[tuple[Meeting, int, Path]]:
    """The ways from an operator to others, in the order of the numbers that they have as its outputs."""
    return [(m, number, path) for m in meetings for number, path, before in m.behind if before is node]


def _input_of(
    meeting: Meeting, meetings: Sequence[Meeting], nodes: Sequence[KeyedTransformation], sourced: _Sourced
) -> OperatorInput | None:
    """The rows that an operator reads; None: as the job's operators do in a row."""
    node = meeting.operator
    place = next(i for i, each in enumerate(nodes) if each is node)
    if place == 0:
        return None
    outputs: list[tuple[int, int | None]] = []
    for number, path, before in meeting.behind:
        at = next(i for i, each in enumerate(nodes) if each is before)
        ways = _outputs_of(meetings, before)
        way = next(i for i, (m, n, p) in enumerate(ways) if m is meeting and n == number and p is path)
        outputs.append((at, None if _is_chained(meetings, before) else way))
    prepared = sourced.preparations.get(node)
    preparation = prepared if isinstance(prepared, BranchedPreparation) else None
    if outputs == [(place - 1, None)] and preparation is None:
        return None
    return OperatorInput(tuple(outputs), preparation)


def _branch_outputs(
    node: KeyedTransformation, meetings: Sequence[Meeting], sourced: _Sourced, settings: GraphSettings
) -> tuple[tuple[SideOutput, tuple[PickledFunction, ...]], ...]:
    """The outputs of an operator that others read beside more streams."""
    plans: list[tuple[SideOutput, tuple[PickledFunction, ...]]] = []
    for meeting, number, path in _outputs_of(meetings, node):
        key = meeting.key_of(number)
        single_times = _time_column(meeting, sourced) == EVENT_TIME_COLUMN
        side = SideOutput(
            tag_id=path.tag.tag_id if path.tag else None,
            yields=(path.tag or node).elements,
            output=path.elements,
            steps=fused_steps(path.steps, settings, is_followed=key is not None),
            key=key_step(key, meeting.operator, settings),
            form=meeting.form(number, event_time_out=single_times),
        )
        functions = [*(step.function for step in path.steps), *([key.function] if key else [])]
        plans.append((side, tuple(functions)))
    return tuple(plans)


def _passed_on(end: Transformation) -> tuple[KeyedTransformation, tuple[StepTransformation, ...]]:
    """An operator that passes on the elements of a union behind operators, and the steps after it."""
    steps: list[StepTransformation] = []
    while isinstance(end, StepTransformation):
        steps.insert(0, end)
        end = end.inputs[0]
    key = stream_key(end, (_no_key,), Types.LONG())
    node = keyed_operator(end, key, "union", KeyedMap(same), end.elements)
    return replace(node, plan=replace(node.plan, parallelism=1)), tuple(steps)


def _passing_uid(node: KeyedTransformation, settings: GraphSettings, taken: dict[Transformation, str]) -> str:
    uid = operator_uids(node, settings)[node]
    return uid if uid not in taken.values() else f"{uid}-end"


def _no_key(element: Any) -> int:
    del element
    return 0


def _steps(segment: _Segment, settings: GraphSettings) -> tuple[Step, ...]:
    return fused_steps(segment.steps, settings, is_followed=_key_step(segment.operator, settings) is not None)


def _key_step(operator: KeyedTransformation | None, settings: GraphSettings) -> KeyStep | None:
    return key_step(operator.key if operator else None, operator, settings)


def side_output_of(end: Transformation) -> SideOutputTransformation | None:
    """The side output from which stateless steps lead to an end; None: the end is a main output."""
    while isinstance(end, StepTransformation):
        end = end.inputs[0]
    return end if isinstance(end, SideOutputTransformation) else None


def last_operator_of(end: Transformation) -> KeyedTransformation | None:
    """The stateful operator from which stateless steps lead to an end; None: there is none, or a union of several."""
    while not isinstance(end, KeyedTransformation):
        if not isinstance(end, StepTransformation | SideOutputTransformation):
            return None
        end = end.inputs[0]
    return end


def has_several_outputs(operator: KeyedTransformation | None) -> bool:
    """True if different steps may follow the main output of an operator in one query."""
    return operator is not None and operator.kind in _TIMED | _WITH_BROADCAST and not operator.plan.vectorized


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
    key = _key_step(first.operator, settings)
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
    plan: OperatorPlan, node: KeyedTransformation, output_of: _Output, settings: GraphSettings
) -> OperatorPlan:
    """The operator with the steps after it and the next operator's key; unchanged if rows come in and go out."""
    after, sides, event_time_out = output_of.after, output_of.sides, output_of.event_time_out
    input_elements = (
        ConnectedElements(tuple(n.elements for n in node.inputs)) if node.connected else node.inputs[0].elements
    )
    key = _key_step(after.operator, settings)
    yields = after.tag.elements if after.tag else node.elements
    output = after.steps[-1].elements if after.steps else yields
    plain = isinstance(input_elements, RowElements) and isinstance(node.elements, RowElements) and after.tag is None
    # Event times in a column of their own are not columns of the user's rows.
    plain = plain and plan.timestamp_column != EVENT_TIME_COLUMN and not sides and not event_time_out
    if plain and node.key is None and key is None and not after.steps:
        return plan
    if plan.vectorized:
        raise InvalidRequestError(
            "aggregate and vectorised functions work on columns: key rows by columns, write the result or key it by "
            "columns, without map, flat_map, filter, union, connect or a key function in between",
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
        event_time_out=event_time_out,
        sides=tuple(side for side, _ in sides),
        has_main=output_of.is_read,
        gives_times=output_of.gives_times,
    )
    pickled = pickle_with_broadcasts(SparkContext._active_spark_context, operator)  # noqa: SLF001  as for functions
    schema = output.schema
    if event_time_out:
        schema = StructType([*schema.fields, StructField(EVENT_TIME_COLUMN, LongType())])
    if key is not None:
        schema = StructType([*schema.fields, StructField(KEY_COLUMN, from_arrow_type(key.key_type.arrow_type))])
    schema = StructType([*schema.fields, *side_output_fields([side.schema for side, _ in sides])])
    functions += [function for _, of_side in sides for function in of_side]
    shipped = PickledFunction(pickled.function, {**pickled.broadcasts, **broadcasts_of(functions)})
    return replace(plan, output_schema=schema, function=shipped)
