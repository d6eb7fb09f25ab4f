"""`RecentColumns`: the values of the last batch that set values of a state as columns, for the next batch to read.

Batches that follow one another mostly have many keys in common. Finding keys in a column and taking their values costs
a tenth of reading them from RocksDB, and half of reading them from a dict. Together with
`working_stores.rocksdb.write_behind` it saves two thirds of a state worker's CPU where vectorized functions aggregate
100,000 keys per batch. It costs the memory of one batch's columns, and about 70 lines.

Invariants: I4 (only folded values), I5 (the values are those of the table: folding anything else calls `forget`), I10
(the columns of one batch).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute

if TYPE_CHECKING:
    from varvite.changelog.api.batch_keys import BatchKeys
    from varvite.changelog.segments.column_changes import ColumnChanges

pc: Final[Any] = pyarrow.compute
_FOUND_MIN: Final = 0.5
"""Share of the keys that must be found: below it the search costs more than it saves."""
_PAUSE_BATCHES: Final = 15
"""Batches that are not remembered after one whose keys were not found."""


class RecentColumns:
    """The keys and values of one batch; empty at first."""

    __slots__ = ("_keys", "_pause", "_values")

    def __init__(self) -> None:
        self._keys: Any = None
        self._values: Any = None
        self._pause = 0

    def remember(self, changes: ColumnChanges) -> None:
        """Keep these changes, which the table now holds, in place of the former."""
        self.forget()
        if self._pause:
            self._pause -= 1
        elif _is_plain(changes.batch_keys.array.type):
            self._keys, self._values = changes.batch_keys.array, changes.value_column

    def forget(self) -> None:
        """Drop the columns: something else was folded into the table."""
        self._keys = self._values = None

    def find(self, keys: BatchKeys) -> np.ndarray[Any, Any] | None:
        """For each key its place in `values`, -1 if it is not there; None if too few are."""
        if self._keys is None or not len(keys):
            return None
        places = pc.index_in(keys.array, value_set=self._keys)
        if places.null_count > (1 - _FOUND_MIN) * len(keys):
            self.forget()
            self._pause = _PAUSE_BATCHES
            return None
        return pc.fill_null(places, -1).to_numpy(zero_copy_only=False).astype(np.int64)

    @property
    def values(self) -> Any:
        """The column that the places of `find` refer to; null where a value was removed."""
        return self._values


def _is_plain(key_type: pa.DataType) -> bool:
    """Are elements of this type equal if their stored forms are? Floats and structs are left to the table."""
    is_kind = pa.types
    return is_kind.is_integer(key_type) or is_kind.is_string(key_type) or is_kind.is_binary(key_type)
