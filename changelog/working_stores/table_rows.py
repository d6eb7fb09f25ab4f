"""The rows of any table: as changes, which copy one working store or one version of a state to another, or filtered.

Invariants: I5 (a copy holds exactly the rows of its source).
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from varvite.changelog.schema.ttl import record_of
from varvite.changelog.segments.changes import StateChanges
from varvite.changelog.segments.columns import LIST, MAP, TIMERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from varvite.changelog.segments.batch import BatchTime
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
    """The changes that make the same table from an empty one, at most `COPIED_ROWS` rows at once.

    Elements of one list may come in several pieces, which follow each other.
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
    """(key group, key, map key, value or element or time, namespace) of every cell; None where it has none."""
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


def without_expired(
    schema: StateSchema, rows: Iterable[tuple[Any, ...]], now: BatchTime | None
) -> Iterable[tuple[Any, ...]]:
    """The rows of a table that a full snapshot holds: with `cleanup_full_snapshot` those that have not expired."""
    record = record_of(schema)
    if now is None or record is None or not record.cleanup.full_snapshot:
        return rows
    expired_up_to = record.expired_up_to(now)
    if schema.kind == LIST:
        kept = ((group, key, [e for e in elements if e[0] > expired_up_to]) for group, key, elements in rows)
        return (row for row in kept if row[2])
    return (row for row in rows if row[-1][0] > expired_up_to)
