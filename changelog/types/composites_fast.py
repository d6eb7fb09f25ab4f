"""Fast paths of tuples and rows: columns of numbers from one visit of each tuple, freezing without a call per field.

Tuples and numbers are scattered in memory, and each visit of one is a miss of the processor's cache. Flattening the
tuples and then filling a column visits each number twice. `marshal` visits it once. Version 2 of its format, which
Python documents and keeps, writes an int below 2**31 in 5 bytes, a float in 9 and the head of a tuple in 5. So rows of
such numbers have one width, and numpy extracts the columns from them. Nothing in that format outlives the call.

The columns cost some 60 lines and the marshalled bytes of 4,096 rows at a time. They save a third: 100,000 tuples of a
long and a double take 13 instead of 19 ms.
"""

from __future__ import annotations

import marshal
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_FORMAT: Final = 2
_HEAD: Final = 5
"""Bytes before the first row."""
_TUPLE_HEAD: Final = [("tuple", "u1"), ("arity", "<i4")]
_NUMBERS: Final[dict[type[Any], tuple[bytes, str]]] = {int: (b"i", "<i4"), float: (b"g", "<f8")}
"""Type of the numbers → their mark and their numpy form."""
_PROBED: Final = 64
_AT_ONCE: Final = 4096
"""Rows of the first try, and of each further one: rows that do not fit mostly come in numbers, and show early."""


class FixedWidthRows:
    """Extracts the columns of lists of tuples whose fields are numbers of these types, ints or floats.

    Args:
        types: Of the fields, in order; at least one.
    """

    def __init__(self, types: Sequence[type[int | float]]) -> None:
        numbers = [_NUMBERS[type_] for type_ in types]
        fields = [
            (f"{what}{i}", form)
            for i, (_, form) in enumerate(numbers)
            for what, form in (("mark", "u1"), ("value", form))
        ]
        self._row = np.dtype([*_TUPLE_HEAD, *fields])
        self._names = [f"value{i}" for i in range(len(numbers))]
        self._expected = {"tuple": ord("("), "arity": len(numbers)} | {
            f"mark{i}": ord(mark) for i, (mark, _) in enumerate(numbers)
        }

    def columns(self, rows: Sequence[Any]) -> list[np.ndarray[Any, Any]] | None:
        """A column for each field, int32 or float64; not contiguous.

        None if some row is not a plain tuple of the number of fields, or some field not of its type (subclasses are
        not), or an int outside of [-2**31, 2**31).
        """
        if self._records(rows[:_PROBED]) is None:
            return None
        pieces = [rows] if len(rows) <= _AT_ONCE else _pieces(rows)
        records: list[np.ndarray[Any, Any]] = []
        for piece in pieces:
            piece_records = self._records(piece)
            if piece_records is None:
                return None
            records.append(piece_records)
        whole = records[0] if len(records) == 1 else np.concatenate(records)
        return [whole[name] for name in self._names]

    def _records(self, rows: Any) -> np.ndarray[Any, Any] | None:
        """The rows as numpy records; None if one does not fit."""
        try:
            data = marshal.dumps(rows, _FORMAT)
        except ValueError:  # an object that marshal does not take
            return None
        if len(data) != _HEAD + len(rows) * self._row.itemsize:
            return None
        records = np.frombuffer(data, self._row, offset=_HEAD)
        # If the marks of a row are right, so is its width, and the next row begins at the expected offset.
        return records if all((records[name] == mark).all() for name, mark in self._expected.items()) else None


def _pieces(rows: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (rows[start : start + _AT_ONCE] for start in range(0, len(rows), _AT_ONCE))


FIELDS_MAX: Final = 64
"""Composites with more fields are frozen field by field."""


def canonical_freezer(
    value_type: type[Any], field_tests: Sequence[str | None], slow: Callable[[Any], Any]
) -> Callable[[Any], Any] | None:
    """A function that returns a canonical value as it is, and `slow(value)` for any other.

    Args:
        value_type: The exact class of canonical values; a tuple or a subclass of it.
        field_tests: For each field an expression in which `{0}` is the value of the field and which is true only if
            that is canonical; None if there is no such expression. A field that is None is always canonical.
        slow: Freezes other values.

    Returns:
        The function, or None if a field has no test.
    """
    if len(field_tests) > FIELDS_MAX:
        return None
    tests: list[str] = []
    for i, test in enumerate(field_tests):
        if test is None:
            return None
        tests.append(f"({test.format(f'v{i}')} or v{i} is None)")
    names = "".join(f"v{i}, " for i in range(len(tests)))
    source = (
        "def freeze(value):\n"
        f"    if type(value) is value_type and len(value) == {len(tests)}:\n"
        f"        {names}= value\n"
        f"        if {' and '.join(tests)}:\n"
        "            return value\n"
        "    return slow(value)\n"
    )
    namespace: dict[str, Any] = {"value_type": value_type, "slow": slow}
    exec(source, namespace)  # noqa: S102 - the source holds constants of this package only
    return namespace["freeze"]
