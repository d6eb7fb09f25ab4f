"""`ElementOperator`: a keyed function with the types of its elements and the stateless functions after it.

It is sent to the state workers instead of the function alone if the elements are typed values, if stateless functions
follow, or if the next operator's key is computed. Those functions run in the state worker, on the function's output. So
the cached answer is that of the whole chain, and nothing is executed twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import compress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import cloudpickle

from varvite.spark_integration.elements.side_by_side import with_side_outputs
from varvite.spark_integration.functions.output_tag import is_tagged
from varvite.spark_integration.plan.function_chain import ChainPlace, FunctionChain, KeyStep, Stamps, Step

if TYPE_CHECKING:
    from varvite.spark_integration.elements.arrow_rows import RowReader
    from varvite.spark_integration.elements.side_by_side import ConnectedElements, ConnectedReader
    from varvite.spark_integration.elements.types import ElementReader, ElementType
    from varvite.spark_integration.functions.metrics import MetricRegistry


@dataclass(frozen=True, slots=True)
class SideOutput:
    """An output of the function beside the one that it has first."""

    tag_id: str | None
    """None: the function's main output once more, for other steps."""
    yields: ElementType
    """Elements that the function yields for it."""
    output: ElementType
    """Output of the last step."""
    steps: tuple[Step, ...] = ()
    """Functions on these elements."""


@dataclass(frozen=True, slots=True)
class ElementOperator:
    """A keyed function, its elements, and the functions after it."""

    function: bytes = field(repr=False)
    """The user's `KeyedProcessFunction`, pickled by cloudpickle."""
    input: ElementType | ConnectedElements
    """Elements of the input."""
    yields: ElementType
    """Elements that the function yields."""
    output: ElementType
    """Output of the last step."""
    steps: tuple[Step, ...] = ()
    """Functions on its output."""
    key: KeyStep | None = None
    """The key function of the next operator: one more column."""
    tag_id: str | None = None
    """The side output that is read in the place of the main one."""
    event_time_out: bool = False
    """The next operator reads event times: one more column, with that of each element that the function yields."""
    has_timed_steps: bool = False
    """Functions after it read event times."""
    sides: tuple[SideOutput, ...] = ()
    """Side outputs that are read: a column with the output's number, and a struct column for each."""


class OperatorElements:
    """An `ElementOperator` in its state worker, instead of the runner's row writer."""

    def __init__(
        self, operator: ElementOperator, uid: str, place: ChainPlace, metrics: MetricRegistry | None = None
    ) -> None:
        """Load and open everything but the function itself. Raises `StepError`."""
        self._operator = operator
        self._writer = operator.output.writer(uid)
        self._chain = FunctionChain(operator.steps, operator.key, place, metrics)
        self._is_followed = bool(operator.steps) or operator.key is not None
        self.has_times = operator.event_time_out or operator.has_timed_steps
        """`columns` takes pairs of an event time and an element."""
        self._sides = [_SideWriter(side, uid, place, metrics) for side in operator.sides]
        self.function: Any = cloudpickle.loads(operator.function)
        """The user's function, not yet opened."""
        self._chain.open()
        for side in self._sides:
            side.chain.open()

    def reader(self, schema: pa.Schema) -> RowReader | ElementReader | ConnectedReader:
        """A reader of the function's elements."""
        return self._operator.input.reader(schema)

    def columns(self, rows: list[Any]) -> list[pa.Array]:
        """The columns of the main output, then of each side output, after the functions on them.

        Elements for a side output that is not read are dropped, as in Flink.

        Raises:
            StepError: A function of the chain raised.
            InvalidRequestError: An element does not fit the output's type.
        """
        stamps: Stamps = None
        if self.has_times:
            stamps, rows = [stamp for stamp, _ in rows], [row for _, row in rows]
        tagged: list[Any] = []
        tagged_stamps = stamps
        if self._operator.tag_id is not None or any(map(is_tagged, rows)):
            tagged, tagged_stamps = selected(rows, stamps, [is_tagged(row) for row in rows])
            rows, stamps = self._main(rows, stamps)
        main = self._main_columns(rows, stamps)
        if not self._sides:
            return main
        return with_side_outputs(main, [side.columns(tagged, tagged_stamps, rows, stamps) for side in self._sides])

    def _main(self, rows: list[Any], stamps: Stamps) -> tuple[list[Any], Stamps]:
        """The elements of the output that the function has first."""
        tag_id = self._operator.tag_id
        if tag_id is None:
            return selected(rows, stamps, [not is_tagged(row) for row in rows])
        of_tag, stamps = selected(rows, stamps, [is_tagged(row) and row[0].tag_id == tag_id for row in rows])
        return [value for _, value in of_tag], stamps

    def _main_columns(self, rows: list[Any], stamps: Stamps) -> list[pa.Array]:
        if self._is_followed:
            rows = self._operator.yields.conform(rows)
        elements, stamps = self._chain.run(rows, stamps)
        columns = self._writer.columns(elements)
        if self._operator.event_time_out:
            columns = [*columns, pa.array(stamps or [None] * len(elements), pa.int64())]
        return columns if self._operator.key is None else [*columns, self._chain.keys(elements)]

    def close(self) -> None:
        """Close the functions of the chain."""
        self._chain.close()
        for side in self._sides:
            side.chain.close()


class _SideWriter:
    """A side output in its state worker."""

    def __init__(self, side: SideOutput, uid: str, place: ChainPlace, metrics: MetricRegistry | None) -> None:
        self._side = side
        self._writer = side.output.writer(uid)
        self.chain = FunctionChain(side.steps, None, place, metrics)

    def columns(self, tagged: list[Any], tagged_stamps: Stamps, main: list[Any], main_stamps: Stamps) -> pa.StructArray:
        """The rows of this output among all elements. Raises `StepError`, `InvalidRequestError`."""
        side = self._side
        elements, stamps = main, main_stamps
        if side.tag_id is not None:
            of_tag, stamps = selected(tagged, tagged_stamps, [tag.tag_id == side.tag_id for tag, _ in tagged])
            elements = [value for _, value in of_tag]
        if side.steps:
            elements = side.yields.conform(elements)
        elements, _ = self.chain.run(elements, stamps)
        return pa.StructArray.from_arrays(self._writer.columns(elements), names=side.output.schema.names)


def selected(rows: list[Any], stamps: Stamps, is_selected: list[bool]) -> tuple[list[Any], Stamps]:
    """Some of the rows, with their event times."""
    return list(compress(rows, is_selected)), None if stamps is None else list(compress(stamps, is_selected))
