"""The metadata that a RocksDB store keeps of itself: whose it is, which states it has, and at which version it is.

Invariants: I5 (the version is in the same write batch as the data), I8 and I9 (a directory that is not what the caller
thinks is never used: it is an error that says so).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from varve.changelog.rocksdb_key import STATE_ID_END, metadata_key
from varve.changelog.ttl_record import is_same_shape, merged
from varve.storage.errors import CorruptDataError, IncompatibleError, InvariantError
from varve.storage.records import ORIGIN, Link, Record, StateSchema

if TYPE_CHECKING:
    from varve.changelog.rocksdb_database import Database

MAGIC: Final = "varve-rocksdb"
FORMAT: Final = 1
MARKER_KEY: Final = metadata_key("marker")
STATES_KEY: Final = metadata_key("states")
VERSION_KEY: Final = metadata_key("version")

R = TypeVar("R")


class StoreMarker(Record, frozen=True, kw_only=True):
    """Whose state a directory holds; written when it is made."""

    magic: str
    format: int
    operator: str
    key_type: str
    low: int
    """First key group, inclusive."""
    high: int
    """Last key group, exclusive."""

    def expect(self, wanted: StoreMarker, directory: str) -> None:
        """Raises `IncompatibleError` unless the directory is for this operator, key type and key-group range."""
        for field in ("operator", "key_type", "low", "high"):
            found, needed = getattr(self, field), getattr(wanted, field)
            if found != needed:
                raise IncompatibleError(
                    f"the local state is of {field} {found!r}, not {needed!r}; remove the directory, the state is "
                    "restored from storage",
                    operator=wanted.operator,
                    object_name=directory,
                )


class StoreVersion(Record, frozen=True, kw_only=True):
    """The version of the state."""

    at: Link
    complete_from: int = 0
    """While `at.seq` is below this, some key groups are newer than `at` (see `varve.changelog.snapshot_clip`): the
    directory is only good for the replay that is under way, and useless after a crash."""


class RegisteredState(Record, frozen=True, kw_only=True):
    """A state and its number in keys."""

    id: int
    schema: StateSchema


def marker(operator: str, key_type: str, low: int, high: int) -> StoreMarker:
    """The marker of a new directory."""
    return StoreMarker(magic=MAGIC, format=FORMAT, operator=operator, key_type=key_type, low=low, high=high)


def read_marker(database: Database) -> StoreMarker | None:
    """The marker, None if the database is empty (made, but nothing of it reached the disk).

    Raises `IncompatibleError` for another format, `CorruptDataError` for data without a marker.
    """
    data = database.get(MARKER_KEY)
    directory = str(database.directory)
    if data is None:
        if next(database.scan(b"", b"\xff" * 64), None) is not None:
            raise CorruptDataError("varve did not write this database; use another directory", object_name=directory)
        return None
    found = _decode(data, dict[str, Any], "marker", directory)
    if found.get("magic") != MAGIC:
        raise CorruptDataError("the marker of the store is not varve's", object_name=directory)
    if found.get("format") != FORMAT:
        raise IncompatibleError(
            f"the store has format {found.get('format')}, this varve reads {FORMAT}; "
            "use the varve that wrote it, or remove the directory: the state is restored from storage",
            object_name=directory,
        )
    return _decode(data, StoreMarker, "marker", directory)


def read_states(database: Database) -> tuple[RegisteredState, ...]:
    """The registered states, in order of registration."""
    data = database.get(STATES_KEY)
    return () if data is None else _decode(data, tuple[RegisteredState, ...], "states", str(database.directory))


def read_version(database: Database) -> StoreVersion:
    """The version; `ORIGIN` for the empty store."""
    data = database.get(VERSION_KEY)
    if data is None:
        return StoreVersion(at=ORIGIN)
    return _decode(data, StoreVersion, "version", str(database.directory))


def _decode(data: bytes, record_type: type[R], what: str, directory: str) -> R:
    try:
        return msgspec.json.decode(data, type=record_type)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise CorruptDataError(f"the store's {what} record does not parse: {error}", object_name=directory) from error


class StateRegistry:
    """The states of a store by name, and their numbers."""

    def __init__(self, states: tuple[RegisteredState, ...], operator: str) -> None:
        self._operator = operator
        self._by_name = {state.schema.name: state for state in states}
        self._logged = dict(self._by_name)
        self.saved = True
        """False: `encoded` differs from what is in the database."""

    def applied(self) -> None:
        """A batch was applied: the schemas are now those of the confirmed state."""
        self._logged = dict(self._by_name)

    @property
    def logged(self) -> tuple[StateSchema, ...]:
        """Schemas as of the batch that was applied last."""
        return tuple(state.schema for state in self._logged.values())

    @property
    def changed(self) -> tuple[StateSchema, ...]:
        """Schemas that have replaced others since a batch was applied; new states are not among them."""
        logged = self._logged
        return tuple(s.schema for n, s in self._by_name.items() if n in logged and logged[n].schema != s.schema)

    @property
    def schemas(self) -> tuple[StateSchema, ...]:
        """In order of registration."""
        return tuple(state.schema for state in self._by_name.values())

    @property
    def states(self) -> tuple[RegisteredState, ...]:
        """In order of registration, which is the order of their ids."""
        return tuple(self._by_name.values())

    def get(self, name: str) -> RegisteredState | None:
        """The state of that name."""
        return self._by_name.get(name)

    def register(self, schema: StateSchema) -> RegisteredState:
        """The state of this schema, new or known; what may change (TTL, schema version) is taken over.

        A state that is stored with stamps stays so, and a later TTL is not replaced by an earlier one (see `merged`).

        Raises `IncompatibleError` naming the operator, the state and both schemas.
        """
        known = self._by_name.get(schema.name)
        if known is not None and known.schema == schema:
            return known
        if known is not None:
            check_same_shape(known.schema, schema, self._operator)
            schema = merged(known.schema, schema)
        return self._put(schema)

    def declare(self, schema: StateSchema) -> RegisteredState:
        """The same for a schema that a batch declares: what a batch before it declared and did not apply is forgotten.

        The batch must have made it from the one in `logged`.
        """
        known, logged = self._by_name.get(schema.name), self._logged.get(schema.name)
        if known is not None and known.schema == schema:
            return known
        for other in (known, logged):
            if other is not None:
                check_same_shape(other.schema, schema, self._operator)
        return self._put(schema if logged is None else merged(logged.schema, schema))

    def _put(self, schema: StateSchema) -> RegisteredState:
        known = self._by_name.get(schema.name)
        if known is not None and known.schema == schema:
            return known
        state = RegisteredState(id=len(self._by_name) if known is None else known.id, schema=schema)
        if state.id >= STATE_ID_END:
            raise InvariantError(f"more than {STATE_ID_END} states", operator=self._operator)
        self._by_name[schema.name] = state
        self.saved = False
        return state

    def encoded(self) -> bytes:
        """The record to store under `STATES_KEY`."""
        return msgspec.json.encode(self.states)


def check_same_shape(known: StateSchema, wanted: StateSchema, operator: str) -> None:
    """Raises `IncompatibleError` if the stored rows of one cannot be read as the other."""
    fields: Any = ("kind", "map_key_type", "namespace_type")
    if not is_same_shape(known, wanted) or any(getattr(known, field) != getattr(wanted, field) for field in fields):
        raise IncompatibleError(
            f"state {wanted.name!r} is stored as {_words(known)}, but the job declares it as {_words(wanted)}; "
            "give the state another name, or declare it as it is stored",
            operator=operator,
        )


def _words(schema: StateSchema) -> str:
    map_key = f" by {schema.map_key_type}" if schema.map_key_type is not None else ""
    namespace = f" in namespaces of {schema.namespace_type}" if schema.namespace_type is not None else ""
    return f"{schema.kind} of {schema.value_type}{map_key}{namespace}"
