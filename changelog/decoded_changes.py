"""`DecodedChanges`: changes that were read from a segment and are Arrow columns until something asks for their lists.

A replay into RocksDB makes its rows from the columns (`varve.changelog.rocksdb_columns`); other stores take the lists.

Invariants: I5 (the lists are what the columns say).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from varve.changelog.changes import StateChanges

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from varve.storage.records import StateSchema


class DecodedChanges(StateChanges):
    """Rows of a segment, or some of them. Immutable like every `StateChanges`.

    Args:
        schema: Of the state.
        columns: By name, as `varve.changelog.segment_columns` describes them; checked against the schema.
        ops: See `StateChanges`.
        size_bytes: Of the columns, about.
        lists: Makes the same changes with lists; raises `CorruptDataError`.
    """

    def __init__(
        self,
        schema: StateSchema,
        columns: Mapping[str, Any],
        ops: bytes | None,
        size_bytes: int,
        lists: Callable[[], StateChanges],
    ) -> None:
        set_field = object.__setattr__
        set_field(self, "schema", schema)
        set_field(self, "columns", columns)
        set_field(self, "ops", ops)
        set_field(self, "size_bytes", size_bytes)
        set_field(self, "_make_lists", lists)

    columns: Mapping[str, Any]
    size_bytes: int
    _make_lists: Callable[[], StateChanges]

    def __len__(self) -> int:
        return len(self.columns["key_group"])

    @cached_property
    def _lists(self) -> StateChanges:
        return self._make_lists()

    @property
    def key_groups(self) -> list[int]:  # type: ignore[override]  # made when asked for
        return self._lists.key_groups

    @property
    def keys(self) -> list[Any]:  # type: ignore[override]  # made when asked for
        return self._lists.keys

    @property
    def map_keys(self) -> list[Any] | None:  # type: ignore[override]  # made when asked for
        return self._lists.map_keys

    @property
    def values(self) -> list[Any]:  # type: ignore[override]  # made when asked for
        return self._lists.values

    @property
    def namespaces(self) -> list[Any] | None:  # type: ignore[override]  # made when asked for
        return self._lists.namespaces
