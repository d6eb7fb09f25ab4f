"""A column of timestamps as event times: whole milliseconds since 1970, rounded down, as Spark and Flink count them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute

_compute: Any = pyarrow.compute


def event_times_ms(column: Any) -> Any:
    """The milliseconds of a column of timestamps (int64); another column is given back as it is."""
    if not pa.types.is_timestamp(column.type):
        return column
    cut = column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False)
    times = cut.cast(pa.int64())
    if (_compute.min(times).as_py() or 0) > 0:
        return times
    # Arrow rounds towards 1970.
    is_later = _compute.greater(cut.cast(column.type), column)
    return _compute.subtract(times, is_later.cast(pa.int64()))
