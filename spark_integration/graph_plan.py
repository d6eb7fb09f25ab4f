"""From the graph of transformations to what runs: the input's preparation and the operators, stateless steps fused in.

```
source → map → filter → key_by → process → map → print
         └── Preparation, with the key ──┘ └── ElementOperator ──┘
```
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from pyspark import SparkContext
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from varve.spark_integration.chain_task import CHANGING, Preparation
from varve.spark_integration.element_operator import ElementOperator
from varve.spark_integration.element_type import RowElements
from varve.spark_integration.function_chain import KeyStep, Step
from varve.spark_integration.function_shipment import PickledFunction, pickle_with_broadcasts
from varve.spark_integration.job_plan import EventTime
from varve.spark_integration.protocol import EVENT_TIME_COLUMN, KEY_COLUMN
from varve.spark_integration.transformations import (
    CollectionSource,
    DataFrameSource,
    GraphSettings,
    KeyedTransformation,
    StepTransformation,
    Transformation,
    operator_uids,
)
from varve.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varve.spark_integration.element_type import ElementType
    from varve.spark_integration.operator_plan import OperatorPlan


@dataclass(frozen=True, kw_only=True)
class GraphPlan:
    """What leads to one sink."""

    source: DataFrameSource | CollectionSource
    preparation: Preparation | None
    """What happens to the source's rows first; None: nothing."""
    operators: tuple[OperatorPlan, ...]
    """In order; the first reads the prepared rows. There may be none."""
    watermark_delay_ms: int | None
    elements: ElementType
    """What comes out at the end."""


@dataclass(frozen=True)
class _Segment:
    """Steps in a row, and the stateful operator that they lead to."""

    steps: tuple[StepTransformation, ...]
    operator: KeyedTransformation | None


def plan_graph(end: Transformation, settings: GraphSettings) -> GraphPlan:
    """The plan of what leads to this transformation.

    Raises:
        InvalidRequestError: Uids are not unique, or the graph has a shape that cannot run.
    """
    source, segments = _segments(end)
    uids = operator_uids(end, settings)
    preparation, event_time = _preparation(source, segments[0], settings)
    operators: list[OperatorPlan] = []
    for here, after in pairwise(segments):
        node = here.operator
        if node is None:
            break
        said = settings.of(node)
        column = event_time.column if event_time and not operators else node.plan.timestamp_column
        plan = replace(
            node.plan,
            uid=uids[node],
            name=said.name or uids[node],
            parallelism=said.parallelism,
            timestamp_column=column,
            prepare=node.plan.prepare and node.plan.prepare.with_event_time(column),
        )
        operators.append(_with_elements(plan, node, after, settings))
    return GraphPlan(
        source=source,
        preparation=preparation,
        operators=tuple(operators),
        watermark_delay_ms=event_time.delay_ms if event_time else None,
        elements=end.elements,
    )


def _segments(end: Transformation) -> tuple[DataFrameSource | CollectionSource, list[_Segment]]:
    """The source, and the way to the end cut after each stateful operator; the last segment has no operator."""
    segments: list[_Segment] = []
    steps: list[StepTransformation] = []
    source: DataFrameSource | CollectionSource | None = None
    for node in end.lineage():
        if isinstance(node, StepTransformation):
            steps.append(node)
        elif isinstance(node, KeyedTransformation):
            segments.append(_Segment(tuple(steps), node))
            steps = []
        elif isinstance(node, DataFrameSource | CollectionSource) and source is None:
            source = node
        else:
            raise InvalidRequestError(f"a stream of several inputs cannot run yet: {node.kind}")
    if source is None:
        raise InvalidRequestError("the stream has no source")
    return source, [*segments, _Segment(tuple(steps), None)]


def step_name(node: StepTransformation, settings: GraphSettings) -> str:
    """A step's name, for people."""
    return settings.of(node).name or node.kind


def _steps(segment: _Segment, settings: GraphSettings) -> tuple[Step, ...]:
    """The steps; each but the last brings its elements to their declared type, as if they had been sent."""
    followed = len(segment.steps) - (0 if _key_step(segment.operator) else 1)
    return tuple(
        Step(
            node.step,
            step_name(node, settings),
            node.function.function,
            node.elements if place < followed and node.step in CHANGING else None,
        )
        for place, node in enumerate(segment.steps)
    )


def _key_step(operator: KeyedTransformation | None) -> KeyStep | None:
    key = operator.key if operator else None
    return KeyStep(key.function.function, key.key_type) if key else None


def _broadcasts(functions: Sequence[PickledFunction]) -> dict[int, object]:
    return {i: b for function in functions for i, b in function.broadcasts.items()}


def _preparation(
    source: DataFrameSource | CollectionSource, first: _Segment, settings: GraphSettings
) -> tuple[Preparation | None, EventTime | None]:
    """What happens before the first operator, and the event time of the rows that come out."""
    own = source.event_time if isinstance(source, DataFrameSource) else None
    key = _key_step(first.operator)
    if not first.steps and key is None:
        return None, own
    assigned = [step for step in first.steps if step.step == "timestamps"]
    output = first.steps[-1].elements if first.steps else source.elements
    # Elements that are no longer the input's rows have their time stamps beside them.
    beside = bool(assigned) or (own is not None and any(step.step != "timestamps" for step in first.steps))
    functions = [step.function for step in first.steps]
    if first.operator is not None and first.operator.key is not None:
        functions.append(first.operator.key.function)
    preparation = Preparation(
        input=source.elements,
        output=output,
        steps=_steps(first, settings),
        key=key,
        event_time_from=own.column if own else None,
        event_time_out=beside and first.operator is not None,
        broadcasts=_broadcasts(functions),
    )
    if not beside:
        return preparation, own
    delay = assigned[-1].watermark_delay_ms if assigned else own.delay_ms if own else None
    return preparation, EventTime(EVENT_TIME_COLUMN, delay)


def _with_elements(
    plan: OperatorPlan, node: KeyedTransformation, after: _Segment, settings: GraphSettings
) -> OperatorPlan:
    """The operator with the steps that follow it and with the next operator's key; rows in and out need nothing."""
    late = next((step for step in after.steps if step.step == "timestamps"), None)
    if late is not None:
        raise InvalidRequestError(
            "assign_timestamps_and_watermarks is possible before the first stateful operator only; call it there",
            operator=plan.uid,
        )
    given, key = node.inputs[0].elements, _key_step(after.operator)
    output = after.steps[-1].elements if after.steps else node.elements
    plain = isinstance(given, RowElements) and isinstance(node.elements, RowElements)
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
        input=given,
        yields=node.elements,
        output=output,
        steps=_steps(after, settings),
        key=key,
    )
    pickled = pickle_with_broadcasts(SparkContext._active_spark_context, operator)  # noqa: SLF001  as for functions
    schema = output.schema
    if key is not None:
        schema = StructType([*schema.fields, StructField(KEY_COLUMN, from_arrow_type(key.key_type.arrow_type))])
    shipped = PickledFunction(pickled.function, {**pickled.broadcasts, **_broadcasts(functions)})
    return replace(plan, output_schema=schema, function=shipped)
