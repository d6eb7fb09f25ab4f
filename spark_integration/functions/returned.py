"""Checks of what a function returns in place of yielding."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from typing import Any, Final

from pyspark.sql import Row as SparkRow

from varvite.changelog.row import Row
from varvite.storage.errors import InvalidRequestError

_ONE_ROW: Final = (str, bytes, dict, SparkRow, Row)


def returned(result: Any) -> Iterable[Any]:
    """The rows that a function has returned: any iterable of them.

    Raises:
        InvalidRequestError: It is a single row, whose values would be taken for rows, or nothing that holds rows.
    """
    if isinstance(result, _ONE_ROW) or hasattr(result, "_fields") or not isinstance(result, Iterable):
        raise InvalidRequestError(
            f"the function returned {reprlib.repr(result)} ({type(result).__name__}), which is no list of rows: yield "
            "the row, or return a list of rows"
        )
    return result
