"""`TableStore`: the base class of a working store of one's own; a subclass only says how rows are kept.

What every working store must get right besides is here: which states there are, the version, that a batch counts as a
whole or not at all, which rows of a batch count, and snapshots in the one format that all stores share.

Invariants: I4, I5 (see `WorkingStore`), I9 (a store is always made empty; what it needs is restored).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from itertools import compress
from typing import TYPE_CHECKING, Any, NamedTuple

from varve.changelog.batch import Batch
from varve.changelog.changes import StateChanges
from varve.changelog.rocksdb_bulk import write_table_snapshot
from varve.changelog.rocksdb_metadata import StateRegistry
from varve.changelog.segment_columns import LIST, MAP, VALUE_LIKE
from varve.storage.errors import InvalidRequestError, InvariantError
from varve.storage.records import ORIGIN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from varve.changelog.working_store import ListTable, MapTable, ValueTable
    from varve.storage.records import Link, StateSchema


@dataclass(frozen=True, kw_only=True)
class StoreTarget:
    """Whose state a working store is to hold; what the factory of a custom state backend gets."""

    operator: str
    """The operator's uid."""
    key_type: str
    """Type string of its keys; `varve.changelog.types.parse_type_string` reads it."""
    low: int
    """First key group, inclusive."""
    high: int
    """Last key group, exclusive."""
    directory: Path
    """On the executor's local disk, for this store alone. It does not exist, its parent does; it is deleted before the
    next store of this state is made."""
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    """What the user gave to the backend: `CustomStateBackend(..., options=...)`."""


class TableChanges(NamedTuple):
    """Rows to write to one table."""

    table: Any
    """What `make_table` made."""
    changes: StateChanges
    """Every row counts."""


class TableStore(ABC):
    """A `WorkingStore` of tables; empty and at `ORIGIN` when made.

    Raises:
        InvalidRequestError: `target` names no key groups.
    """

    def __init__(self, target: StoreTarget) -> None:
        if not 0 <= target.low < target.high:
            raise InvalidRequestError(
                f"[{target.low}, {target.high}) is not a range of key groups", operator=target.operator
            )
        self.target = target
        self.key_groups = range(target.low, target.high)
        """The key groups of the store."""
        self._registry = StateRegistry((), target.operator)
        self._tables: dict[str, tuple[StateSchema, Any]] = {}
        self._version = ORIGIN
        self._torn = False
        self._folding = False

    # --- what a subclass says ---

    @abstractmethod
    def make_table(self, schema: StateSchema) -> ValueTable | MapTable | ListTable:
        """The table of a state, of the kind of `schema.kind`.

        Called again if what may change of a state's schema has changed; the rows stay. Reads of a key group outside of
        the store raise `InvariantError`; `check_key_group` does.
        """

    @abstractmethod
    def write(self, rows: Sequence[TableChanges]) -> None:
        """Write all these rows or, if it raises, none; of two rows for one cell the later one counts.

        An APPEND goes to the end of the key's list, whatever was written before it.
        """

    @abstractmethod
    def close(self) -> None:
        """Release files and memory."""

    # --- what follows from it ---

    def check_key_group(self, key_group: int) -> None:
        """Raises `InvariantError` if the key group is not one of the store's."""
        if key_group not in self.key_groups:
            raise InvariantError(
                f"key group {key_group} is not one of the store's; it has [{self.target.low}, {self.target.high})",
                operator=self.target.operator,
            )

    @property
    def version(self) -> Link:
        """See `WorkingStore`. Raises `InvariantError` if the state is a part of a batch or of a replay."""
        self._check_whole()
        return self._version

    @property
    def schemas(self) -> tuple[StateSchema, ...]:
        """See `WorkingStore`."""
        return self._registry.schemas

    def value_table(self, schema: StateSchema) -> ValueTable:
        """See `WorkingStore`."""
        return self._table_of(schema, VALUE_LIKE)

    def map_table(self, schema: StateSchema) -> MapTable:
        """See `WorkingStore`."""
        return self._table_of(schema, (MAP,))

    def list_table(self, schema: StateSchema) -> ListTable:
        """See `WorkingStore`."""
        return self._table_of(schema, (LIST,))

    def apply(
        self, changes: Sequence[StateChanges], version: Link, accepts: Callable[[int], bool] | None = None
    ) -> None:
        """See `WorkingStore`."""
        self._check_whole()
        self.fold([Batch(changes, version.seq, accepts)], version, last=True)

    def fold(self, batches: Sequence[Batch], version: Link, *, last: bool) -> None:
        """See `WorkingStore`. What can be wrong with the changes is found before the first is written."""
        if not self._folding:
            self._check_whole()
        if version.seq < self._version.seq:
            raise InvariantError(f"version {version} is below {self._version}", operator=self.target.operator)
        counting = [change for batch in batches for change in self._counting(batch)]
        rows = [TableChanges(self._table(change.schema), change) for change in counting]
        self._torn, self._folding = True, False
        self.write(rows)
        self._folding = not last
        if last:
            self._version, self._torn = version, False

    def prepare(self, changes: Sequence[StateChanges], version_seq: int) -> None:
        """See `WorkingStore`: a hint, which a subclass may use."""
        _ = changes, version_seq

    def write_snapshot(self, directory: Path) -> None:
        """See `WorkingStore`; from the `items` of all tables."""
        self._check_whole()
        write_table_snapshot(
            directory,
            operator=self.target.operator,
            key_type=self.target.key_type,
            low=self.target.low,
            high=self.target.high,
            version=self._version,
            tables=[(schema, self._table(schema).items()) for schema in self.schemas],
        )

    def _table_of(self, schema: StateSchema, kinds: Sequence[str]) -> Any:
        table = self._table(schema)
        if schema.kind not in kinds:
            problem = f"state {schema.name!r} is of kind {schema.kind}, not {kinds}"
            raise InvariantError(problem, operator=self.target.operator)
        return table

    def _table(self, schema: StateSchema) -> Any:
        known = self._tables.get(schema.name)
        if known is None or known[0] != schema:
            self._registry.register(schema)
            known = self._tables[schema.name] = schema, self.make_table(schema)
        return known[1]

    def _counting(self, batch: Batch) -> list[StateChanges]:
        """The changes of a batch without the rows that are not accepted."""
        accepts = batch.accepts
        counting = batch.changes if accepts is None else [_accepted(change, accepts) for change in batch.changes]
        for change in counting:
            for key_group in set(change.key_groups):
                self.check_key_group(key_group)
        return list(counting)

    def _check_whole(self) -> None:
        if self._torn:
            raise InvariantError(
                "the store holds a part of a batch or of a replay that failed: discard it and restore the state",
                operator=self.target.operator,
            )


def _accepted(changes: StateChanges, accepts: Callable[[int], bool]) -> StateChanges:
    """The rows of accepted key groups."""
    known = {key_group: accepts(key_group) for key_group in set(changes.key_groups)}
    if all(known.values()):
        return changes
    wanted = [known[key_group] for key_group in changes.key_groups]
    return StateChanges(
        changes.schema,
        list(compress(changes.key_groups, wanted)),
        list(compress(changes.keys, wanted)),
        None if changes.ops is None else bytes(compress(changes.ops, wanted)),
        None if changes.map_keys is None else list(compress(changes.map_keys, wanted)),
        list(compress(changes.values, wanted)),
    )
