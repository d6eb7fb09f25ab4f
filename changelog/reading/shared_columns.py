"""Rows of several states in one table: the same columns for all, whatever the states' kinds and types.

| column | content |
|---|---|
| `key_group` (int32) | always |
| `key`, `map_key`, `namespace`, `value` (text) | JSON; null where there is no value, or no such column |
| `position`, `time_ms`, `ttl_stamp_ms` (int64) | null where the state has no such column |

JSON is made of the values that `varvite.changelog.reading.readable_columns` shows: bytes are base64, times ISO 8601,
decimals text, floats that JSON lacks `"NaN"`, `"Infinity"` and `"-Infinity"`, a map a list of [key, value].
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from varvite.changelog.reading.json_text import json_text

_arrow: Final[Any] = pa
_AS_JSON: Final = frozenset({"key", "map_key", "namespace", "value"})

SHARED: Final[Any] = pa.schema(
    [
        ("key_group", pa.int32()),
        ("key", pa.string()),
        ("map_key", pa.string()),
        ("position", pa.int64()),
        ("namespace", pa.string()),
        ("time_ms", pa.int64()),
        ("value", pa.string()),
        ("ttl_stamp_ms", pa.int64()),
    ]
)
"""The Arrow schema of the shared columns."""


def shared(batch: Any) -> Any:
    """A `pyarrow.RecordBatch` of one state, as `StateColumns` makes them, with the shared columns."""
    columns = [_column(batch, field) for field in SHARED]
    return _arrow.RecordBatch.from_arrays(columns, schema=SHARED)


def _column(batch: Any, field: Any) -> Any:
    if field.name not in batch.schema.names:
        return _arrow.nulls(batch.num_rows, field.type)
    column = batch.column(field.name)
    if field.name not in _AS_JSON:
        return column
    texts = [None if value is None else json_text(value) for value in column.to_pylist()]
    return _arrow.array(texts, pa.string())
