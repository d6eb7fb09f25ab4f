"""The pending changes of one state in a batch, squashed to their net effect (I4).

An overlay answers reads before the confirmed table does, and becomes rows of `StateChanges`: by key group, and within
one key by key, in the order in which the batch first changed them. Reads leave no trace in the rows.

A batch's changes may leave in several parts. `cut` moves the pending changes into one more overlay, the *sealed* one,
between the overlay and the table. There they stay pending and readable. Later cuts go into the same sealed overlay, so
its size is bounded by the net effect of the batch, for any number of parts. A batch without a cut pays nothing for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from itertools import chain, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Self

    from varvite.changelog.segments.changes import StateChanges
    from varvite.changelog.working_stores.contract import ListTable, MapTable, TimerTable, ValueTable
    from varvite.storage.format.records import StateSchema

T = TypeVar("T", bound="ValueTable | MapTable | ListTable | TimerTable")


class Missing:
    """Type of `MISSING`."""

    __slots__ = ()


MISSING: Final = Missing()
"""Not in the overlay: the table has the answer."""


class Overlay(ABC, Generic[T]):
    """Base of the overlays of all kinds."""

    __slots__ = ("pending", "read", "read_before", "schema", "sealed", "table")

    def __init__(self, schema: StateSchema, table: T) -> None:
        self.schema = schema
        self.table = table
        """The confirmed state."""
        self.pending: defaultdict[int, dict[Any, Any]] = defaultdict(dict)
        """Key group → key → its changes since the last cut; always this object, because handles keep it."""
        self.sealed: Self | None = None
        """The changes up to the last cut, of all parts together; None in a batch without a cut."""
        self.read = False
        """Was the table read in this batch?"""
        self.read_before = False
        """Was it in the batch before?"""

    def by_key_group(self) -> list[tuple[int, dict[Any, Any]]]:
        """The changes since the last cut, ascending by key group."""
        return sorted(self.pending.items(), key=itemgetter(0))

    @abstractmethod
    def changes(self) -> StateChanges | None:
        """The net effect since the last cut; None if there is none. The lists are new."""

    @abstractmethod
    def whole(self) -> StateChanges | None:
        """The net effect of the whole batch, as `changes`: that of all its parts together."""

    @abstractmethod
    def count_rows(self) -> int:
        """Rows that `changes` would have; costs up to a visit of each pending key."""

    def cut(self) -> None:
        """End a part: its changes go into the sealed overlay, and `changes` begins anew."""
        if any(self.pending.values()):
            self._seal()

    @abstractmethod
    def _seal(self) -> None:
        """Move the pending changes into the sealed overlay, and read through it from now on."""

    def _sealed(self) -> Self:
        """The sealed overlay, made at the first cut."""
        if self.sealed is None:
            self.sealed = type(self)(self.schema, self.table)
        return self.sealed

    def folded(self) -> None:
        """Forget the pending and sealed changes: the table holds them now."""
        self.clear()

    def clear(self) -> None:
        """Forget the pending and sealed changes, at the end of a batch."""
        self.pending.clear()
        self.sealed = None
        self.read_before = self.read
        self.read = False

    @abstractmethod
    def keys(self) -> Iterator[tuple[int, Any]]:
        """(key group, key) of every key that has state, pending included, each once."""

    def keys_below(self) -> Iterator[tuple[int, Any]]:
        """The same below `pending`, in the sealed overlay or the table; a map's keys may come several times."""
        if self.sealed is not None:
            yield from self.sealed.keys()
        else:
            for row in self.table.items():
                yield row[0], row[1]

    def prefetch(self, key_groups: Sequence[int], keys: Sequence[Any]) -> None:
        """Pass the hint on to a table that takes it."""


def repeat_keys(keys: list[Any], collections: dict[Any, Any]) -> int:
    """Append each key once per element of its collection; returns the number appended."""
    counts = list(map(len, collections.values()))
    total = sum(counts)
    if total == len(counts) and 0 not in counts:
        keys.extend(collections)  # most large batches have one element per key
    else:
        keys.extend(chain.from_iterable(map(repeat, collections, counts)))
    return total


class CollectionOverlay(Overlay[T]):
    """Base of the overlays of states that hold a collection per key; a dict or a list is pending for each.

    The keys in `cleared` have lost their collection below; each has one in `pending`, maybe an empty one.
    """

    __slots__ = ("below", "cleared")

    def __init__(self, schema: StateSchema, table: T) -> None:
        super().__init__(schema, table)
        self.cleared: set[Any] = set()
        self.below: T | Self = table
        """Reads that `pending` cannot answer go here: the table, or after a cut the sealed overlay."""

    @abstractmethod
    def _rows(self, groups: Iterable[tuple[int, dict[Any, Any]]], cleared: set[Any]) -> StateChanges | None:
        """Rows of these collections by key group and key."""

    @abstractmethod
    def _joined(self, held: Any, later: Any, *, cleared: bool) -> Any:
        """`held` changed by `later`; `cleared`: `held` hides the collection below."""

    def changes(self) -> StateChanges | None:
        return self._rows(self.by_key_group(), self.cleared)

    def whole(self) -> StateChanges | None:
        sealed = self.sealed
        return self.changes() if sealed is None else self._rows(self._merged(sealed), sealed.cleared | self.cleared)

    def count_rows(self) -> int:
        return len(self.cleared) + sum(sum(map(len, cells.values())) for cells in self.pending.values())

    def clear(self) -> None:
        super().clear()
        self.cleared.clear()
        self.below = self.table

    def _seal(self) -> None:
        sealed = self._sealed()
        for key_group, cells in self.pending.items():
            self._merge(cells, sealed.pending[key_group], sealed.cleared, copies=False)
        sealed.cleared |= self.cleared
        self.pending.clear()
        self.cleared.clear()
        self.below = sealed

    def _merged(self, sealed: Self) -> Iterator[tuple[int, dict[Any, Any]]]:
        """Key group → key → collection of both, ascending; changes neither."""
        for key_group in sorted(sealed.pending.keys() | self.pending.keys()):
            merged = dict(sealed.pending.get(key_group, ()))
            self._merge(self.pending.get(key_group, {}), merged, sealed.cleared, copies=True)
            yield key_group, merged

    def _merge(self, cells: dict[Any, Any], sealed: dict[Any, Any], cleared: set[Any], *, copies: bool) -> None:
        """Merge pending cells into sealed ones; `copies`: sealed collections are not changed in place."""
        for key, cell in cells.items():
            held = sealed.get(key)
            if held is None or key in self.cleared:
                sealed[key] = cell
            else:
                sealed[key] = self._joined(held.copy() if copies else held, cell, cleared=key in cleared)
