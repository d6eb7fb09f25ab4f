"""`KeyContext`: the key that the handles of one backend are about, and their errors."""

from __future__ import annotations

from typing import Any, Final

from varvite.changelog.api.checks import state_error
from varvite.storage.errors import InvalidRequestError


class NoKey:
    """Type of `NO_KEY`."""

    __slots__ = ()


NO_KEY: Final = NoKey()
"""No key is current. Not None: null is a key like any other."""


class KeyContext:
    """The current key, shared by all handles of one backend; `NO_KEY` outside of a key."""

    __slots__ = ("key", "key_group", "operator")

    def __init__(self, operator: str) -> None:
        self.operator = operator
        self.key: Any = NO_KEY
        self.key_group: int = -1

    def no_key(self, state: str) -> InvalidRequestError:
        """The error of an access outside of a key."""
        return InvalidRequestError(
            f"state {state!r} was accessed while no key is current: use it only in the functions that process a key",
            operator=self.operator,
        )

    def refused(self, state: str, error: InvalidRequestError) -> InvalidRequestError:
        """An error of an argument, with the state's name."""
        return state_error(state, self.operator, error.message)
