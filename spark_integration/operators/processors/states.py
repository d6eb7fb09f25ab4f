"""Spark's value, list and map state over varvite's keyed state: tuples in, tuples out.

Values have the form of Spark's own handles: a state's value is a tuple with one item for each column of its schema. A
timestamp is a naive datetime in the local time zone, a struct a Row, an array a list, a map a dict; numpy and pandas
values become plain ones.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from varvite.spark_integration.elements.arrow_rows import row_class
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from varvite.changelog.api import state
    from varvite.spark_integration.elements.row_values import ColumnValues


class ProcessorValueState:
    """Spark's `ValueState`."""

    def __init__(self, handle: state.ValueState[Any], values: ColumnValues) -> None:
        self._handle = handle
        self._values = values

    def exists(self) -> bool:
        """True if there is a value."""
        return self._handle.value() is not None

    def get(self) -> tuple[Any, ...] | None:
        """The value; None if there is none."""
        stored = self._handle.value()
        return None if stored is None else self._values.outward(stored)

    def update(self, newValue: tuple[Any, ...]) -> None:
        """Set the value. Raises `InvalidRequestError` if it does not fit the schema."""
        self._handle.update(self._values.inward(newValue))

    def clear(self) -> None:
        """Remove the value."""
        self._handle.clear()


class ProcessorListState:
    """Spark's `ListState`."""

    def __init__(self, handle: state.ListState[Any], values: ColumnValues) -> None:
        self._handle = handle
        self._values = values

    def exists(self) -> bool:
        """True if there is an element."""
        return bool(self._handle.get())

    def get(self) -> Iterator[tuple[Any, ...]]:
        """The elements, as they are now."""
        return iter(list(map(self._values.outward, self._handle.get())))

    def put(self, newState: list[tuple[Any, ...]]) -> None:
        """Replace the elements by these, at least one. Raises `InvalidRequestError` if they do not fit the schema."""
        self._handle.update(self._elements(newState))

    def appendValue(self, newState: tuple[Any, ...]) -> None:
        """Add an element. Raises `InvalidRequestError` if it does not fit the schema."""
        self._handle.add(self._values.inward(newState))

    def appendList(self, newState: list[tuple[Any, ...]]) -> None:
        """Add elements, at least one. Raises `InvalidRequestError` if they do not fit the schema."""
        self._handle.add_all(self._elements(newState))

    def clear(self) -> None:
        """Remove all elements."""
        self._handle.clear()

    def _elements(self, values: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        elements = list(map(self._values.inward, values))
        if not elements:
            raise InvalidRequestError("a list state takes at least one element at once, as on Spark; call clear()")
        return elements


class ProcessorMapState:
    """Spark's `MapState`."""

    def __init__(self, handle: state.MapState[Any, Any], keys: ColumnValues, values: ColumnValues) -> None:
        self._handle = handle
        self._keys = keys
        self._values = values
        self._as_row = partial(tuple.__new__, row_class(values.type.names))

    def exists(self) -> bool:
        """True if there is an entry."""
        return not self._handle.is_empty()

    def getValue(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The value of a key; None if there is none."""
        stored = self._handle.get(self._keys.inward(key))
        # A Row, unlike the tuples of the other methods, as on Spark.
        return None if stored is None else self._as_row(self._values.outward(stored))

    def containsKey(self, key: tuple[Any, ...]) -> bool:
        """True if the key has a value."""
        return self._handle.contains(self._keys.inward(key))

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        """Set the value of a key. Raises `InvalidRequestError` if they do not fit the schemas."""
        self._handle.put(self._keys.inward(key), self._values.inward(value))

    def iterator(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """The entries, as they are now."""
        entries = self._handle.items()
        return iter([(self._keys.outward(key), self._values.outward(value)) for key, value in entries])

    def keys(self) -> Iterator[tuple[Any, ...]]:
        """The keys, as they are now."""
        return iter(list(map(self._keys.outward, self._handle.keys())))

    def values(self) -> Iterator[tuple[Any, ...]]:
        """The values, as they are now."""
        return iter(list(map(self._values.outward, self._handle.values())))

    def removeKey(self, key: tuple[Any, ...]) -> None:
        """Remove the entry of a key; a missing one is no error."""
        self._handle.remove(self._keys.inward(key))

    def clear(self) -> None:
        """Remove all entries."""
        self._handle.clear()
