"""The net effect of one batch on one state, as rows: segments carry them and working stores apply them.

Row order matters only within one key: CLEAR comes before what was added after it. In a value-like state (value,
reducing, aggregating) a key has at most one row, in a map state at most one CLEAR and one row per map key, in a timer
state one row per key, namespace and time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import chain, compress, groupby, repeat
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from varvite.storage.format.records import StateSchema


class Op(IntEnum):
    """The effect of a row; the numbers are on disk."""

    PUT = 0
    """Set the value of the key, or of the map key, or the timer."""
    DELETE = 1
    """Remove the value of the key, or of the map key, or the timer."""
    CLEAR = 2
    """Remove all that a map or list state holds for the key."""
    APPEND = 3
    """Add an element to the end of the key's list."""


class Deleted:
    """Type of `DELETED`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "DELETED"


DELETED: Final = Deleted()
"""In overlays: the value was removed."""


@dataclass(frozen=True)
class StateChanges:
    """Changes of one state, one element of each list per row; the lists must not be changed afterwards."""

    schema: StateSchema
    key_groups: list[int]
    keys: list[Any]
    """Stored forms of the keys."""
    ops: bytes | None
    """One `Op` per row; None if every row is a PUT (an APPEND in a list state)."""
    map_keys: list[Any] | None
    """Stored forms; None unless the state is a map (then None for CLEAR rows)."""
    values: list[Any]
    """Stored forms; None for DELETE and CLEAR rows, and for a null map value. Timers: their times, in every row."""
    namespaces: list[Any] | None = None
    """Stored forms; None unless the state has namespaces."""

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def runs(self) -> tuple[tuple[int, int, int], ...]:
        """(key group, first row, end) of each run of rows of one key group: few, because rows come by key group."""
        return tuple(runs_of(self.key_groups))

    def accepted(self, accepts: Callable[[int], bool]) -> StateChanges:
        """The rows whose key group is accepted; itself if all are."""
        answers = {key_group: accepts(key_group) for key_group, _, _ in self.runs}
        if all(answers.values()):
            return self
        mask = list(chain.from_iterable(repeat(answers[group], end - start) for group, start, end in self.runs))
        columns = ("key_groups", "keys", "map_keys", "values", "namespaces")
        lists: dict[str, list[Any] | None] = {column: getattr(self, column) for column in columns}
        kept = {name: None if column is None else list(compress(column, mask)) for name, column in lists.items()}
        return self.but(ops=None if self.ops is None else bytes(compress(self.ops, mask)), **kept)

    def but(self, **fields: Any) -> StateChanges:
        """The same changes, but for these fields."""
        return StateChanges(**{name: getattr(self, name) for name in _FIELDS} | fields)


def runs_of(key_groups: Iterable[int]) -> Iterator[tuple[int, int, int]]:
    """(key group, start, end) of each run of equal key groups."""
    start = 0
    for key_group, run in groupby(key_groups):
        end = start + len(list(run))
        yield key_group, start, end
        start = end


def changes_of_cells(
    schema: StateSchema, groups: Iterable[tuple[int, Mapping[Any, Any]]], *, removed: bool
) -> StateChanges | None:
    """The rows of a value-like state that these cells make; None if there are none.

    Args:
        schema: Of the state.
        groups: Key groups in the order of the rows, each with key → stored value, or None if it was removed.
        removed: Whether any may have been removed.
    """
    key_groups: list[int] = []
    keys: list[Any] = []
    values: list[Any] = []
    for key_group, cells in groups:
        key_groups.extend([key_group] * len(cells))
        keys.extend(cells)
        values.extend(cells.values())
    if not keys:
        return None
    ops = bytes([Op.DELETE if value is None else Op.PUT for value in values]) if removed else None
    return StateChanges(schema, key_groups, keys, ops, None, values)


_FIELDS: Final = ("schema", "key_groups", "keys", "ops", "map_keys", "values", "namespaces")


def empty_changes(schema: StateSchema) -> StateChanges:
    """Changes without rows; in a segment they carry the schema from this batch on."""
    return StateChanges(schema, [], [], None, [] if schema.kind == "map" else None, [])


class OverSealed(dict[Any, Any]):
    """Pending cells of a key group after a cut; `get` falls through to the cells that the cut sealed.

    All other methods concern the pending cells only. Before the first cut a plain dict is used, so that a lookup costs
    nothing more then.
    """

    __slots__ = ("_sealed",)

    def __init__(self, sealed: dict[Any, Any]) -> None:
        super().__init__()
        self._sealed = sealed

    def get(self, key: Any, default: Any = None) -> Any:
        """The pending cell, else the sealed one, else the default."""
        return self[key] if key in self else self._sealed.get(key, default)
