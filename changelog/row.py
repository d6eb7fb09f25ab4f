"""`Row`: an immutable record with optional field names, in the manner of PyFlink's and PySpark's rows.

A row unpacks as a tuple does. As in PyFlink, names count in `in` and in `==`, and no row equals a tuple. Rows cannot be
changed, because state keeps them as they are; `row.replace(a=1)` makes a new one.
"""

from __future__ import annotations

import collections
import enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, cast

if TYPE_CHECKING:
    from collections.abc import Iterable


_tuple: Any = tuple
make_row: Any = _tuple.__new__
"""`make_row(row_class(names), values)`: a row, without checks."""


_is_equal: Any = _tuple.__eq__
_get: Any = _tuple.__getitem__
_named_tuple: Any = collections.namedtuple  # noqa: PYI024 - of names that are not known here


class RowKind(enum.Enum):
    """Kinds of changes that a row of a table can be; rows here are always inserted."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    def __str__(self) -> str:
        return ("+I", "-U", "+U", "-D")[self.value]


class Row(tuple[Any, ...]):
    """A record: `Row(1, "a")`, or with names `Row(id=1, name="a")`.

    Fields are read by position (`row[0]`), by name (`row["id"]`) or as attributes (`row.id`). `"id" in row` asks for a
    name if the row has names, else for a value. Rows are equal if they have the same names, in any order, and the same
    values. `Row("id", "name")` may be called like a class, `Row("id", "name")(1, "a")`.
    """

    __slots__ = ()

    FIELD_NAMES: ClassVar[tuple[str, ...] | None] = None
    """Names of the fields; None for a row without names."""

    def __new__(cls, *values: Any, **named: Any) -> Row:  # noqa: PYI034 - each set of names has a class
        if named:
            if values:
                raise ValueError("a Row takes either values or named values, not both")
            return make_row(row_class(tuple(named)), named.values())
        return make_row(Row, values)

    @staticmethod
    def of_kind(row_kind: RowKind, *args: Any, **kwargs: Any) -> Row:
        """A row of that kind. Raises `ValueError` unless it is INSERT."""
        return Row(*args, **kwargs).set_row_kind(row_kind)

    def get_row_kind(self) -> RowKind:
        """INSERT."""
        return RowKind.INSERT

    def set_row_kind(self, row_kind: RowKind) -> Row:
        """The row itself. Raises `ValueError` unless the kind is INSERT."""
        if row_kind is not RowKind.INSERT:
            raise ValueError(
                f"a Row is always inserted, and cannot be of the kind {row_kind!r}: keep the kind in a field of its own"
            )
        return self

    def set_field_names(self, field_names: Iterable[str]) -> None:
        """Not possible: a row cannot be changed. Raises `TypeError` always."""
        names = ", ".join(map(str, field_names))
        raise TypeError(f"a Row cannot be changed; make one with names, row = Row(**dict(zip(({names}), row)))")

    def get_field_names(self) -> list[str] | None:
        """Names of the fields; None for a row without names."""
        return None if self.FIELD_NAMES is None else list(self.FIELD_NAMES)

    def as_dict(self, recursive: bool = False) -> dict[str, Any]:
        """Name → value. Raises `TypeError` for a row without names.

        Args:
            recursive: Turn rows inside values, lists and dicts into dicts as well.
        """
        if self.FIELD_NAMES is None:
            raise TypeError("a Row without field names cannot become a dict")
        return dict(zip(self.FIELD_NAMES, map(_plain, self) if recursive else self, strict=True))

    def get_fields_by_names(self, names: Iterable[str]) -> list[Any]:
        """The values of these fields, in this order. Raises `KeyError` for a name that the row does not have."""
        return [self[name] for name in names]

    def replace(self, **named: Any) -> Row:
        """A row with other values in these fields. Raises `KeyError` for a name that the row does not have."""
        values = list(self)
        for name, value in named.items():
            values[self._position(name)] = value
        return make_row(type(self), values)

    def _position(self, name: str) -> int:
        if self.FIELD_NAMES is None or name not in self.FIELD_NAMES:
            raise KeyError(name)
        return self.FIELD_NAMES.index(name)

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, str):
            return _get(self, self._position(item))
        return _get(self, item)

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"{self!r} has no field {name!r}") from None

    def __contains__(self, item: object) -> bool:
        return _tuple.__contains__(self, item) if self.FIELD_NAMES is None else item in self.FIELD_NAMES

    def __eq__(self, other: object) -> bool:
        if type(self) is type(other):
            return _is_equal(self, other)
        # PySpark's rows have names, too.
        others: Any = other.FIELD_NAMES if isinstance(other, Row) else getattr(other, "__fields__", None)
        names, values = self.FIELD_NAMES, cast("Any", other)
        if names is None or others is None or set(names) != set(others):
            return False
        return _is_equal(self, tuple([values[name] for name in names]))

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__: Any = _tuple.__hash__
    """Of the values in order, as in PyFlink: rows whose names have another order may differ in it though equal."""

    def __setitem__(self, item: Any, value: object) -> None:
        names = self.FIELD_NAMES or ()
        name = names[item] if isinstance(item, int) and -len(names) <= item < len(names) else item
        raise TypeError(self._remedy(name))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(self._remedy(name))

    def _remedy(self, name: object) -> str:
        remedy = f"row = row.replace({name}=...)" if name in (self.FIELD_NAMES or ()) else "row = Row(...)"
        return f"a Row cannot be changed, because state keeps it as it is; make another one, {remedy}"

    def __call__(self, *values: Any) -> Row:
        if len(values) != len(self):
            raise ValueError(f"cannot create a Row with fields {list(self)}: {len(values)} values are given")
        return make_row(row_class(tuple(self)), values)

    def __reduce__(self) -> tuple[Any, ...]:
        return _make_row, (self.FIELD_NAMES, tuple(self))

    def __repr__(self) -> str:
        if self.FIELD_NAMES is None:
            return f"<Row({', '.join(map(repr, self))})>"  # as PyFlink's and PySpark's
        return f"Row({', '.join(f'{name}={value!r}' for name, value in zip(self.FIELD_NAMES, self, strict=True))})"


@lru_cache(maxsize=1024)
def row_class(names: tuple[str, ...]) -> type[Row]:
    """The class of rows with these names; `make_row` makes them."""
    if len(set(names)) != len(names):
        raise ValueError(f"field names {list(names)} are not unique")
    shadowed = {"count", "index"}  # methods of tuple that fields replace
    # Descriptors of a named tuple read a field of any tuple without a call of Python: 0.05 µs in place of 0.4.
    # The class is kept until they are read: its dictionary does not keep it, and garbage collection empties that.
    fields = _named_tuple("Fields", [f"f{position}" for position in range(len(names))])
    getters: dict[str, Any] = {
        name: fields.__dict__[f"f{position}"]
        for position, name in enumerate(names)
        if name in shadowed or not hasattr(Row, name)
    }
    return type("Row", (Row,), {"__slots__": (), "FIELD_NAMES": names, **getters})


def _make_row(names: tuple[str, ...] | None, values: tuple[Any, ...]) -> Row:
    return make_row(Row if names is None else row_class(names), values)


def _plain(value: Any) -> Any:
    """A value whose rows have become dicts."""
    if isinstance(value, Row):
        return value.as_dict(recursive=True)
    nested: Any = value
    if isinstance(value, list):
        return [_plain(element) for element in nested]
    if isinstance(value, dict):
        return {key: _plain(element) for key, element in nested.items()}
    return value
