"""`BatchKeys`: the keys of a batch of rows, as an argument of the many-key methods of state handles.

Made once per batch, so that keys are grouped, hashed and converted once, for any number of states. Keys are ordered by
key group and within one by first appearance, which is the order of the rows of `StateChanges` and makes accesses to the
tables few, long runs. The order depends on the rows alone (I5).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections import defaultdict
    from collections.abc import Iterator

    from varvite.changelog.types.contract import TypeInformation

arrow: Final[Any] = pa
_CODES_END: Final = 1 << 62
"""Codes of several columns are combined as long as they stay below this."""


class BatchKeys:
    """Some keys, by default distinct; immutable.

    Attributes:
        array: The keys, one per element; a struct array if several columns make the key. Null is a key as well.
        positions: For each row of the batch the position of its key in `array` (numpy, int64). None after `take`.
        distinct: No key occurs twice.
    """

    def __init__(
        self,
        key_type: TypeInformation,
        array: Any,
        key_groups: np.ndarray[Any, Any],
        positions: np.ndarray[Any, Any] | None = None,
        *,
        distinct: bool = True,
    ) -> None:
        self._key_type = key_type
        self.array = array
        self.key_group_array = key_groups
        self.positions = positions
        self.distinct = distinct

    def __len__(self) -> int:
        return len(self.array)

    @cached_property
    def stored(self) -> list[Any]:
        """The stored forms of the keys; None for the null key. Not to be changed."""
        return self._key_type.from_arrow(self.array)

    @cached_property
    def key_groups(self) -> list[int]:
        """The key group of each key. Not to be changed."""
        return self.key_group_array.tolist()

    @property
    def key_type(self) -> TypeInformation:
        """Type of the keys."""
        return self._key_type

    def take(self, positions: Any) -> BatchKeys:
        """The keys at these positions (integers: a numpy array, an Arrow array or a list); may repeat keys."""
        chosen = np.asarray(positions, np.int64)
        if len(chosen) and not 0 <= int(chosen.min()) <= int(chosen.max()) < len(self):
            raise InvalidRequestError(f"the positions of keys must be in [0, {len(self)})")
        distinct = self.distinct and len(np.unique(chosen)) == len(chosen)
        taken = self.array.take(pa.array(chosen))
        return BatchKeys(self._key_type, taken, self.key_group_array[chosen], distinct=distinct)

    def filter(self, mask: Any) -> BatchKeys:
        """The keys for which the mask (booleans, one per key) is true; null is not true."""
        chosen = np.asarray([bool(flag) for flag in mask.to_pylist()] if hasattr(mask, "to_pylist") else mask, bool)
        if len(chosen) != len(self):
            raise InvalidRequestError(f"the mask has {len(chosen)} elements for {len(self)} keys")
        return self.take(np.flatnonzero(chosen))

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """(key group, start, end) of each run of keys of one key group."""
        if not len(self):
            return
        groups = self.key_group_array
        starts = np.flatnonzero(np.diff(groups, prepend=groups[0] + 1))
        ends = [*starts[1:].tolist(), len(groups)]
        yield from zip(groups[starts].tolist(), starts.tolist(), ends, strict=True)

    def put_into(self, cells: defaultdict[int, dict[Any, Any]], values: list[Any]) -> None:
        """Set the cell of each key, by key group and stored key, to its value; of a key that occurs twice the last."""
        keys = self.stored
        for key_group, start, end in self.runs():
            cells[key_group].update(zip(keys[start:end], values[start:end], strict=True))


def keys_of_batch(key_type: TypeInformation, column: Any, key_groups: Any) -> BatchKeys:
    """The distinct keys of a batch.

    Args:
        key_type: Type of the keys.
        column: The key of each row, of the type's Arrow type.
        key_groups: The key group of each row.
    """
    codes = row_codes(column)
    first_rows = _first_rows(codes)
    groups = np.asarray(key_groups, np.int64)[first_rows]
    order = np.argsort(groups, kind="stable")
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    distinct = column.take(pa.array(first_rows[order]))
    return BatchKeys(key_type, distinct, groups[order], places[codes])


def _first_rows(codes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The row at which each code appears first; codes are numbered by first appearance."""
    return np.flatnonzero(np.diff(np.maximum.accumulate(codes), prepend=-1))


def row_codes(column: Any) -> np.ndarray[Any, Any]:
    """A number for each row, the same for equal values, null included, counted by first appearance."""
    codes, size = None, 1
    for leaf in _leaves(column):
        encoded = leaf.dictionary_encode("encode")
        leaf_codes: Any = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        leaf_size = max(1, len(encoded.dictionary))
        if codes is None:
            codes, size = leaf_codes, leaf_size
            continue
        if size * leaf_size >= _CODES_END:
            codes, size = _renumbered(codes)
        codes, size = codes * leaf_size + leaf_codes, size * leaf_size
    return np.zeros(len(column), np.int64) if codes is None else _renumbered(codes)[0]


def _renumbered(codes: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], int]:
    encoded: Any = arrow.array(codes).dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)


def _leaves(column: Any) -> Iterator[Any]:
    """The columns without parts that make a column of structs; of each struct first whether it is null."""
    if not pa.types.is_struct(column.type):
        yield column
        return
    if column.null_count:
        yield column.is_valid()
    for child in column.flatten():
        yield from _leaves(child)
