"""Rows of a stream as values of a state: a row's timestamps are naive, in the local time zone, a state's are aware."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from varve.spark_integration.elements.arrow_rows import row_class
from varve.spark_integration.elements.arrow_values import in_order
from varve.spark_integration.elements.types import RowElements
from varve.spark_integration.operators.processors.states import ColumnValues

if TYPE_CHECKING:
    from varve.spark_integration.elements.types import ElementType


class RowValues:
    """Turns rows into what a state takes, and back."""

    def __init__(self, elements: RowElements) -> None:
        self._names = elements.schema.names
        self._values = ColumnValues(elements.schema, "a state of rows")
        self._make = partial(tuple.__new__, row_class(self._names))

    def inward(self, row: Any) -> Any:
        """What the state takes of a Row, a tuple or a dict. Raises `InvalidRequestError` if it is no such row."""
        names = self._names
        return self._values.inward(tuple(map(row.get, names)) if isinstance(row, dict) else in_order(row, names))

    def outward(self, stored: Any) -> Any:
        """The row."""
        return self._make(self._values.outward(stored))


def row_values(elements: ElementType | None) -> RowValues | None:
    """How elements become values of a state of their type; None: they are such values."""
    if isinstance(elements, RowElements) and "instant" in elements.state_type.notation():
        return RowValues(elements)
    return None
