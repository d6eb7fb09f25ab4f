"""`DecodedChanges`: changes that were read from a segment, as Arrow columns; their lists are made lazily.

A replay into RocksDB makes its rows from the columns (`varvite.changelog.working_stores.rocksdb.columns`); other stores
take the lists.

Invariants: I5 (the lists are what the columns say).
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from varvite.changelog.segments.changes import StateChanges
from varvite.storage.errors import InvariantError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from varvite.storage.format.records import StateSchema

Columns: TypeAlias = "Mapping[str, Any]"
"""Arrow arrays by name."""


class DecodedChanges(StateChanges):
    """Rows of a segment, or some of them. Immutable like every `StateChanges`.

    Args:
        schema: Of the state.
        columns: By name, as `varvite.changelog.segments.columns` describes them; checked against the schema.
        make_lists: Makes the same changes with lists of such columns; raises `CorruptDataError`.
    """

    def __init__(self, schema: StateSchema, columns: Columns, make_lists: Callable[[Columns], StateChanges]) -> None:
        set_field = object.__setattr__
        set_field(self, "schema", schema)
        set_field(self, "columns", columns)
        set_field(self, "_make_lists", make_lists)

    columns: Columns
    _make_lists: Callable[[Columns], StateChanges]

    def __len__(self) -> int:
        return len(self.columns["key_group"])

    def pieces(self, bytes_max: int) -> Iterator[DecodedChanges]:
        """The same rows in order, in pieces of about `bytes_max` bytes and at least one row; none without rows."""
        count = len(self)
        step = max(1, count * bytes_max // max(1, self.size_bytes))
        if 0 < count <= step:
            yield self
            return
        for start in range(0, count, step):
            piece = {name: column.slice(start, step) for name, column in self.columns.items()}
            yield DecodedChanges(self.schema, piece, self._make_lists)

    def by_part(self, lows: Sequence[int]) -> Iterator[tuple[int, DecodedChanges]]:
        """The rows by part of the key groups, each in the same order: place of the part, its rows, if there are any.

        `lows`: first key group of each part, ascending. A row of a key group below is an `InvariantError`.
        """
        key_groups: npt.NDArray[np.uint16] = self.columns["key_group"].to_numpy()
        parts: npt.NDArray[np.intp] = np.searchsorted(np.asarray(lows), key_groups, side="right") - 1
        columns = self.columns
        if np.any(parts[1:] < parts[:-1]):
            order = np.argsort(parts, kind="stable")
            parts = parts[order]
            columns = {name: column.take(pa.array(order)) for name, column in columns.items()}
        if len(parts) and parts[0] < 0:
            raise InvariantError(f"state {self.schema.name!r} has rows of key groups below {lows[0]}")
        edges: list[int] = np.searchsorted(parts, np.arange(len(lows) + 1)).tolist()
        for part, (start, stop) in enumerate(pairwise(edges)):
            if start < stop:
                share = {name: column.slice(start, stop - start) for name, column in columns.items()}
                yield part, DecodedChanges(self.schema, share, self._make_lists)

    @cached_property
    def size_bytes(self) -> int:
        """Approximate size of the columns."""
        return sum(column.nbytes for column in self.columns.values())

    @cached_property
    def lists(self) -> StateChanges:
        """The same changes with lists. Raises `CorruptDataError`."""
        return self._make_lists(self.columns)

    @cached_property
    def ops(self) -> bytes | None:  # type: ignore[override]  # made lazily
        return ops_of(self.columns)

    @property
    def key_groups(self) -> list[int]:  # type: ignore[override]  # made lazily
        return self.lists.key_groups

    @property
    def keys(self) -> list[Any]:  # type: ignore[override]  # made lazily
        return self.lists.keys

    @property
    def map_keys(self) -> list[Any] | None:  # type: ignore[override]  # made lazily
        return self.lists.map_keys

    @property
    def values(self) -> list[Any]:  # type: ignore[override]  # made lazily
        return self.lists.values

    @property
    def namespaces(self) -> list[Any] | None:  # type: ignore[override]  # made lazily
        return self.lists.namespaces


def ops_of(columns: Columns) -> bytes | None:
    """The ops of the rows, as `StateChanges.ops` has them."""
    return columns["op"].to_numpy().tobytes() if "op" in columns else None
