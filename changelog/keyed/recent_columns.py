"""`RecentColumns`: what the last batch that set values of a state as columns has set, for the next batch to read.

Batches that follow one another mostly have many keys in common. Finding keys in a column and taking their values costs
a tenth of reading them from RocksDB, and half of reading them from a dict.

Invariants: I4 (only what was folded), I5 (what is found is what the table holds: whoever folds anything else into the
table calls `forget`), I10 (the columns of one batch).
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
_FOUND_LEAST: Final = 0.5
"""Share of the keys that must be found, else looking for them costs more than it saves."""
_PAUSE_BATCHES: Final = 15
"""Batches that are not remembered after one whose keys were not found."""


class RecentColumns:
    """See the module. Empty at first."""

    __slots__ = ("_keys", "_pause", "_values")

    def __init__(self) -> None:
        self._keys: Any = None
        self._values: Any = None
        self._pause = 0

    def remember(self, changes: ColumnChanges) -> None:
        """The table now holds what these changes have set, and what is known else is not asked for any more."""
        self.forget()
        if self._pause:
            self._pause -= 1
        elif _is_plain(changes.batch_keys.array.type):
            self._keys, self._values = changes.batch_keys.array, changes.value_column

    def forget(self) -> None:
        """Something else was folded into the table."""
        self._keys = self._values = None

    def find(self, keys: BatchKeys) -> np.ndarray[Any, Any] | None:
        """For each key its place in `values`, -1 if it is not known; None if nothing of use is known."""
        if self._keys is None or not len(keys):
            return None
        places = pc.index_in(keys.array, value_set=self._keys)
        if places.null_count > (1 - _FOUND_LEAST) * len(keys):
            self.forget()
            self._pause = _PAUSE_BATCHES
            return None
        return pc.fill_null(places, -1).to_numpy(zero_copy_only=False).astype(np.int64)

    @property
    def values(self) -> Any:
        """The column in which `find` has found keys; null where a value was removed."""
        return self._values


def _is_plain(key_type: pa.DataType) -> bool:
    """Whether elements of this type are equal if their stored forms are; floats and structs are left to the table."""
    is_kind = pa.types
    return is_kind.is_integer(key_type) or is_kind.is_string(key_type) or is_kind.is_binary(key_type)
