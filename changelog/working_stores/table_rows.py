"""The rows of any table as changes: how one working store, or one version of a state, is copied to another.

Invariants: I5 (a copy holds exactly the rows of its source).
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from varvite.changelog.segments.changes import StateChanges
from varvite.changelog.segments.columns import LIST, MAP, TIMERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from varvite.changelog.working_stores.contract import WorkingStore
    from varvite.storage.format.records import StateSchema

COPIED_ROWS: Final = 10_000
"""Rows that are copied at once."""


def table_of(store: WorkingStore, schema: StateSchema) -> Any:
    """The table of a state of any kind, registered if new."""
    by_kind: dict[str, Callable[[StateSchema], Any]] = {
        MAP: store.map_table,
        LIST: store.list_table,
        TIMERS: store.timer_table,
    }
    return by_kind.get(schema.kind, store.value_table)(schema)


def changes_of(schema: StateSchema, table: Any) -> Iterator[StateChanges]:
    """What makes the same table from an empty one, at most `COPIED_ROWS` rows at once.

    Elements of one list may come in several parts, which follow each other.
    """
    rows = _rows(schema, table)
    while chunk := list(islice(rows, COPIED_ROWS)):
        groups, keys, map_keys, values, namespaces = (list(column) for column in zip(*chunk, strict=True))
        yield StateChanges(
            schema,
            groups,
            keys,
            None,
            map_keys if schema.kind == MAP else None,
            values,
            namespaces if schema.namespace_type is not None else None,
        )


def _rows(schema: StateSchema, table: Any) -> Iterator[tuple[int, Any, Any, Any, Any]]:
    """(key group, key, map key, value or element or time, namespace) of every cell; None for what it does not have."""
    if schema.kind == MAP:
        for key_group, key, map_key, value in table.items():
            yield key_group, key, map_key, value, None
    elif schema.kind == LIST:
        for key_group, key, elements in table.items():
            for element in elements:
                yield key_group, key, None, element, None
    elif schema.kind == TIMERS:
        for key_group, packed in table.items():
            time_ms, key, namespace = table.form.unpack(packed)
            yield key_group, key, None, time_ms, namespace
    else:
        for key_group, key, value in table.items():
            yield key_group, key, None, value, None
