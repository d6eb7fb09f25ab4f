"""Rows of RocksDB from the columns of a replayed log, without a Python object per change.

Keys and values are made as binary columns. Of several rows of a cell only the last is kept, and the rows are put in
order of key, as in `varvite.changelog.working_stores.rocksdb.batch`, which makes rows one by one.

Invariants: I5 (the rows are those of `RowBuilder` for the lists of the same changes, in the same order).
"""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from varvite.changelog.segments.changes import Op
from varvite.changelog.segments.columns import LIST, MAP, TIMERS, pc
from varvite.changelog.segments.decoded_changes import DecodedChanges
from varvite.changelog.types.wire import NIL
from varvite.changelog.types.wire_columns import (
    Column,
    element_wires,
    fixed_width,
    joined,
    parts_or_else,
    timer_time_wires,
)
from varvite.storage.errors import InvariantError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rocksdict import WriteBatch

    from varvite.changelog.segments.batch import Batch
    from varvite.changelog.segments.changes import StateChanges
    from varvite.changelog.working_stores.rocksdb.state_form import StateForm

ROWS_MIN: Final = 256
"""Fewer rows of a state are made faster one by one."""
_ELEMENT: Final = "element"
_ARROW: Final[Any] = pa


def states_by_column(batches: Iterable[Batch]) -> frozenset[str]:
    """The states whose changes in these batches, which are written together, may all be taken as columns."""
    rows: dict[str, int] = {}
    without_columns: set[str] = set()
    for batch in batches:
        for change in batch.changes:
            if not len(change):
                continue
            rows[change.schema.name] = rows.get(change.schema.name, 0) + len(change)
            if batch.accepts is not None or not _has_plain_columns(change):
                without_columns.add(change.schema.name)
    return frozenset(name for name, count in rows.items() if count >= ROWS_MIN and name not in without_columns)


def _has_plain_columns(change: StateChanges) -> bool:
    """Are these columns whose rows are independent, so that nothing is cleared?"""
    if not isinstance(change, DecodedChanges):
        return False
    return change.schema.kind not in (MAP, LIST) or change.ops is None or Op.CLEAR not in change.ops


class _Added(NamedTuple):
    form: StateForm
    change: DecodedChanges
    seq: int
    first: int


class ColumnRows:
    """The rows of one state that are written together."""

    def __init__(self) -> None:
        self._added: list[_Added] = []

    def add(self, form: StateForm, change: DecodedChanges, seq: int, first: int) -> None:
        """Add changes; later rows replace earlier ones.

        Args:
            form: The state's, at the version of these changes.
            change: The changes.
            seq: The batch's.
            first: Position of the first row among the batch's rows of a list state.
        """
        self._added.append(_Added(form, change, seq, first))

    def put_into(self, batch: WriteBatch) -> None:
        """Add the rows to a write batch, in order of key.

        Raises:
            InvariantError: a key group is not one of the store's.
        """
        put, delete = batch.put, batch.delete
        keys, values = self._rows()
        for key, value in zip(keys.to_pylist(), values.to_pylist(), strict=True):
            if value is None:
                delete(key)
            else:
                put(key, value)

    def _rows(self) -> tuple[Column, Column]:
        """Keys, distinct and ascending, and values, null for a deletion."""
        runs = [(form, _together(list(run))) for form, run in groupby(self._added, key=attrgetter("form"))]
        parts = [(_keys(form, columns), _values(form, columns)) for form, columns in runs]
        keys, values = (_concat(columns) for columns in zip(*parts, strict=True))
        order = pc.array_sort_indices(keys)  # stable: of equal keys the last is the newest
        keys = keys.take(order)
        changes_after = pc.not_equal(keys[:-1], keys[1:])
        if not pc.all(changes_after, min_count=0).as_py():
            is_newest = _concat([changes_after, pa.array([True])])
            keys, order = keys.filter(is_newest), order.filter(is_newest)
        return keys, values.take(order)


def _keys(form: StateForm, columns: dict[str, Column]) -> Column:
    """The rows' keys (`varvite.changelog.working_stores.rocksdb.keys`)."""
    parts = [_prefixes(form, columns["key_group"])]
    if form.schema.kind == TIMERS:
        parts.append(timer_time_wires(columns["time"]))
    parts += parts_or_else(form.key, columns["key"], NIL)
    if form.map_key is not None:
        parts += form.map_key.wire_parts(columns["map_key"])
    if form.schema.kind == TIMERS and form.namespace is not None:
        parts += parts_or_else(form.namespace, columns["namespace"], NIL)
    if form.schema.kind == LIST:
        parts.append(columns[_ELEMENT])
    return joined(parts)


def _prefixes(form: StateForm, key_groups: Column) -> Column:
    """The bytes that begin the row of each key group."""
    groups: list[int] = pc.unique(key_groups).to_pylist()
    table = np.zeros((max(groups) + 1, len(form.prefixes[groups[0]])), np.uint8)
    for key_group in groups:
        table[key_group] = np.frombuffer(form.prefixes[key_group], np.uint8)
    return fixed_width(table[key_groups.to_numpy()])


def _values(form: StateForm, columns: dict[str, Column]) -> Column:
    kind, head = form.schema.kind, pa.scalar(form.head, pa.binary())
    if kind == TIMERS:
        values = _ARROW.repeat(head, len(columns["time"]))
    else:
        values = joined([head, *parts_or_else(form.value, columns["value"], b"" if kind == MAP else NIL)])
    if "op" not in columns or kind == LIST:
        return values
    is_put = pc.equal(columns["op"], pa.scalar(int(Op.PUT), pa.uint8()))
    return pc.if_else(is_put, values, pa.scalar(None, pa.binary()))


def _together(added: Sequence[_Added]) -> dict[str, Column]:
    """The columns of changes of one schema; of a list state also the end of each row's key."""
    names = dict.fromkeys(name for item in added for name in item.change.columns)
    columns = {name: _concat([_column(item.change, name) for item in added]) for name in names}
    if added[0].change.schema.kind == LIST:
        columns[_ELEMENT] = element_wires(
            np.concatenate([np.full(len(item.change), item.seq, np.uint64) for item in added]),
            np.concatenate([np.arange(item.first, item.first + len(item.change), dtype=np.uint32) for item in added]),
        )
    return columns


def _column(change: DecodedChanges, name: str) -> Column:
    if name in change.columns:
        return change.columns[name]
    if name != "op":
        raise InvariantError(f"changes of state {change.schema.name!r} have no column {name}")
    return pa.array(np.full(len(change), Op.PUT, np.uint8))


def _concat(columns: Sequence[Column]) -> Column:
    return columns[0] if len(columns) == 1 else _ARROW.concat_arrays(columns)
