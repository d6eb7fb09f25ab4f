"""The contract of a working store: the confirmed state of one (operator, partition) on an executor.

A store never sees what is pending (I4: that is the overlay in `varvite.changelog.keyed.backend`); it changes only by
`apply`, which takes the whole net effect of one batch and the version that it leads to.

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
    """About how much a store holds; None: not known."""

    rows: int | None
    """Values, map entries of one key together, lists, timers: what the store counts as one."""
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
        """These keys will probably be read before the next `prefetch`: a store may read them at once. A hint."""
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

        Costs what it gives and not what there is; valid until the next `apply`.
        """
        ...

    def contains(self, key_group: int, packed: bytes) -> bool:
        """Whether there is this timer."""
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
        """The states that the store knows, in order of registration."""
        ...

    @property
    def changed_ttls(self) -> tuple[StateSchema, ...]:
        """The newest schemas of confirmed states whose TTL is pending: the next changes must have them, rows or not."""
        ...

    def register(self, schema: StateSchema, migrate: Callable[[Any], Any] | None = None) -> None:
        """Know a state, or a newer version of one. From now on its table reads and `apply` takes values of it.

        Until the next `apply` this is pending, see `revert`. Older versions are known already, as far as they matter.

        Args:
            schema: Decided by `varvite.changelog.schema.history.change`, or read from the log.
            migrate: What makes a stored form of this version from one of the version before, if the schema's history
                does not say; the caller then puts every value of the state again with the next `apply`.

        Raises:
            IncompatibleError: the schema is no version of the known state: it has another kind or map key type, or
                another value type at the same version; the message names the operator, the state and both schemas.
        """
        ...

    def revert(self) -> None:
        """Forget what was registered since the last `apply` or `fold`; tables that were given out are dead."""
        ...

    def value_table(self, schema: StateSchema) -> ValueTable:
        """The table of a value-like state at its newest version, registered if new; see `register` for errors.

        So do `map_table`, `list_table` and `timer_table`.
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
            version: The commit that this leads to.
            accepts: Rows of key groups that it refuses are skipped; None accepts all.
        """
        ...

    def prepare(self, changes: Sequence[StateChanges], version_seq: int) -> None:
        """These changes will probably be applied next, at this seq: a store may do the work ahead.

        A hint that changes nothing that can be seen through this store and the tables that it gives from now on; tables
        that were got before must not be used until the changes are applied. A following `apply` of other changes is
        right as well.
        """
        ...

    def work_ahead(self) -> None:
        """Nobody waits: a store may do some of what it has put off, before `prepare`. Nothing changes that can be seen.

        May be called at any time, or never: what must be done at last is done by `apply`.
        """
        ...

    def clean_up(self, now: BatchTime, activity: Mapping[str, StateActivity]) -> int:
        """Remove some of what has expired; the state reads as before.

        Args:
            now: The time of the confirmed state, or an earlier one.
            activity: State name → what was done to it since it was last cleaned up, which bounds the work.

        Returns:
            How many values were removed.
        """
        ...

    def write_snapshot(self, directory: Path, now: BatchTime | None = None) -> None:
        """Write the whole confirmed state as a RocksDB snapshot into `directory`, which must not exist.

        What has expired at `now`, the time of the confirmed state, may be left out.

        The directory then holds SST files (immutable, named alike in later snapshots of the same store as long as
        they are unchanged), and the small files that RocksDB needs to open it.
        """
        ...

    def size_estimate(self) -> StoreSize | None:
        """About how much the store holds, if that can be said without reading it; None if not."""
        ...

    def close(self) -> None:
        """Release files and memory; the store is not usable afterwards."""
        ...


class StateActivity(NamedTuple):
    """What was done to a state since it was last cleaned up."""

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
