"""Spark's value, list and map state over varve's keyed state: tuples in, tuples out.

Values are what Spark's own handles take and give: a state's value is a tuple with one item for each column of its
schema. A timestamp is a naive datetime in the local time zone, a struct a Row, an array a list, a map a dict; numpy and
pandas values become plain ones.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from varve.changelog.types.collections import MapType, SequenceType
from varve.changelog.types.composites import RowType
from varve.changelog.types.times import InstantType, SqlTimestampType
from varve.changelog.types.factory import as_type
from varve.spark_integration.elements.arrow_rows import row_class
from varve.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import tzinfo

    from varve.changelog.api import state
    from varve.changelog.types.wire import WireType

_PLAIN: Final = frozenset({bool, int, float, str, bytes, datetime, type(None)})


def columns_type(schema: Any, what: str) -> RowType:
    """The type of a state's values.

    Args:
        schema: A StructType or a DDL string of columns.
        what: For errors.

    Raises:
        InvalidRequestError: It is no list of columns, or holds a type that state cannot hold.
    """
    found = as_type(schema)
    if not isinstance(found, RowType):
        raise InvalidRequestError(
            f"the schema of {what} is {schema!r}; give columns, as a StructType or a DDL string such as 'count bigint'"
        )
    return found


def plain_value(value: Any) -> Any:  # noqa: PLR0911  one line for each kind of value
    """A numpy or pandas value as Python's own; anything else as it is."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if hasattr(value, "to_pytimedelta"):
        return value.to_pytimedelta()
    if hasattr(value, "to_pydatetime"):
        return plain_value(value.to_pydatetime())
    if kind.__module__ == "numpy":
        return plain_value(value.tolist())
    if isinstance(value, dict):
        items: Any = value
        return {plain_value(k): plain_value(v) for k, v in items.items()}
    if isinstance(value, list | tuple):
        held: Any = value
        if hasattr(value, "__fields__"):
            return dict(zip(held.__fields__, map(plain_value, held), strict=True))
        return list(map(plain_value, held)) if isinstance(value, list) else tuple(map(plain_value, held))
    return value


class ColumnValues:
    """Turns a state's tuples into what varve's state takes, and back.

    Args:
        schema: Of the state.
        what: For errors.
    """

    def __init__(self, schema: Any, what: str) -> None:
        self.type = columns_type(schema, what)
        self._what = what
        self._writers = [value_writer(kind) for kind in self.type.types]
        readers = [_reader(kind) for kind in self.type.types]
        self._readers = readers if any(r is not None for r in readers) else None

    def inward(self, value: Any) -> tuple[Any, ...]:
        """What varve's state takes. Raises `InvalidRequestError` if it is no tuple of the schema's width."""
        if not isinstance(value, tuple | list):
            raise InvalidRequestError(
                f"{self._what} takes a tuple with a value for each of {list(self.type.names)}, not {value!r}"
            )
        given: Any = value
        if len(given) != self.type.arity:
            raise InvalidRequestError(
                f"{self._what} takes a tuple of {self.type.arity} values {list(self.type.names)}, not {value!r}"
            )
        try:
            return tuple([_converted(write, plain_value(i)) for i, write in zip(given, self._writers, strict=True)])
        except (OverflowError, ValueError) as error:
            problem = f"{self._what} takes timestamps of the years 1 to 9999 in every time zone, not {value!r}: {error}"
            raise InvalidRequestError(problem) from error

    def outward(self, stored: Any) -> tuple[Any, ...]:
        """What Spark would give."""
        if self._readers is None:
            return tuple(stored)
        return tuple(
            [
                item if read is None or item is None else read(item)
                for item, read in zip(stored, self._readers, strict=True)
            ]
        )


def value_writer(  # noqa: PLR0911  one line for each kind of type
    kind: WireType, zone: tzinfo | None = None
) -> Callable[[Any], Any] | None:
    """How a plain value becomes one of that type: a naive datetime is of a time zone, where the type has one.

    Args:
        kind: The type.
        zone: The time zone; None: the local one.

    Returns:
        None if a plain value is one already.
    """
    if isinstance(kind, InstantType):
        return partial(_in_zone, zone)
    if isinstance(kind, SqlTimestampType):
        return lambda given: given.astimezone(zone).replace(tzinfo=None) if _is_aware(given) else given
    if isinstance(kind, RowType):
        writers = {name: value_writer(field, zone) for name, field in zip(kind.names, kind.types, strict=True)}
        return partial(_written_fields, writers) if any(writers.values()) else None
    if isinstance(kind, MapType):
        of_key, of_value = value_writer(kind.key, zone), value_writer(kind.value, zone)
        if of_key is None and of_value is None:
            return None
        return partial(_written_entries, of_key, of_value)
    if isinstance(kind, SequenceType):
        of_item = value_writer(kind.element, zone)
        if of_item is None:
            return None
        return lambda held: [_converted(of_item, i) for i in held] if isinstance(held, list | tuple) else held
    return None


def _in_zone(zone: tzinfo | None, value: Any) -> Any:
    if not isinstance(value, datetime) or value.tzinfo is not None:
        return value
    return value.astimezone() if zone is None else value.replace(tzinfo=zone)


def _is_aware(value: Any) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None


def _written_entries(of_key: Callable[[Any], Any] | None, of_value: Callable[[Any], Any] | None, given: Any) -> Any:
    if not isinstance(given, dict):
        return given  # which is refused later
    entries: Any = given
    return {_converted(of_key, key): _converted(of_value, value) for key, value in entries.items()}


def _written_fields(writers: Mapping[str, Callable[[Any], Any] | None], given: Any) -> Any:
    """The fields of a struct, by name or in order; what is no such struct stays as it is, and is refused later."""
    if isinstance(given, dict):
        named: Any = given
        return {name: _converted(writers.get(name), value) for name, value in named.items()}
    if isinstance(given, list | tuple) and len(given) == len(writers):
        return tuple([_converted(write, value) for write, value in zip(writers.values(), given, strict=True)])
    return given


def _reader(kind: WireType) -> Callable[[Any], Any] | None:
    """How a value of that type becomes what Spark gives; None if it is that already."""
    if isinstance(kind, InstantType):
        return lambda moment: moment.astimezone().replace(tzinfo=None)
    if isinstance(kind, RowType):
        readers = [_reader(field) for field in kind.types]
        make = row_class(kind.names)
        return lambda row: tuple.__new__(
            make, [i if r is None or i is None else r(i) for i, r in zip(row, readers, strict=True)]
        )
    if isinstance(kind, MapType):
        of_key, of_value = _reader(kind.key), _reader(kind.value)
        if of_key is None and of_value is None:
            return None
        return lambda held: {_converted(of_key, k): _converted(of_value, v) for k, v in held.items()}
    if isinstance(kind, SequenceType):
        of_item = _reader(kind.element)
        return None if of_item is None else lambda held: [_converted(of_item, item) for item in held]
    return None


def _converted(convert: Callable[[Any], Any] | None, value: Any) -> Any:
    return value if convert is None or value is None else convert(value)


class ProcessorValueState:
    """Spark's `ValueState`."""

    def __init__(self, handle: state.ValueState[Any], values: ColumnValues) -> None:
        self._handle = handle
        self._values = values

    def exists(self) -> bool:
        """Whether there is a value."""
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
        """Whether there is an element."""
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

    def _elements(self, given: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        elements = list(map(self._values.inward, given))
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
        """Whether there is an entry."""
        return not self._handle.is_empty()

    def getValue(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The value of a key; None if there is none."""
        stored = self._handle.get(self._keys.inward(key))
        # A Row, unlike what the other methods give; so it is on Spark.
        return None if stored is None else self._as_row(self._values.outward(stored))

    def containsKey(self, key: tuple[Any, ...]) -> bool:
        """Whether the key has a value."""
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
