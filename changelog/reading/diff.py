"""The differences of two checkpoints of a job: added, changed and removed rows, key group by key group.

Rows are compared by name: the key, in a map the map key as well. A list is compared as a whole; a timer exists or not.
Memory is bounded by the largest state of one key group, twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from varvite.changelog.reading.columns import StateColumns
from varvite.changelog.schema.history import first_version, words
from varvite.changelog.segments.columns import LIST, MAP, TIMERS
from varvite.changelog.types.decimals import BigDecimalType
from varvite.storage.errors import IncompatibleError, InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from varvite.changelog.reading.reader import StateReader
    from varvite.changelog.segments.batch import BatchTime
    from varvite.changelog.working_stores.contract import WorkingStore
    from varvite.storage.format.records import StateSchema

    Cells = dict[Any, Any]

Track = Callable[[Sequence[Any], str], Iterable[Any]]
"""Yields the items, and reports their number and kind to somebody."""


def untracked(items: Sequence[Any], what: str) -> Iterable[Any]:
    """A `Track` that reports to nobody."""
    del what
    return items


_NAMES: Final = frozenset({"key_group", "key", "map_key", "position"})


class Difference(NamedTuple):
    """One row that differs."""

    operator: str
    state: str
    change: str
    """added, changed or removed."""
    key_group: int
    name: tuple[Any, ...]
    """Stored forms of the row's name, as in `StateColumns.rows` without the key group."""
    before: tuple[Any, ...] | None
    after: tuple[Any, ...] | None


def shown(columns: StateColumns, difference: Difference) -> dict[str, Any]:
    """A difference as plain values: `key`, `map_key` (only of maps), `before` and `after` (None: no such row).

    A timer, and a value with the stamp of its TTL, is a dict; a list is a list of elements.
    """
    rows = difference.before, difference.after
    sides = [None if side is None else _plain(columns, difference, side) for side in rows]
    named = (sides[0] or sides[1] or [{}])[0]
    before, after = ([_value(row) for row in side] if side is not None else None for side in sides)
    if columns.state.kind != LIST:
        before, after = before and before[0], after and after[0]
    return {"key": named.get("key"), "map_key": named.get("map_key"), "before": before, "after": after}


def _plain(columns: StateColumns, difference: Difference, side: tuple[Any, ...]) -> list[dict[str, Any]]:
    """The rows of one side."""
    rows: list[tuple[Any, ...]] = [(difference.key_group, *difference.name, *side)]
    if columns.state.kind == LIST:
        rows = [(difference.key_group, *difference.name, i, *element) for i, element in enumerate(side)]
    return columns.batch(rows).to_pylist()


def _value(row: dict[str, Any]) -> Any:
    rest = {name: value for name, value in row.items() if name not in _NAMES}
    return rest["value"] if list(rest) == ["value"] else rest


class Side(NamedTuple):
    """One of two stores that are compared."""

    store: WorkingStore
    time: BatchTime | None
    """Values that have expired by then do not count; None: all values count."""


def diff_checkpoints(
    before: StateReader,
    after: StateReader,
    operator: str | None = None,
    state: str | None = None,
    track: Track = untracked,
) -> Generator[Difference]:
    """The differences of two checkpoints, of one operator or state or of all that both have; `track` gets the ranges.

    A state that only one of them has counts as empty in the other. Raises `InvalidRequestError` if neither has it,
    `IncompatibleError` as `states_of`.
    """
    uids = dict.fromkeys((*before.operators, *after.operators)) if operator is None else {operator: None}
    if operator is not None and operator not in (*before.operators, *after.operators):
        raise InvalidRequestError(f"neither checkpoint has an operator {operator!r}")
    with before.pinned(), after.pinned():
        states = [states_of(before, after, uid, state) for uid in uids]
        if state is not None and not any(states):
            raise InvalidRequestError(f"neither checkpoint has a state {state!r}")
        for uid, columns in zip(uids, states, strict=True):
            if columns:
                yield from _diff_operator(before, after, uid, columns, track)


def states_of(before: StateReader, after: StateReader, operator: str, state: str | None) -> list[StateColumns]:
    """The columns in which the states of both are compared: by their newer schemas, whichever checkpoint is newer.

    Raises `IncompatibleError` for a state that the user's function migrated in between, or keys of another type.
    """
    layouts = [r.layout(operator) for r in (before, after) if operator in r.operators]
    if len({layout.key_type for layout in layouts}) > 1:
        raise IncompatibleError(
            f"the keys of the two checkpoints are of types {[layout.key_type for layout in layouts]}", operator=operator
        )
    newest: dict[str, StateSchema] = {}
    schemas = [schema for layout in layouts for schema in layout.states if state in (None, schema.name)]
    for schema in schemas:
        if schema.name not in newest or schema.version >= newest[schema.name].version:
            newest[schema.name] = schema
    for schema in schemas:
        if schema.version < first_version(newest[schema.name]):
            raise IncompatibleError(
                f"state {schema.name!r} was migrated between the two checkpoints, from {words(schema)} to "
                f"{words(newest[schema.name])}: its values cannot be compared; name another state",
                operator=operator,
            )
    return [StateColumns(layouts[-1].key_type, schema) for schema in newest.values()]


def diff_stores(before: Side, after: Side, columns: StateColumns, operator: str) -> Iterator[Difference]:
    """The differences of one state in two stores of the same key groups."""
    left, right = _by_key_group(before, columns), _by_key_group(after, columns)
    name = columns.state.name
    keeps_zeros = BigDecimalType().notation() in columns.state.value_type  # 1.0 and 1.00 are equal, but not the same
    old, new = next(left, None), next(right, None)
    while old is not None or new is not None:
        group = min(cells[0] for cells in (old, new) if cells is not None)
        earlier: Cells = {}
        later: Cells = {}
        if old is not None and old[0] == group:
            earlier, old = old[1], next(left, None)
        if new is not None and new[0] == group:
            later, new = new[1], next(right, None)
        for key, value in earlier.items():
            if key not in later:
                yield Difference(operator, name, "removed", group, key, value, None)
            elif later[key] != value or (keeps_zeros and repr(later[key]) != repr(value)):
                yield Difference(operator, name, "changed", group, key, value, later[key])
        for key, value in later.items():
            if key not in earlier:
                yield Difference(operator, name, "added", group, key, None, value)


def _diff_operator(
    before: StateReader, after: StateReader, operator: str, columns: list[StateColumns], track: Track
) -> Iterator[Difference]:
    """Restore the same ranges of both, at whose edges tiles of both end."""
    layout = next(reader.layout(operator) for reader in (after, before) if operator in reader.operators)
    every = after.selected(None)
    tiles = [t for reader in (before, after) for t in reader.view.tiles_for(operator, every.start, every.stop)]
    edges = sorted({edge for tile in tiles for edge in (tile.low, tile.high)})
    for low, high in track(list(pairwise(edges)), f"key groups of {operator}"):
        # A reader whose checkpoint does not have the operator restores it empty.
        with before.restored(layout, low, high) as old, after.restored(layout, low, high) as new:
            for state in columns:
                yield from diff_stores(Side(old, before.time), Side(new, after.time), state, operator)


def _by_key_group(side: Side, columns: StateColumns) -> Iterator[tuple[int, Cells]]:
    for key_group, rows in groupby(columns.rows(side.store, side.time), itemgetter(0)):
        yield key_group, _cells(columns, rows)


def _cells(columns: StateColumns, rows: Iterator[tuple[Any, ...]]) -> Cells:
    """Name → the rest of the row, both as tuples."""
    kind = columns.state.kind
    if kind == TIMERS:
        return {row[1:]: () for row in rows}
    if kind == LIST:
        return {(key,): tuple(row[3:] for row in of_key) for key, of_key in groupby(rows, itemgetter(1))}
    end = 3 if kind == MAP else 2
    return {row[1:end]: row[end:] for row in rows}
