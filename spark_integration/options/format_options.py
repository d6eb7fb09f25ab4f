"""Values of the options of a writer's format."""

from __future__ import annotations

from typing import Any, Final

from varvite.storage.errors import InvalidRequestError

_TRUTHS: Final = {"true": True, "false": False}


def read_truth(key: str, value: Any) -> bool:
    """A boolean, or its text in any case. Raises `InvalidRequestError` for anything else."""
    truth = _TRUTHS.get(str(value).lower())
    if truth is None:
        raise InvalidRequestError(f"option {key!r} is {value!r}; it is true or false")
    return truth
