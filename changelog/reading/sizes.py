"""The sizes of a store's states, per key group, from the raw rows: nothing is decoded.

Rows count as they are stored, so expired rows that are not removed yet count. Bytes are those of keys and values before
compression.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from varvite.changelog.segments.columns import TIMERS
from varvite.changelog.types.wire import end_of
from varvite.changelog.working_stores.rocksdb.keys import PREFIX_BYTES, prefix, successor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varvite.changelog.working_stores.rocksdb.store import RocksDBStore


class GroupSize(NamedTuple):
    """The size of one state in one key group that has rows of it."""

    state: str
    key_group: int
    keys: int | None
    """Keys that have state; None for timers, which are ordered by time."""
    rows: int
    size_bytes: int


def group_sizes(store: RocksDBStore) -> Iterator[GroupSize]:
    """The sizes of all states of a store, by state and key group."""
    for state in store.states:
        is_timers = state.schema.kind == TIMERS
        for key_group in store.key_groups:
            start = prefix(key_group, state.id)
            keys = rows = size_bytes = 0
            # The rows of one key stand side by side.
            for _, of_key in groupby(store.scan(start, successor(start)), _timer if is_timers else _key):
                keys += 1
                for row, value in of_key:
                    rows += 1
                    size_bytes += len(row) + len(value)
            if rows:
                yield GroupSize(state.schema.name, key_group, None if is_timers else keys, rows, size_bytes)


def _key(row: tuple[bytes, bytes]) -> bytes:
    return row[0][PREFIX_BYTES : end_of(row[0], PREFIX_BYTES)]


def _timer(_: tuple[bytes, bytes]) -> bytes:
    return b""
