"""`GroupedRows`: the rows of a batch by key, and reductions of a column for all keys at once. Pure.

Order counts: a reduction takes the rows of a key in the order of the batch, so equal batches give equal results (I5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

if TYPE_CHECKING:
    from varvite.changelog.api.batch_keys import BatchKeys

arrow: Any = pa
pc: Any = pyarrow.compute


class GroupedRows:
    """Rows by key.

    Args:
        keys: The keys of the batch.
        has_state: For each key, true if it had state before the batch (Arrow booleans).
    """

    def __init__(self, keys: BatchKeys, has_state: Any) -> None:
        self.keys = keys
        self.has_state = has_state
        self.count = len(keys)
        self.positions: np.ndarray[Any, Any] = np.arange(0) if keys.positions is None else keys.positions

    def reduce(self, column: Any, function: str, positions: Any = None) -> Any:
        """Arrow's `hash_<function>` of each key's values; null for a key without rows.

        Args:
            column: A value for each row.
            function: Of Arrow, such as sum or min.
            positions: For each value the position of its key; None for the rows of the batch.
        """
        owners = self.positions if positions is None else positions
        table: Any = arrow.table({"key": owners, "value": column})
        grouped = table.group_by("key", use_threads=False).aggregate([("value", function)]).combine_chunks()
        places = np.full(self.count, -1)
        places[grouped.column("key").to_numpy()] = np.arange(len(grouped))
        return take(grouped.column(f"value_{function}"), places)

    def with_state(self, column: Any, state: Any, function: str) -> Any:
        """`reduce` of the values of the state and of the rows together; `state` has a value for each key."""
        owners = np.concatenate([np.arange(self.count), self.positions])
        return self.reduce(pa.concat_arrays([state, column]), function, owners)

    def first_rows(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """For each key the first of these rows, which ascend; -1 for none."""
        return self._assigned(rows[::-1])

    def last_rows(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """For each key the last of these rows, which ascend; -1 for none."""
        return self._assigned(rows)

    def _assigned(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        places = np.full(self.count, -1)
        places[self.positions[rows]] = rows  # of several for one key, numpy keeps the last
        return places

    def row_counts(self) -> np.ndarray[Any, Any]:
        """The number of rows of each key."""
        return np.bincount(self.positions, minlength=self.count)


def take(column: Any, places: np.ndarray[Any, Any]) -> Any:
    """The elements at these places as one array; null for -1."""
    absent = places < 0
    taken = column.take(arrow.array(places, mask=absent if absent.any() else None))
    return taken.combine_chunks() if isinstance(taken, pa.ChunkedArray) else taken


def sum_fits(values: Any) -> bool:
    """True if no sum of some of these integers exceeds 64 bits, where Arrow would wrap."""
    ends = pc.min_max(values)
    largest = max(abs(ends["min"].as_py() or 0), abs(ends["max"].as_py() or 0))
    return largest * len(values) < 1 << 63


def valid_rows(column: Any) -> np.ndarray[Any, Any]:
    """The rows whose value is not null, ascending."""
    return np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))


def either(first: Any, second: Any) -> Any:
    """The values of the first column; where they are null, those of the second."""
    return pc.if_else(first.is_valid(), first, second)


def where(mask: np.ndarray[Any, Any], column: Any) -> Any:
    """The column with null where the mask is false."""
    return pc.if_else(pa.array(mask), column, arrow.scalar(None, column.type))
