"""Plans unions and connected streams: the branches that lead to the first operator."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from varvite.spark_integration.elements.side_by_side import ConnectedElements
from varvite.spark_integration.plan.fusion import broadcasts_of, fused_steps, key_step
from varvite.spark_integration.plan.input_branches import BranchedPreparation, InputBranch
from varvite.spark_integration.plan.input_watermarks import InputDelay
from varvite.spark_integration.plan.transformations import (
    CollectionSource,
    DataFrameSource,
    KeyedTransformation,
    KeyFunction,
    StepTransformation,
    Transformation,
    UnionTransformation,
)
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from varvite.spark_integration.plan.transformations import EventTime, GraphSettings

Source = DataFrameSource | CollectionSource
Path = tuple[Source, tuple[StepTransformation, ...]]
"""A source, and the steps after it."""


def paths_to(node: Transformation) -> Iterator[Path]:
    """Every path from a source to a node.

    Raises:
        InvalidRequestError: A stateful operator is on a path.
    """
    if isinstance(node, DataFrameSource | CollectionSource):
        yield node, ()
    elif isinstance(node, StepTransformation):
        for source, steps in paths_to(node.inputs[0]):
            yield source, (*steps, node)
    elif isinstance(node, UnionTransformation):
        for before in node.inputs:
            yield from paths_to(before)
    else:
        raise _stateful(node)


def check_can_meet(node: Transformation) -> None:
    """Check that a stream can be united or connected. Raises `InvalidRequestError`."""
    for before in node.lineage():
        if isinstance(before, KeyedTransformation):
            raise _stateful(before)


def _stateful(node: Transformation) -> InvalidRequestError:
    return InvalidRequestError(
        f"a stream that a stateful operator ({node.kind}) has made cannot be united or connected: unite and connect "
        "streams before the first stateful operator, or write this one and read it in a job of its own"
    )


def plan_branches(
    head: UnionTransformation | KeyedTransformation,
    steps: Sequence[StepTransformation],
    operator: KeyedTransformation | None,
    sources: Sequence[Source],
    settings: GraphSettings,
) -> tuple[BranchedPreparation, tuple[InputDelay, ...]]:
    """The branches that lead to the first operator, and the watermark of each.

    Args:
        head: A union, or the operator that reads connected streams.
        steps: Steps between the union and the operator.
        operator: The first operator; None: the job has none.
        sources: All sources; a branch refers to its source by position.
        settings: Names of the steps.

    Raises:
        InvalidRequestError: A stateful operator is on a path.
    """
    connected = head.connected if isinstance(head, KeyedTransformation) else ()
    branches: list[InputBranch] = []
    delays: list[InputDelay] = []
    functions = [step.function for step in steps]
    for number, node in enumerate(head.inputs if connected else (head,)):
        key = connected[number].function if connected else operator.key if operator else None
        columns = connected[number].columns if connected and key is None else ()
        for source, before in paths_to(node):
            branch, delay = _branch(source, (*before, *steps), key, settings)
            stream = number if connected else None
            branches.append(replace(branch, source=sources.index(source), key_columns=columns, number=stream))
            delays.append(delay)
            functions += [step.function for step in before]
        if key is not None:
            functions.append(key.function)
    timed = any(b.event_time_from or any(s.kind == "timestamps" for s in b.timing) for b in branches)
    key_type = connected[0].key_type if connected else operator.key.key_type if operator and operator.key else None
    output = ConnectedElements(tuple(node.elements for node in head.inputs)) if connected else branches[0].output
    preparation = BranchedPreparation(
        branches=tuple(branches),
        output=output,
        key_type=key_type,
        event_time_out=timed and operator is not None,
        broadcasts=broadcasts_of(functions),
    )
    return preparation, tuple(delays)


def _branch(
    source: Source, path: Sequence[StepTransformation], key: KeyFunction | None, settings: GraphSettings
) -> tuple[InputBranch, InputDelay]:
    source_time = source.event_time if isinstance(source, DataFrameSource) else None
    assigned = [i for i, step in enumerate(path) if step.step == "timestamps"]
    timed = assigned[-1] + 1 if assigned else 0
    fused = fused_steps(path, settings, is_followed=key is not None)
    branch = InputBranch(
        source=0,
        input=source.elements,
        output=path[-1].elements if path else source.elements,
        timing=fused[:timed],
        steps=fused[timed:],
        key=key_step(key),
        key_columns=(),
        event_time_from=source_time.column if source_time else None,
        number=None,
    )
    if assigned:
        last = path[assigned[-1]]
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
