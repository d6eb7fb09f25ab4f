"""Keywords in the spelling of Spark's methods."""

from __future__ import annotations

import inspect
import re
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")


def with_spark_keywords(**other: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a method take `statefulProcessor` for `stateful_processor`, and so on.

    Args:
        other: Spark's names that are more than another spelling, with the method's own.
    """

    def decorate(method: Callable[P, R]) -> Callable[P, R]:
        parameters = inspect.signature(method).parameters
        names = {re.sub("_([a-z])", lambda letter: letter[1].upper(), name): name for name in parameters} | other

        @wraps(method)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in [name for name in kwargs if name not in parameters and name in names]:
                if names[name] in kwargs:
                    raise TypeError(f"{method.__name__} got {name} and {names[name]}, which are the same")
                kwargs[names[name]] = kwargs.pop(name)
            return method(*args, **kwargs)

        return call

    return decorate
