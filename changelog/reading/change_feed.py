"""The change feed: the changes of each batch to one state, or to several, from the log after a checkpoint's bases.

For each key group the feed begins after its tile, because the log before it may be gone at any time, and ends with the
checkpoint. A batch that was executed again is in it once, with the winner's changes. A value that a batch wrote
several times is in it with its last value only. Removal of expired values is not in the log, so it is not in the feed.

| column | content |
|---|---|
| `seq`, `batch` (int64) | the checkpoint; the batch is null if only its segments are left, in a pack |
| `operator`, `state` | uid of the operator, name of the state |
| `key_group`, `key`, … | as in `varvite.changelog.reading.columns`, without a list's `position` |
| `op` | put, delete, clear (all that a list or map holds for the key) or append (to a list) |
| `value`, … | as there; null where the op has no such value |

With several states the columns of keys and values are those of `varvite.changelog.reading.shared_columns`, without
`position`.

Rows of one key group are in order; rows of different key groups need not be.

Invariants: I2, I5, I8, I10 (segments are decoded one by one).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from varvite.changelog.reading.columns import StateColumns
from varvite.changelog.reading.shared_columns import SHARED, shared
from varvite.changelog.schema.history import changes_at
from varvite.changelog.segments.changes import Op
from varvite.changelog.segments.columns import MAP, TIMERS, ordinary_op
from varvite.changelog.segments.replay import accepted_key_groups
from varvite.changelog.segments.source import SegmentSource
from varvite.storage.format.records import Commit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from varvite.changelog.reading.reader import StateReader
    from varvite.changelog.segments.changes import StateChanges
    from varvite.changelog.segments.segment import SegmentHeader

SEQ_END: Final = 1 << 63
_arrow: Final[Any] = pa
_OPS: Final = {op: op.name.lower() for op in Op}


class SeqRange(NamedTuple):
    """Seqs `low <= seq < high`."""

    low: int = 0
    high: int = SEQ_END


ALL_SEQS: Final = SeqRange()


def _change_schema(rows: Any) -> Any:
    """The Arrow schema of changes whose keys and values have these columns."""
    start = [pa.field("seq", pa.int64()), pa.field("batch", pa.int64())]
    start += [pa.field("operator", pa.string()), pa.field("state", pa.string())]
    named = [f for f in rows if f.name in _NAMES]
    rest = [f for f in rows if f.name not in _NAMES and f.name != "position"]
    return pa.schema([*start, *named, pa.field("op", pa.string()), *rest])


_NAMES: Final = frozenset({"key_group", "key", "map_key", "namespace", "time_ms"})
SHARED_CHANGES: Final[Any] = _change_schema(SHARED)
"""The Arrow schema of the changes of several states."""


class ChangeFeed:
    """The changes of states of one operator up to a reader's checkpoint.

    Args:
        reader: Of the checkpoint.
        operator: Its uid; may be left out if there is only one.
        state: Its name, which may be left out if there is only one; or several names, for `SHARED_CHANGES`.
    """

    def __init__(
        self, reader: StateReader, operator: str | None = None, state: str | Sequence[str] | None = None
    ) -> None:
        self._reader = reader
        self._operator = reader.layout(operator)
        self._is_shared = state is not None and not isinstance(state, str)
        names = (state,) if state is None or isinstance(state, str) else state
        schemas = [reader.state(name, operator) for name in names]
        self._columns = {state.name: StateColumns(self._operator.key_type, state, changes=True) for state in schemas}
        self.schema: Any = SHARED_CHANGES if self._is_shared else _change_schema(self._columns[schemas[0].name].schema)
        """The Arrow schema of the batches."""

    def batches(self, key_groups: range | None = None, seqs: SeqRange = ALL_SEQS) -> Iterator[Any]:
        """`pyarrow.RecordBatch`es of the changes, one per segment and state; errors as `StateReader.to_arrow`."""
        reader, uid = self._reader, self._operator.uid
        selected = reader.selected(key_groups)
        with reader.pinned():
            log = reader.view.segments_for(uid, selected.start, selected.stop)
            reading = [s for s in log if s.ref.seq_first < seqs.high and s.ref.seq_last >= seqs.low]
            batches = self.batch_numbers(seqs)
            for segment, floors in SegmentSource(reader.chain.store).read(reading):
                header = segment.header
                accepted = accepted_key_groups(header, floors, selected)
                if not accepted or not seqs.low <= header.seq < seqs.high:
                    continue
                for i, state in enumerate(header.states):
                    columns = self._columns.get(state.schema.name)
                    if columns is not None and state.rows:
                        changes = changes_at(columns.state, segment.state_changes(i, accepted.__contains__))
                        if changes is not None and len(changes):
                            yield self._batch(header, columns, changes, batches)

    def batch_numbers(self, seqs: SeqRange = ALL_SEQS) -> Mapping[int, int]:
        """Seq → batch of the commits of the line that still exist."""
        reader = self._reader
        on_line = [link.seq for link in reader.view.line if seqs.low <= link.seq < seqs.high]
        entries = reader.chain.read_all([seq for seq in on_line if seq >= reader.checkpoint.needs_from])
        return {entry.seq: entry.batch for entry in entries if isinstance(entry, Commit)}

    def _batch(
        self, header: SegmentHeader, columns: StateColumns, changes: StateChanges, batches: Mapping[int, int]
    ) -> Any:
        count = len(changes)
        rows = columns.batch_of(_columns_of(changes))
        rows = shared(rows) if self._is_shared else rows
        ops = changes.ops if changes.ops is not None else bytes((ordinary_op(changes.schema.kind),)) * count
        common = {
            "seq": pa.array([header.seq] * count, pa.int64()),
            "batch": pa.array([batches.get(header.seq)] * count, pa.int64()),
            "operator": pa.array([header.operator] * count, pa.string()),
            "state": pa.array([columns.state.name] * count, pa.string()),
            "op": pa.array([_OPS[Op(op)] for op in ops], pa.string()),
        }
        columns_of_batch = [common[name] if name in common else rows.column(name) for name in self.schema.names]
        return _arrow.RecordBatch.from_arrays(columns_of_batch, schema=self.schema)


def _columns_of(changes: StateChanges) -> list[Sequence[Any]]:
    """The columns in the order of `StateColumns`, but for `position`."""
    kind = changes.schema.kind
    columns: list[Sequence[Any]] = [changes.key_groups, changes.keys]
    if kind == MAP:
        columns.append(changes.map_keys or [None] * len(changes))
    if kind == TIMERS and changes.namespaces is not None:
        columns.append(changes.namespaces)
    return [*columns, changes.values]
