"""Key groups of a hashmap store that are loaded lazily from another store.

A restart need not wait until all of a large state has become Python objects. The restored RocksDB store is kept, and a
key group is read from it at its first access, or while nobody waits. Nothing changes in that store, and whatever
changes a key group in memory loads it first. So a key group is either untouched and as it was at the restored commit,
or in memory.

Invariants: I5 (loaded rows are those of the other store), I9 (the other store is a cache, too).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from varvite.changelog.working_stores.rocksdb.store import RocksDBStore

_PARTS: Final = 32
"""Each `load_some` loads one part of the key groups that there were."""


class LazyGroups(dict[int, dict[Any, Any]]):
    """Key group → cells. Only `[]` loads: all else sees only loaded key groups."""

    def __init__(self, key_groups: Iterable[int], load: Callable[[int], dict[Any, Any]]) -> None:
        """`load` reads the cells of a key group; it is called once for each."""
        super().__init__()
        self.left = set(key_groups)
        """The key groups that are not loaded."""
        self._load = load

    def __missing__(self, key_group: int) -> dict[Any, Any]:
        if key_group not in self.left:
            raise KeyError(key_group)
        cells = self[key_group] = self._load(key_group)
        self.left.discard(key_group)
        return cells


class GroupSource:
    """The store that key groups are loaded from.

    Args:
        store: At the version that the loading store had when it began; must not change.
        key_groups: Their number.
        release: Closes the store and gives its files up.
    """

    def __init__(self, store: RocksDBStore, key_groups: int, release: Callable[[], None]) -> None:
        size = store.size_estimate()
        self._rows = 0 if size is None or size.rows is None else size.rows
        self._key_groups = key_groups
        self._release = release
        self._states: list[LazyGroups] = []

    def add(self, groups: LazyGroups) -> None:
        """Add one state's key groups."""
        self._states.append(groups)

    @property
    def is_complete(self) -> bool:
        """Is everything loaded?"""
        return not any(groups.left for groups in self._states)

    def rows_left(self) -> int:
        """Approximate number of rows that are not loaded yet."""
        left = sum(len(groups.left) for groups in self._states)
        return self._rows * left // max(1, len(self._states) * self._key_groups)

    def load_some(self) -> None:
        """Load some of what is left. Raises the errors of reading the store."""
        count = -(-self._key_groups // _PARTS)
        for groups in self._states:
            for key_group in sorted(groups.left)[:count]:
                groups[key_group]

    def close(self) -> None:
        """Release the store: nothing is loaded any more."""
        self._release()
