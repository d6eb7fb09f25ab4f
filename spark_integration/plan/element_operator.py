"""`ElementOperator`: a keyed function with the types of its elements and the stateless functions after it.

It is sent to the state workers instead of the function alone if the elements are typed values, if stateless functions
follow, or if the next operator's key is computed. Those functions run in the state worker, on the function's output. So
the cached answer is that of the whole chain, and nothing is executed twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.pandas.types import to_arrow_schema

from varvite.spark_integration.elements.side_by_side import with_side_outputs
from varvite.spark_integration.functions.output_tag import is_tagged
from varvite.spark_integration.plan.function_chain import ChainPlace, FunctionChain, KeyStep, Stamps, Step

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from varvite.spark_integration.elements.arrow_rows import RowReader
    from varvite.spark_integration.elements.side_by_side import ConnectedElements, ConnectedReader
    from varvite.spark_integration.elements.types import ElementReader, ElementType
    from varvite.spark_integration.functions.metrics import MetricRegistry
    from varvite.spark_integration.plan.input_branches import BranchForm


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
    key: KeyStep | None = None
    """The key function of the operator that reads it."""
    form: BranchForm | None = None
    """The form in which an operator reads it beside other streams; None: it goes to a sink."""

    @property
    def schema(self) -> StructType:
        """Its columns."""
        return self.output.schema if self.form is None else self.form.schema


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
    sides: tuple[SideOutput, ...] = ()
    """Side outputs that are read: a column with the output's number, and a struct column for each."""
    has_main: bool = True
    """False: the main output is not read, but as one of `sides`."""
    gives_times: bool = False
    """Functions after it, or side outputs, get the event times of the elements that the function yields."""


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
        self.has_times = operator.event_time_out or operator.gives_times
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
        operator = self._operator
        stamps: Stamps = None
        if self.has_times:
            stamps, rows = [stamp for stamp, _ in rows], [row for _, row in rows]
        has_tagged = any(map(is_tagged, rows))
        if operator.has_main:
            elements, times = _of_output(operator.tag_id, rows, stamps, has_tagged=has_tagged)
        else:
            elements, times = [], None
        main = self._main_columns(elements, times)
        if not self._sides:
            return main
        sides = [side.columns(*_of_output(side.tag_id, rows, stamps, has_tagged=has_tagged)) for side in self._sides]
        return with_side_outputs(main, sides)

    def _main_columns(self, rows: list[Any], stamps: Stamps) -> list[pa.Array]:
        if self._is_followed:
            rows = self._operator.yields.conform(rows)
        elements, stamps = self._chain.run(rows, stamps)
        columns = self._writer.columns(elements)
        if self._operator.event_time_out:
            columns = [*columns, pa.array(stamps or [], pa.int64())]
        return columns if self._operator.key is None else [*columns, self._chain.keys(elements)]

    def close(self) -> None:
        """Close the functions of the chain."""
        self._chain.close()
        for side in self._sides:
            side.chain.close()


def _of_output(tag_id: str | None, rows: list[Any], stamps: Stamps, *, has_tagged: bool) -> tuple[list[Any], Stamps]:
    """The elements of an output among all that a function has yielded, with their event times."""
    if tag_id is None and not has_tagged:
        return rows, stamps
    at = [i for i, row in enumerate(rows) if (row[0].tag_id if is_tagged(row) else None) == tag_id]
    elements = [rows[i] if tag_id is None else rows[i][1] for i in at]
    return elements, None if stamps is None else [stamps[i] for i in at]


class _SideWriter:
    """A side output in its state worker."""

    def __init__(self, side: SideOutput, uid: str, place: ChainPlace, metrics: MetricRegistry | None) -> None:
        self._side = side
        self.tag_id = side.tag_id
        self._writer = side.output.writer(uid)
        self._schema: pa.Schema = to_arrow_schema(side.schema, timezone="UTC")
        self.chain = FunctionChain(side.steps, side.key, place, metrics)

    def columns(self, elements: list[Any], stamps: Stamps) -> pa.StructArray:
        """The rows of this output. Raises `StepError`, `InvalidRequestError`."""
        side, form = self._side, self._side.form
        if side.steps or side.key is not None:
            elements = side.yields.conform(elements)
        elements, stamps = self.chain.run(elements, stamps)
        columns = self._writer.columns(elements)
        if form is not None:
            keys = None if side.key is None else self.chain.keys(elements)
            columns = form.columns(side.output.schema.names, columns, stamps, keys, self._schema)
        return pa.StructArray.from_arrays(columns, names=side.schema.names)
