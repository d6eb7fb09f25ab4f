"""The tables of the hashmap store: per key group a dict of stored forms.

Immutable values are Python objects, mutable ones wire bytes, so nothing that a user holds is ever in a table. A key
without entries or elements is not in its dict.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

from varvite.changelog.segments.changes import Op, runs_of
from varvite.changelog.working_stores.contract import outside
from varvite.changelog.working_stores.hashmap.lazy_groups import LazyGroups
from varvite.storage.errors import InvariantError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from varvite.changelog.segments.changes import StateChanges

C = TypeVar("C")


class HashMapTable(ABC, Generic[C]):
    """Base: key groups `[low, high)`, each key → its cell."""

    __slots__ = ("groups", "key_groups")

    def __init__(self, low: int, high: int) -> None:
        self.key_groups = range(low, high)
        self.groups: dict[int, dict[Any, C]] = {key_group: {} for key_group in self.key_groups}

    def load_later(self, rows_of: Callable[[int], Iterator[tuple[Any, ...]]]) -> LazyGroups:
        """Load a key group at its first access; `rows_of` are rows of another table's `items`."""

        def load(key_group: int) -> dict[Any, Any]:
            table = type(self)(key_group, key_group + 1)
            load_row = table.load
            for row in rows_of(key_group):
                load_row(row)
            return table.groups[key_group]

        self.groups = lazy = LazyGroups(self.key_groups, load)
        return lazy

    def all_groups(self) -> Iterator[tuple[int, dict[Any, C]]]:
        """Every key group with its cells, ascending."""
        for key_group in self.key_groups:
            yield key_group, self.groups[key_group]

    def displaced(self, changes: StateChanges) -> list[Displaced] | None:  # noqa: ARG002  for the tables that can
        """The cells that these changes would displace; None if they must not be applied before their confirmation.

        Until then the overlay holds them as well, so only changes that may be applied twice qualify. Their key groups
        are the store's.
        """
        return None

    def group(self, key_group: int) -> dict[Any, C]:
        """Key → cell. Raises `InvariantError` for a key group that is not the store's."""
        try:
            return self.groups[key_group]
        except KeyError:
            raise outside(key_group, self.key_groups) from None

    @abstractmethod
    def apply(self, changes: StateChanges) -> None:
        """Fold the rows; their key groups are the store's."""

    @abstractmethod
    def load(self, row: tuple[Any, ...]) -> None:
        """Add a row of another table's `items`."""

    @abstractmethod
    def items(self) -> Iterator[tuple[Any, ...]]:
        """All rows, by key group."""

    @abstractmethod
    def remove_values(self, key_group: int, key: Any, is_removed: Callable[[Any], bool]) -> tuple[int, int]:
        """Remove the matching values of a key; (number of values before, number removed)."""

    def count(self) -> int:
        """Number of cells in memory."""
        return sum(map(len, self.groups.values()))

    def prefetch(self, key_groups: Sequence[int], keys: Sequence[Any]) -> None:
        """Do nothing: everything is in memory."""


class Displaced(Protocol):
    """The cells of one key group as they were before a run of changes."""

    def undo(self) -> None:
        """Restore the cells."""
        ...


class DisplacedValues(NamedTuple):
    """The values of these keys, None where there was none."""

    cells: dict[Any, Any]
    keys: list[Any]
    values: list[Any]

    def undo(self) -> None:
        self.cells.update(zip(self.keys, self.values, strict=True))
        for key, value in zip(self.keys, self.values, strict=True):
            if value is None:
                del self.cells[key]


class DisplacedEntries(NamedTuple):
    """The map values of these keys and map keys, `_ABSENT` where there was none."""

    cells: dict[Any, dict[Any, Any]]
    keys: list[Any]
    map_keys: list[Any]
    values: list[Any]

    def undo(self) -> None:
        for key, map_key, value in zip(self.keys, self.map_keys, self.values, strict=True):
            if value is _ABSENT:
                _remove_entry(self.cells, key, map_key)
            else:
                self.cells.setdefault(key, {})[map_key] = value


_ABSENT: Final = object()


class HashMapValueTable(HashMapTable[Any]):
    """Key → stored value."""

    __slots__ = ()

    def displaced(self, changes: StateChanges) -> list[Displaced]:
        displaced: list[Displaced] = []
        for key_group, start, end in changes.runs:
            cells, keys = self.groups[key_group], changes.keys[start:end]
            displaced.append(DisplacedValues(cells, keys, list(map(cells.get, keys))))
        return displaced

    def get(self, key_group: int, key: Any) -> Any:
        try:
            return self.groups[key_group].get(key)
        except KeyError:
            raise outside(key_group, self.key_groups) from None

    def get_many(self, key_groups: Sequence[int], keys: Sequence[Any]) -> list[Any]:
        values: list[Any] = []
        for key_group, start, end in runs_of(key_groups):
            values.extend(map(self.group(key_group).get, keys[start:end]))
        return values

    def items(self) -> Iterator[tuple[int, Any, Any]]:
        for key_group, cells in self.all_groups():
            for key, value in cells.items():
                yield key_group, key, value

    def load(self, row: tuple[Any, ...]) -> None:
        key_group, key, value = row
        self.groups[key_group][key] = value

    def apply(self, changes: StateChanges) -> None:
        groups, keys, values = self.groups, changes.keys, changes.values
        for key_group, start, end in changes.runs:
            cells = groups[key_group]
            cells.update(zip(keys[start:end], values[start:end], strict=True))
            if changes.ops is not None:
                for key in keys[start:end]:
                    if cells[key] is None:  # the value of a DELETE row
                        del cells[key]

    def remove_values(self, key_group: int, key: Any, is_removed: Callable[[Any], bool]) -> tuple[int, int]:
        cells = self.groups[key_group]
        if key not in cells:
            return 0, 0
        if is_removed(cells[key]):
            del cells[key]
            return 1, 1
        return 1, 0


class HashMapMapTable(HashMapTable[dict[Any, Any]]):
    """Key → map key → stored value, None for a null value."""

    __slots__ = ()

    def get(self, key_group: int, key: Any, map_key: Any) -> tuple[bool, Any]:
        try:
            entries = self.groups[key_group].get(key)
        except KeyError:
            raise outside(key_group, self.key_groups) from None
        if entries is None or map_key not in entries:
            return False, None
        return True, entries[map_key]

    def get_many(self, key_groups: Sequence[int], keys: Sequence[Any], map_keys: Sequence[Any]) -> list[Any]:
        group, nothing = self.group, dict[Any, Any]()
        rows = zip(key_groups, keys, map_keys, strict=True)
        return [group(key_group).get(key, nothing).get(map_key) for key_group, key, map_key in rows]

    def entries(self, key_group: int, key: Any) -> dict[Any, Any]:
        return dict(self.group(key_group).get(key, ()))

    def holds_any(
        self, key_group: int, key: Any, without: AbstractSet[Any], accepts: Callable[[Any], bool] | None
    ) -> bool:
        """`MapOverlay.holds_any` of the confirmed entries."""
        entries: dict[Any, Any] = self.group(key_group).get(key) or {}
        return any(
            map_key not in without and (accepts is None or accepts(stored)) for map_key, stored in entries.items()
        )

    def items(self) -> Iterator[tuple[int, Any, Any, Any]]:
        for key_group, cells in self.all_groups():
            for key, entries in cells.items():
                for map_key, value in entries.items():
                    yield key_group, key, map_key, value

    def load(self, row: tuple[Any, ...]) -> None:
        key_group, key, map_key, value = row
        self.groups[key_group].setdefault(key, {})[map_key] = value

    def apply(self, changes: StateChanges) -> None:
        if changes.map_keys is None:
            raise InvariantError(f"changes of map state {changes.schema.name!r} have no map keys")
        if changes.ops is None:
            self._put(changes, changes.map_keys)
            return
        groups = self.groups
        cells = zip(changes.key_groups, changes.keys, changes.map_keys, changes.values, changes.ops, strict=True)
        for key_group, key, map_key, value, op in cells:
            if op == Op.PUT:
                groups[key_group].setdefault(key, {})[map_key] = value
            elif op == Op.CLEAR:
                groups[key_group].pop(key, None)
            else:
                _remove_entry(groups[key_group], key, map_key)

    def _put(self, changes: StateChanges, map_keys: list[Any]) -> None:
        keys, values = changes.keys, changes.values
        for key_group, start, end in changes.runs:
            cells = self.groups[key_group]
            for key, map_key, value in zip(keys[start:end], map_keys[start:end], values[start:end], strict=True):
                entries = cells.get(key)
                if entries is None:
                    cells[key] = {map_key: value}
                else:
                    entries[map_key] = value

    def displaced(self, changes: StateChanges) -> list[Displaced] | None:
        """The entries that the changes would displace; None with a CLEAR, which would displace whole maps."""
        map_keys = changes.map_keys
        if map_keys is None or (changes.ops is not None and Op.CLEAR in changes.ops):
            return None
        displaced: list[Displaced] = []
        nothing = dict[Any, Any]()
        for key_group, start, end in changes.runs:
            cells, keys, run_map_keys = self.groups[key_group], changes.keys[start:end], map_keys[start:end]
            get = cells.get
            before = [get(key, nothing).get(map_key, _ABSENT) for key, map_key in zip(keys, run_map_keys, strict=True)]
            displaced.append(DisplacedEntries(cells, keys, run_map_keys, before))
        return displaced

    def remove_values(self, key_group: int, key: Any, is_removed: Callable[[Any], bool]) -> tuple[int, int]:
        cells = self.groups[key_group]
        entries = cells.get(key, {})
        removed = [map_key for map_key, value in entries.items() if is_removed(value)]
        count = len(entries)
        for map_key in removed:
            _remove_entry(cells, key, map_key)
        return count, len(removed)


class HashMapListTable(HashMapTable[list[Any]]):
    """Key → elements."""

    __slots__ = ()

    def elements(self, key_group: int, key: Any) -> list[Any]:
        return list(self.group(key_group).get(key, ()))

    def items(self) -> Iterator[tuple[int, Any, list[Any]]]:
        for key_group, cells in self.all_groups():
            for key, elements in cells.items():
                yield key_group, key, list(elements)

    def load(self, row: tuple[Any, ...]) -> None:
        key_group, key, elements = row
        self.groups[key_group][key] = list(elements)

    def apply(self, changes: StateChanges) -> None:
        if changes.ops is None:
            self._append(changes)
            return
        groups = self.groups
        cells = zip(changes.key_groups, changes.keys, changes.values, changes.ops, strict=True)
        for key_group, key, value, op in cells:
            if op == Op.CLEAR:
                groups[key_group].pop(key, None)
            else:
                groups[key_group].setdefault(key, []).append(value)

    def _append(self, changes: StateChanges) -> None:
        keys, values = changes.keys, changes.values
        for key_group, start, end in changes.runs:
            cells = self.groups[key_group]
            for key, value in zip(keys[start:end], values[start:end], strict=True):
                elements = cells.get(key)
                if elements is None:
                    cells[key] = [value]
                else:
                    elements.append(value)

    def remove_values(self, key_group: int, key: Any, is_removed: Callable[[Any], bool]) -> tuple[int, int]:
        cells = self.groups[key_group]
        elements = cells.get(key, [])
        kept = [element for element in elements if not is_removed(element)]
        count = len(elements)
        if not kept:
            cells.pop(key, None)
        elif len(kept) < count:
            cells[key] = kept
        return count, count - len(kept)


def _remove_entry(cells: dict[Any, dict[Any, Any]], key: Any, map_key: Any) -> None:
    """Remove an entry, and the key with its last one."""
    entries = cells.get(key)
    if entries is not None:
        entries.pop(map_key, None)
        if not entries:
            del cells[key]
