"""The tables of the hashmap store: per key group a dict of stored forms.

Immutable values are Python objects, mutable ones wire bytes, so nothing that a user holds is ever in a table. A key
without entries or elements is not in its dict.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

from varvite.changelog.segments.changes import Op, runs_of
from varvite.changelog.working_stores.hashmap.lazy_groups import LazyGroups
from varvite.storage.errors import InvariantError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from collections.abc import Set as AbstractSet
    from typing import Self

    from varvite.changelog.segments.changes import StateChanges

C = TypeVar("C")


class HashMapTable(ABC, Generic[C]):
    """Base: key groups `[low, high)`, each key → its cell."""

    __slots__ = ("groups", "key_groups")

    def __init__(self, low: int, high: int) -> None:
        self.key_groups = range(low, high)
        self.groups: dict[int, dict[Any, C]] = {key_group: {} for key_group in self.key_groups}

    def load_later(self, rows_of: Callable[[int], Iterator[tuple[Any, ...]]]) -> LazyGroups:
        """Take a key group's rows over when something asks for it; they are rows of another table's `items`."""

        def load(key_group: int) -> dict[Any, Any]:
            made = type(self)(key_group, key_group + 1)
            take = made.load
            for row in rows_of(key_group):
                take(row)
            return made.groups[key_group]

        self.groups = lazy = LazyGroups(self.key_groups, load)
        return lazy

    def all_groups(self) -> Iterator[tuple[int, dict[Any, C]]]:
        """Every key group with its cells, ascending."""
        for key_group in self.key_groups:
            yield key_group, self.groups[key_group]

    def displaced(self, changes: StateChanges) -> list[Displaced] | None:  # noqa: ARG002  for the tables that can
        """What these changes would displace; None if they must not be applied ahead of their confirmation.

        While they are ahead, the overlay holds them as well; so only changes that may be applied twice can be. Their
        key groups are the store's.
        """
        return None

    def group(self, key_group: int) -> dict[Any, C]:
        """Key → cell. Raises `InvariantError` for a key group that is not the store's."""
        try:
            return self.groups[key_group]
        except KeyError:
            raise outside(key_group, self.key_groups) from None

    @abstractmethod
    def apply(self, changes: StateChanges, accepts: Callable[[int], bool] | None) -> None:
        """Fold the rows of accepted key groups, None for all; every one of those is the store's."""

    @abstractmethod
    def load(self, row: tuple[Any, ...]) -> None:
        """Take over a row of another table's `items`."""

    @abstractmethod
    def items(self) -> Iterator[tuple[Any, ...]]:
        """All rows, by key group."""

    @abstractmethod
    def remove_values(self, key_group: int, key: Any, is_removed: Callable[[Any], bool]) -> tuple[int, int]:
        """Remove those values of a key; (how many it had, how many were removed)."""

    def count(self) -> int:
        """How many cells are in memory."""
        return sum(map(len, self.groups.values()))

    def emptied(self) -> Self:
        """A table of the same key groups without cells."""
        return type(self)(self.key_groups.start, self.key_groups.stop)

    def converted(self, convert: Callable[[Any], Any]) -> Self:
        """A table with the same keys and converted values; null map values are converted, too."""
        made = self.emptied()
        for key_group, cells in self.all_groups():
            own = made.groups[key_group]
            for key, cell in cells.items():
                own[key] = self.converted_cell(cell, convert)
        return made

    @staticmethod
    @abstractmethod
    def converted_cell(cell: C, convert: Callable[[Any], Any]) -> C:
        """A cell with converted values."""

    def prefetch(self, key_groups: Sequence[int], keys: Sequence[Any]) -> None:
        """Everything is in memory."""


def outside(key_group: int, key_groups: range) -> InvariantError:
    """The error of a key group that is not the store's."""
    low, high = key_groups[0], key_groups[-1]
    return InvariantError(f"key group {key_group} is not one of the store's; it has [{low}, {high}]")


class Displaced(Protocol):
    """What a run of changes of one key group took the place of."""

    def take_back(self) -> None:
        """Let it be as before the changes."""
        ...


class DisplacedValues(NamedTuple):
    """The values of these keys, None where there was none."""

    cells: dict[Any, Any]
    keys: list[Any]
    values: list[Any]

    def take_back(self) -> None:
        """See `Displaced`."""
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

    def take_back(self) -> None:
        """See `Displaced`."""
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
        """See `HashMapTable`."""
        found: list[Displaced] = []
        for key_group, start, end in changes.runs:
            cells, keys = self.groups[key_group], changes.keys[start:end]
            found.append(DisplacedValues(cells, keys, list(map(cells.get, keys))))
        return found

    def get(self, key_group: int, key: Any) -> Any:
        try:
            return self.groups[key_group].get(key)
        except KeyError:
            raise outside(key_group, self.key_groups) from None

    def get_many(self, key_groups: Sequence[int], keys: Sequence[Any]) -> list[Any]:
        found: list[Any] = []
        for key_group, start, end in runs_of(key_groups):
            found.extend(map(self.group(key_group).get, keys[start:end]))
        return found

    def items(self) -> Iterator[tuple[int, Any, Any]]:
        for key_group, cells in self.all_groups():
            for key, value in cells.items():
                yield key_group, key, value

    @staticmethod
    def converted_cell(cell: Any, convert: Callable[[Any], Any]) -> Any:
        return convert(cell)

    def load(self, row: tuple[Any, ...]) -> None:
        key_group, key, value = row
        self.groups[key_group][key] = value

    def apply(self, changes: StateChanges, accepts: Callable[[int], bool] | None) -> None:
        groups, keys, values = self.groups, changes.keys, changes.values
        for key_group, start, end in changes.runs:
            if accepts is None or accepts(key_group):
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
        """See `MapOverlay.holds_any`."""
        entries: dict[Any, Any] = self.group(key_group).get(key) or {}
        return any(
            map_key not in without and (accepts is None or accepts(stored)) for map_key, stored in entries.items()
        )

    def items(self) -> Iterator[tuple[int, Any, Any, Any]]:
        for key_group, cells in self.all_groups():
            for key, entries in cells.items():
                for map_key, value in entries.items():
                    yield key_group, key, map_key, value

    @staticmethod
    def converted_cell(cell: dict[Any, Any], convert: Callable[[Any], Any]) -> dict[Any, Any]:
        return {map_key: convert(value) for map_key, value in cell.items()}

    def load(self, row: tuple[Any, ...]) -> None:
        key_group, key, map_key, value = row
        self.groups[key_group].setdefault(key, {})[map_key] = value

    def apply(self, changes: StateChanges, accepts: Callable[[int], bool] | None) -> None:
        if changes.map_keys is None:
            raise InvariantError(f"changes of map state {changes.schema.name!r} have no map keys")
        if changes.ops is None:
            self._put(changes, changes.map_keys, accepts)
            return
        groups = self.groups
        cells = zip(changes.key_groups, changes.keys, changes.map_keys, changes.values, changes.ops, strict=True)
        for key_group, key, map_key, value, op in cells:
            if accepts is not None and not accepts(key_group):
                continue
            if op == Op.PUT:
                groups[key_group].setdefault(key, {})[map_key] = value
            elif op == Op.CLEAR:
                groups[key_group].pop(key, None)
            else:
                _remove_entry(groups[key_group], key, map_key)

    def _put(self, changes: StateChanges, map_keys: list[Any], accepts: Callable[[int], bool] | None) -> None:
        keys, values = changes.keys, changes.values
        for key_group, start, end in changes.runs:
            if accepts is not None and not accepts(key_group):
                continue
            cells = self.groups[key_group]
            for key, map_key, value in zip(keys[start:end], map_keys[start:end], values[start:end], strict=True):
                entries = cells.get(key)
                if entries is None:
                    cells[key] = {map_key: value}
                else:
                    entries[map_key] = value

    def displaced(self, changes: StateChanges) -> list[Displaced] | None:
        """See `HashMapTable`; a CLEAR would displace whole maps."""
        map_keys = changes.map_keys
        if map_keys is None or (changes.ops is not None and Op.CLEAR in changes.ops):
            return None
        found: list[Displaced] = []
        nothing = dict[Any, Any]()
        for key_group, start, end in changes.runs:
            cells, keys, own = self.groups[key_group], changes.keys[start:end], map_keys[start:end]
            get = cells.get
            before = [get(key, nothing).get(map_key, _ABSENT) for key, map_key in zip(keys, own, strict=True)]
            found.append(DisplacedEntries(cells, keys, own, before))
        return found

    def remove_values(self, key_group: int, key: Any, is_removed: Callable[[Any], bool]) -> tuple[int, int]:
        cells = self.groups[key_group]
        entries = cells.get(key, {})
        removed = [map_key for map_key, value in entries.items() if is_removed(value)]
        looked_at = len(entries)
        for map_key in removed:
            _remove_entry(cells, key, map_key)
        return looked_at, len(removed)


class HashMapListTable(HashMapTable[list[Any]]):
    """Key → elements."""

    __slots__ = ()

    def elements(self, key_group: int, key: Any) -> list[Any]:
        return list(self.group(key_group).get(key, ()))

    def items(self) -> Iterator[tuple[int, Any, list[Any]]]:
        for key_group, cells in self.all_groups():
            for key, elements in cells.items():
                yield key_group, key, list(elements)

    @staticmethod
    def converted_cell(cell: list[Any], convert: Callable[[Any], Any]) -> list[Any]:
        return [convert(element) for element in cell]

    def load(self, row: tuple[Any, ...]) -> None:
        key_group, key, elements = row
        self.groups[key_group][key] = list(elements)

    def apply(self, changes: StateChanges, accepts: Callable[[int], bool] | None) -> None:
        if changes.ops is None:
            self._append(changes, accepts)
            return
        groups = self.groups
        cells = zip(changes.key_groups, changes.keys, changes.values, changes.ops, strict=True)
        for key_group, key, value, op in cells:
            if accepts is not None and not accepts(key_group):
                continue
            if op == Op.CLEAR:
                groups[key_group].pop(key, None)
            else:
                groups[key_group].setdefault(key, []).append(value)

    def _append(self, changes: StateChanges, accepts: Callable[[int], bool] | None) -> None:
        keys, values = changes.keys, changes.values
        for key_group, start, end in changes.runs:
            if accepts is not None and not accepts(key_group):
                continue
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
        looked_at = len(elements)
        if not kept:
            cells.pop(key, None)
        elif len(kept) < looked_at:
            cells[key] = kept
        return looked_at, looked_at - len(kept)


def _remove_entry(cells: dict[Any, dict[Any, Any]], key: Any, map_key: Any) -> None:
    """Remove an entry, and the key with its last one."""
    entries = cells.get(key)
    if entries is not None:
        entries.pop(map_key, None)
        if not entries:
            del cells[key]
