"""Columns of tuples of numbers, from one visit of every tuple.

Tuples and numbers lie anywhere in memory, and each visit of them is a miss of the processor's cache: to flatten the
tuples and then fill a column visits each number twice. `marshal` visits it once, and version 2 of its format (which
Python documents and keeps) writes an int below 2**31 in 5 bytes, a float in 9 and the head of a tuple in 5. So rows of
such numbers are of one width, and numpy finds the columns in them. Nothing of it outlives the call.
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
"""Type of the numbers → their mark, and how they are written."""
_PROBED: Final = 64
_AT_ONCE: Final = 4096
"""Rows that are tried first, and then together: what does not fit is mostly among many of its kind, and found early."""


class FixedWidthRows:
    """Finds the columns of lists of tuples whose fields are numbers of these types, ints or floats.

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
        if self._found(rows[:_PROBED]) is None:
            return None
        pieces = [rows] if len(rows) <= _AT_ONCE else _pieces(rows)
        found: list[np.ndarray[Any, Any]] = []
        for piece in pieces:
            numbers = self._found(piece)
            if numbers is None:
                return None
            found.append(numbers)
        whole = found[0] if len(found) == 1 else np.concatenate(found)
        return [whole[name] for name in self._names]

    def _found(self, rows: Any) -> np.ndarray[Any, Any] | None:
        try:
            data = marshal.dumps(rows, _FORMAT)
        except ValueError:  # something that marshal does not know
            return None
        if len(data) != _HEAD + len(rows) * self._row.itemsize:
            return None
        found = np.frombuffer(data, self._row, offset=_HEAD)
        # If the marks of a row are right, so is its width, and the next row begins where it is looked for.
        return found if all((found[name] == mark).all() for name, mark in self._expected.items()) else None


def _pieces(rows: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (rows[start : start + _AT_ONCE] for start in range(0, len(rows), _AT_ONCE))


FIELDS_MAX: Final = 64
"""Composites with more fields are frozen field by field."""


def canonical_freezer(
    value_type: type[Any], field_tests: Sequence[str | None], slow: Callable[[Any], Any]
) -> Callable[[Any], Any] | None:
    """A function that answers a canonical value itself, and `slow(value)` for any other.

    Args:
        value_type: The exact class of canonical values; a tuple or a subclass of it.
        field_tests: For each field an expression in which `{0}` is the value of the field and which is true only if
            that is canonical; None if there is no such expression. A field that is None is always canonical.
        slow: What to do with other values.

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
