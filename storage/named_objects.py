"""Things of a user's that an option names as `module:qualified.name`, so that every process can import them."""

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
    """The function or class of that name.

    Args:
        name: `module:qualified.name`.
        what: What it is to be, for messages: "working store factory".

    Raises:
        InvalidRequestError: it cannot be imported here, or is nothing that can be called.
    """
    module, _, qualified = name.partition(":")
    try:
        found: Any = reduce(getattr, qualified.split("."), importlib.import_module(module))
    except Exception as error:  # a module of the user's may raise anything
        raise InvalidRequestError(
            f"the {what} {name!r} cannot be imported: {type(error).__name__}: {error}; write it as "
            "module:qualified.name, and let driver and executors have the module (--py-files)"
        ) from error
    if not callable(found):
        raise InvalidRequestError(
            f"the {what} {name!r} is {found!r}, which cannot be called; name a function or a class"
        )
    return found


def call_named(name: str, what: str, advice: str, *arguments: Any, operator: str | None = None) -> Any:
    """What the function or class of that name makes of these arguments.

    Args:
        name: `module:qualified.name`.
        what: What it is to be, for messages.
        advice: What to do if it fails: "correct the factory".
        arguments: What it is called with.
        operator: Whose it is, for the error of a call that failed.

    Raises:
        InvalidRequestError: As `import_callable`, or the call failed; a `VarviteError` of its own passes.
    """
    function = import_callable(name, what)
    try:
        return function(*arguments)
    except VarviteError:
        raise
    except Exception as error:  # the user's code may raise anything
        raise InvalidRequestError(
            f"the {what} {name!r} failed: {type(error).__name__}: {error}; {advice}", operator=operator
        ) from error
