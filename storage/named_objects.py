"""Loads user code that an option names as `module:qualified.name`, so that every process can import it."""

from __future__ import annotations

import importlib
import re
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from varvite.storage.errors import InvalidRequestError, VarviteError

if TYPE_CHECKING:
    from collections.abc import Callable

QUALIFIED_NAME: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
"""`module:qualified.name`."""


def import_callable(name: str, what: str) -> Callable[..., Any]:
    """The function or class with this name.

    Args:
        name: `module:qualified.name`.
        what: Its purpose, for messages: "working store factory".

    Raises:
        InvalidRequestError: it cannot be imported here, or is not callable.
    """
    module, _, qualified = name.partition(":")
    try:
        value: Any = reduce(getattr, qualified.split("."), importlib.import_module(module))
    except Exception as error:  # user code may raise anything
        raise InvalidRequestError(
            f"the {what} {name!r} cannot be imported: {type(error).__name__}: {error}; write it as "
            "module:qualified.name, and let driver and executors have the module (--py-files)"
        ) from error
    if not callable(value):
        raise InvalidRequestError(
            f"the {what} {name!r} is {value!r}, which cannot be called; name a function or a class"
        )
    return value


def call_named(name: str, what: str, advice: str, *arguments: Any, operator: str | None = None) -> Any:
    """Call the function or class with this name.

    Args:
        name: `module:qualified.name`.
        what: Its purpose, for messages.
        advice: The user's next step if the call fails: "correct the factory".
        arguments: Passed on.
        operator: The operator that it belongs to, for the error of a failed call.

    Raises:
        InvalidRequestError: As `import_callable`, or the call failed; a `VarviteError` of its own passes.
    """
    function = import_callable(name, what)
    try:
        return function(*arguments)
    except VarviteError:
        raise
    except Exception as error:  # user code may raise anything
        raise InvalidRequestError(
            f"the {what} {name!r} failed: {type(error).__name__}: {error}; {advice}", operator=operator
        ) from error
