"""Generated functions that pass canonical composite values through.

Nearly every tuple that a function puts into state is canonical already: it is its own stored form. Checking that with
one generated expression takes a third of the time of freezing the fields one by one, and makes no new objects. The
source is put together from constants of this package alone; nothing that a user gives becomes code. (The way of
`dataclasses` and `collections.namedtuple`.)

Invariants: I5 (what passes is exactly what freezing field by field would give; everything else takes the slow way).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
