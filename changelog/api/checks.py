"""Checks of the arguments of state handles, the same for all of them.

They raise `InvalidRequestError` without the state's name; the handle that catches it adds the name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from varvite.storage.errors import InvalidRequestError


def list_elements(values: Any) -> list[Any]:
    """The elements of a list, none of which may be None; a new list."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InvalidRequestError(f"a list of values is needed, not {values!r}")
    elements: list[Any] = list(values)  # pyright: ignore[reportUnknownArgumentType]
    if any(element is None for element in elements):
        raise InvalidRequestError("an element of a ListState cannot be None")
    return elements


def check_dict(value: Any) -> None:
    """Refuse an argument of `put_all` that is no mapping."""
    if not isinstance(value, Mapping):
        raise InvalidRequestError(f"put_all needs a dict, not {value!r}")


def check_result(value: Any, method: str) -> None:
    """Refuse None as the result of that method of the user's function."""
    if value is None:
        raise InvalidRequestError(
            f"{method} returned None; it must return a value (also if it changed an accumulator in place)"
        )


def state_error(state: str, operator: str, problem: str) -> InvalidRequestError:
    """The error of a call of a state's handle."""
    return InvalidRequestError(f"state {state!r}: {problem}", operator=operator)
