"""The rows of one state as Arrow record batches, whatever kind of state it is.

| kind | columns after `key_group` (int32) and `key` |
|---|---|
| value, reducing, aggregating | `value` |
| list | `position` (int64, from 0), `value`: a row per element |
| map | `map_key`, `value`: a row per entry |
| timers | `namespace` if the state has namespaces, `time_ms` (int64) |

A state that has or had TTL has one more column, `ttl_stamp_ms` (int64): when the value was last used, null for one that
was written before the state had TTL. What has expired is left out, as a job's reads leave it out.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from varvite.changelog.reading.readable_columns import readable_column
from varvite.changelog.schema.ttl import NOTHING, record_of
from varvite.changelog.segments.columns import LIST, MAP, TIMERS, map_key_type, namespace_type_of, type_of
from varvite.changelog.types.stamped import STAMP_MIN, is_stamped
from varvite.changelog.working_stores.table_rows import table_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from varvite.changelog.segments.batch import BatchTime
    from varvite.changelog.working_stores.contract import WorkingStore
    from varvite.storage.format.records import StateSchema

BATCH_ROWS: Final = 10_000
"""Rows of a record batch at most."""
STAMP: Final = "ttl_stamp_ms"

arrow: Final[Any] = pa


class StateColumns:
    """The columns in which one state is shown.

    Args:
        key_type: Type string of the operator's keys.
        state: The state.
        changes: The rows are changes, in which the elements of a list have no position.
    """

    def __init__(self, key_type: str, state: StateSchema, *, changes: bool = False) -> None:
        self.state = state
        self._has_positions = state.kind == LIST and not changes
        key = readable_column(type_of(key_type))
        self._columns: list[tuple[str, Any, Callable[[Sequence[Any]], Any]]] = [
            ("key_group", pa.int32(), lambda groups: pa.array(groups, pa.int32())),
            ("key", key.arrow_type, key.to_arrow),
        ]
        self._is_stamped = is_stamped(state.value_type)
        self._add_own_columns()
        self.schema: Any = pa.schema([pa.field(name, arrow_type) for name, arrow_type, _ in self._columns])
        """The Arrow schema of the batches."""

    def rows(self, store: WorkingStore, now: BatchTime | None = None) -> Iterator[tuple[Any, ...]]:
        """Stored forms of every row, by key group and then by the bytes of the key (timers: of the time).

        Args:
            store: Holds the state, of this or an older version.
            now: Values that have expired by then are left out; None: no value is.
        """
        record = record_of(self.state)
        expired_up_to = NOTHING if record is None or now is None else record.expired_up_to(now)
        cells = self._cells(table_of(store, self.state))
        if not self._is_stamped:
            return cells
        return ((*row[:-1], *row[-1]) for row in cells if row[-1][0] > expired_up_to)

    def batches(self, rows: Iterator[tuple[Any, ...]]) -> Iterator[Any]:
        """`pyarrow.RecordBatch`es of rows, at most `BATCH_ROWS` each; none if there is no row."""
        while chunk := list(islice(rows, BATCH_ROWS)):
            yield self.batch(chunk)

    def batch(self, rows: Sequence[tuple[Any, ...]]) -> Any:
        """One `pyarrow.RecordBatch` of these rows."""
        columns: list[Any] = list(zip(*rows, strict=True)) if rows else [()] * len(self._columns)
        if self._is_stamped:  # the stamp stands before the value in rows and after it in the batch
            *columns, stamp, value = columns
            columns += [value, stamp]
        return self._record_batch(columns)

    def batch_of(self, columns: Sequence[Sequence[Any]]) -> Any:
        """One `pyarrow.RecordBatch` of these columns of stored forms; a value may be None, with its stamp."""
        if self._is_stamped:
            *rest, stamped = columns
            pairs = [(None, None) if pair is None else pair for pair in stamped]
            columns = [*rest, [value for _, value in pairs], [stamp for stamp, _ in pairs]]
        return self._record_batch(columns)

    def _record_batch(self, columns: Sequence[Any]) -> Any:
        arrays = [to_arrow(column) for (_, _, to_arrow), column in zip(self._columns, columns, strict=True)]
        return arrow.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _add_own_columns(self) -> None:
        state = self.state
        if state.kind == TIMERS:
            if (namespace_type := namespace_type_of(state)) is not None:
                namespace = readable_column(namespace_type)
                self._columns.append(("namespace", namespace.arrow_type, namespace.to_arrow))
            self._columns.append(("time_ms", pa.int64(), _longs))
            return
        if state.kind == MAP:
            map_key = readable_column(map_key_type(state))
            self._columns.append(("map_key", map_key.arrow_type, map_key.to_arrow))
        elif self._has_positions:
            self._columns.append(("position", pa.int64(), _longs))
        value = readable_column(type_of(state.value_type))
        self._columns.append(("value", value.arrow_type, value.to_arrow))
        if self._is_stamped:
            self._columns.append((STAMP, pa.int64(), _stamps))

    def _cells(self, table: Any) -> Iterator[tuple[Any, ...]]:
        kind = self.state.kind
        if kind == LIST:
            for key_group, key, elements in table.items():
                for position, element in enumerate(elements):
                    yield key_group, key, position, element
        elif kind == TIMERS:
            is_named = self.state.namespace_type is not None
            for key_group, packed in table.items():
                time_ms, key, namespace = table.form.unpack(packed)
                yield (key_group, key, namespace, time_ms) if is_named else (key_group, key, time_ms)
        else:
            yield from table.items()


def _longs(values: Sequence[Any]) -> Any:
    return pa.array(values, pa.int64())


def _stamps(values: Sequence[Any]) -> Any:
    return pa.array([None if stamp is None or stamp == STAMP_MIN else stamp for stamp in values], pa.int64())
