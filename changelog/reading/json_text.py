"""Plain values as JSON, for the tools. Floats that JSON lacks are text, and not null, which would mean no value.

They are written as Spark's `to_json` writes them, so that `from_json` and `parse_json` read them back.
"""

from __future__ import annotations

import math
from typing import Any, Final, cast

import msgspec

_NOT_FINITE: Final = {math.inf: "Infinity", -math.inf: "-Infinity"}


def json_text(value: Any) -> str:
    """Plain values, nested in lists, tuples and dicts, as JSON."""
    return msgspec.json.encode(_with_json_floats(value)).decode()


def _with_json_floats(value: Any) -> Any:
    """A value in which every float is one that JSON has."""
    if isinstance(value, float):
        return value if math.isfinite(value) else _NOT_FINITE.get(value, "NaN")
    if isinstance(value, dict):
        return {_with_json_floats(key): _with_json_floats(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_with_json_floats(item) for item in cast("list[Any]", value)]
    return value
