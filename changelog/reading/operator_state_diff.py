"""The differences of two checkpoints of a job in non-keyed state.

The entries of a broadcast state are compared by key, in the first partition, since all partitions have the same. Of
other states the rows of each partition are compared as a whole: a redistribution to another parallelism is not
followed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from varvite.changelog.operator_state.section import BROADCAST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varvite.changelog.reading.operator_state_table import OperatorStateTable
    from varvite.changelog.reading.reader import StateReader


class OperatorStateDifference(NamedTuple):
    """One entry, or the rows of one partition, that differ."""

    operator: str
    state: str
    change: str
    """added, changed or removed."""
    key: Any
    """The key of an entry of a broadcast state."""
    partition: int | None
    """The partition of another state."""
    before: Any
    after: Any


def diff_operator_states(
    before: StateReader, after: StateReader, operator: str | None = None, state: str | None = None
) -> Iterator[OperatorStateDifference]:
    """The differences, of one operator or state or of all that there are."""
    for uid in dict.fromkeys((*before.operators, *after.operators)):
        if operator not in (None, uid):
            continue
        old, new = ({t.name: t for t in r.operator_states(uid)} if uid in r.operators else {} for r in (before, after))
        for name in sorted({*old, *new}):
            if state in (None, name):
                yield from _differences(uid, name, old.get(name), new.get(name))


def _differences(
    uid: str, name: str, old: OperatorStateTable | None, new: OperatorStateTable | None
) -> Iterator[OperatorStateDifference]:
    earlier, later = _cells(old), _cells(new)
    is_broadcast = BROADCAST in {table.kind for table in (old, new) if table is not None}
    for place in {**earlier, **later}:
        key, _ = earlier.get(place) or later[place]
        is_old, is_new = place in earlier, place in later
        values = [cells[place][1] if place in cells else None for cells in (earlier, later)]
        if is_old and is_new and _is_same(*values):
            continue
        change = "changed" if is_old and is_new else "added" if is_new else "removed"
        named = (key, None) if is_broadcast else (None, key)
        yield OperatorStateDifference(uid, name, change, *named, *values)


def _is_same(left: Any, right: Any) -> bool:
    """Tell whether two values are the same; NaN, which equals nothing, is the same as NaN."""
    return left == right or repr(left) == repr(right)


def _cells(table: OperatorStateTable | None) -> dict[str, tuple[Any, Any]]:
    """The name of each cell, as text → its key or partition, and its value."""
    if table is None:
        return {}
    rows = table.to_arrow().to_pylist()
    if table.kind == BROADCAST:
        first = rows[0]["partition"]
        return {repr(row["key"]): (row["key"], row["value"]) for row in rows if row["partition"] == first}
    parts: dict[int, list[Any]] = {}
    for row in rows:
        value = row["value"] if "key_group" not in row else [row["key_group"], row["value"]]
        parts.setdefault(row["partition"], []).append(value)
    return {str(partition): (partition, values) for partition, values in parts.items()}
