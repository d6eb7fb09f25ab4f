"""A keyed function between elements that are not plain rows: how they come in, and what is done to what it yields.

An `ElementOperator` is what is shipped to the state workers instead of the function alone, when its elements are typed
values, when stateless functions follow it, or when the next operator's key is computed. Those functions run in the
state worker, on its output, so the cached answer is that of the whole chain and nothing is executed twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle

from varve.spark_integration.function_chain import ChainPlace, FunctionChain, KeyStep, Step

if TYPE_CHECKING:
    import pyarrow as pa

    from varve.spark_integration.arrow_rows import RowReader
    from varve.spark_integration.element_type import ElementReader, ElementType
    from varve.spark_integration.side_by_side import ConnectedElements, ConnectedReader


@dataclass(frozen=True, slots=True)
class ElementOperator:
    """A keyed function and its surroundings, as they travel."""

    function: bytes = field(repr=False)
    """The user's `KeyedProcessFunction`, pickled by cloudpickle."""
    input: ElementType | ConnectedElements
    """What it is given."""
    yields: ElementType
    """What it yields."""
    output: ElementType
    """What leaves the last step."""
    steps: tuple[Step, ...] = ()
    """Functions that its output goes through."""
    key: KeyStep | None = None
    """The key function of the operator that comes after them: one more column."""


class OperatorElements:
    """An `ElementOperator` in its state worker. Takes the place of the runner's row writer."""

    def __init__(self, operator: ElementOperator, uid: str, place: ChainPlace) -> None:
        """Load and open everything but the function itself. Raises `StepError`."""
        self._operator = operator
        self._writer = operator.output.writer(uid)
        self._chain = FunctionChain(operator.steps, operator.key, place)
        self._is_followed = bool(operator.steps) or operator.key is not None
        self.function: Any = cloudpickle.loads(operator.function)
        """The user's function, not yet opened."""
        self._chain.open()

    def reader(self, schema: pa.Schema) -> RowReader | ElementReader | ConnectedReader:
        """A reader of the function's elements."""
        return self._operator.input.reader(schema)

    def columns(self, rows: list[Any]) -> list[pa.Array]:
        """The columns of what the chain makes of the function's output.

        Raises:
            StepError: A function of the chain raised.
            InvalidRequestError: An element does not fit the output's type.
        """
        if self._is_followed:
            rows = self._operator.yields.conform(rows)
        elements, _ = self._chain.run(rows)
        columns = self._writer.columns(elements)
        return columns if self._operator.key is None else [*columns, self._chain.keys(elements)]

    def close(self) -> None:
        """Close the functions of the chain."""
        self._chain.close()
