"""The contract of a working store: the confirmed state of one (operator, partition) on an executor.

A store never sees pending changes (I4: they are in the overlays of `varvite.changelog.keyed`); it changes only by
`apply`, which takes the whole net effect of one batch and the version after it.

Invariants: I4; I5 (`apply` is a function of the changes alone: no clock, no randomness, no order of calls between
keys); I9 (a store may vanish at any time and is rebuilt from snapshot and log).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from varvite.changelog.segments.batch import BatchFolder
from varvite.storage.errors import InvariantError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from varvite.changelog.segments.batch import BatchTime
    from varvite.changelog.segments.changes import StateChanges
    from varvite.changelog.working_stores.timer_form import TimerForm
    from varvite.storage.format.records import Link, StateSchema


# `gc=False` as in `varvite.storage.format.records`: the driver gets one of each of thousands of partitions.
class StoreSize(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Approximate size of a store; None: not known."""

    rows: int | None
    """Values, map entries (or maps), lists, timers: the store's unit of counting."""
    size_bytes: int | None


class ValueTable(Protocol):
    """Confirmed cells of a value, reducing or aggregating state. All keys and values are stored forms."""

    def get(self, key_group: int, key: Any) -> Any:
        """The stored value, or None if there is none."""
        ...

    def get_many(self, key_groups: Sequence[int], keys: Sequence[Any]) -> list[Any]:
        """The stored value of each key, None for none. Fastest for keys in ascending order of key group."""
        ...

    def prefetch(self, key_groups: Sequence[int], keys: Sequence[Any]) -> None:
        """Hint that these keys will probably be read before the next `prefetch`: a store may read them at once."""
        ...

    def items(self) -> Iterator[tuple[int, Any, Any]]:
        """All (key group, key, value), by key group, keys in any order."""
        ...


class MapTable(Protocol):
    """Confirmed cells of a map state."""

    def get(self, key_group: int, key: Any, map_key: Any) -> tuple[bool, Any]:
        """(present, stored value); a present value may be None."""
        ...

    def get_many(self, key_groups: Sequence[int], keys: Sequence[Any], map_keys: Sequence[Any]) -> list[Any]:
        """The stored value of each (key, map key); None where there is no entry or its value is None."""
        ...

    def entries(self, key_group: int, key: Any) -> dict[Any, Any]:
        """Map key → value of one key; a fresh dict."""
        ...

    def items(self) -> Iterator[tuple[int, Any, Any, Any]]:
        """All (key group, key, map key, value), by key group."""
        ...


class ListTable(Protocol):
    """Confirmed elements of a list state."""

    def elements(self, key_group: int, key: Any) -> list[Any]:
        """The key's elements in order; a fresh list."""
        ...

    def items(self) -> Iterator[tuple[int, Any, list[Any]]]:
        """All (key group, key, elements) that are not empty, by key group."""
        ...


class TimerTable(Protocol):
    """Confirmed timers of one timer state. Timers are packed by `form`; their bytes order as they fire."""

    form: TimerForm
    """Packs and unpacks the state's timers."""

    def due(self, until_ms: int) -> Iterator[tuple[bytes, int]]:
        """(packed timer, key group) of all timers with `time_ms <= until_ms`, of all key groups, in order.

        Costs by the due timers, not by all timers; valid until the next `apply`.
        """
        ...

    def contains(self, key_group: int, packed: bytes) -> bool:
        """Is the timer set?"""
        ...

    def items(self) -> Iterator[tuple[int, bytes]]:
        """All (key group, packed timer), by key group, then in order."""
        ...


class WorkingStore(BatchFolder, Protocol):
    """Confirmed state of key groups `[low, high)`; used by one thread at a time. Replay goes through `fold`."""

    @property
    def version(self) -> Link:
        """The commit whose state this is; `ORIGIN` for the empty store."""
        ...

    @property
    def schemas(self) -> tuple[StateSchema, ...]:
        """The registered states, in order of registration."""
        ...

    @property
    def changed_ttls(self) -> tuple[StateSchema, ...]:
        """The newest schemas of confirmed states whose TTL is pending: the next changes must have them, rows or not."""
        ...

    def register(self, schema: StateSchema, migrate: Callable[[Any], Any] | None = None) -> None:
        """Register a state, or a newer version of one. From now on its table reads and `apply` takes values of it.

        Until the next `apply` this is pending (`revert`). An older version than the registered one changes nothing.

        Args:
            schema: Decided by `varvite.changelog.schema.history.change`, or read from the log.
            migrate: From a stored form of the version before to one of this version, if the schema's history has no
                conversion; the caller then puts every value of the state again with the next `apply`.

        Raises:
            IncompatibleError: the schema is no version of the registered state: it has another kind or map key type, or
                another value type at the same version; the message names the operator, the state and both schemas.
        """
        ...

    def revert(self) -> None:
        """Forget the registrations since the last `apply` or `fold`; tables from before must not be used any more."""
        ...

    def value_table(self, schema: StateSchema) -> ValueTable:
        """The table of a value-like state at its newest version, registered if new.

        Raises as `register`; so do `map_table`, `list_table` and `timer_table`.
        """
        ...

    def map_table(self, schema: StateSchema) -> MapTable:
        """The table of a map state, registered if new."""
        ...

    def list_table(self, schema: StateSchema) -> ListTable:
        """The table of a list state, registered if new."""
        ...

    def timer_table(self, schema: StateSchema) -> TimerTable:
        """The table of a timer state, registered if new."""
        ...

    def apply(
        self, changes: Sequence[StateChanges], version: Link, accepts: Callable[[int], bool] | None = None
    ) -> None:
        """Fold one batch and move to `version`, at once: after a crash the store has all of it or none.

        Args:
            changes: Net effect of the batch at seq `version.seq` (list elements are ordered by that seq).
            version: The commit of the batch.
            accepts: Rows of key groups that it refuses are skipped; None accepts all.
        """
        ...

    def prepare(self, changes: Sequence[StateChanges], version_seq: int) -> None:
        """Hint that these changes will probably be applied next, at this seq: a store may do the work ahead.

        It changes nothing that can be seen through the store and the tables that it returns from now on. Tables from
        before must not be used until the changes are applied. An `apply` of other changes may follow as well.
        """
        ...

    def work_ahead(self) -> None:
        """Do some postponed work while nobody waits, before `prepare`. Nothing changes that can be seen.

        May be called at any time, or never: `apply` does all work that must be done.
        """
        ...

    def clean_up(self, now: BatchTime, activity: Mapping[str, StateActivity]) -> int:
        """Remove some of the expired values; the state reads as before.

        Args:
            now: The time of the confirmed state, or an earlier one.
            activity: State name → its uses since it was last cleaned up, which bounds the work.

        Returns:
            The number of removed values.
        """
        ...

    def write_snapshot(self, directory: Path, now: BatchTime | None = None) -> None:
        """Write the whole confirmed state as a RocksDB snapshot into `directory`, which must not exist.

        Values that have expired at `now`, the time of the confirmed state, may be left out.

        The directory then holds SST files (immutable, named alike in later snapshots of the same store as long as
        they are unchanged), and the small files that RocksDB needs to open it.
        """
        ...

    def size_estimate(self) -> StoreSize | None:
        """Approximate size of the store, if it is known without reading it; else None."""
        ...

    def close(self) -> None:
        """Release files and memory; the store is not usable afterwards."""
        ...


class StateActivity(NamedTuple):
    """The uses of a state since it was last cleaned up."""

    accesses: int = 0
    """Uses of its handles."""
    records: int = 0
    """Rows of the operator, whether they used the state or not."""
    mutations: int = 0
    """Rows of the log."""


def outside(key_group: int, key_groups: range) -> InvariantError:
    """The error of a key group that is not the store's."""
    low, high = key_groups.start, key_groups.stop
    return InvariantError(f"key group {key_group} is not one of the store's; it has [{low}, {high})")
