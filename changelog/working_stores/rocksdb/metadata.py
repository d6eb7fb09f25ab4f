"""The metadata of a RocksDB store: its operator and key groups, its states, and its version.

Invariants: I5 (the version is in the same write batch as the data), I8 and I9 (a directory of another operator, range
or format is never used: it is an error).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from varvite.changelog.working_stores.rocksdb.keys import metadata_key
from varvite.storage.errors import CorruptDataError, IncompatibleError
from varvite.storage.format.frame import decode_json
from varvite.storage.format.records import ORIGIN, Link, Record, StateSchema

if TYPE_CHECKING:
    from varvite.changelog.working_stores.rocksdb.database import Database

MAGIC: Final = "varve-rocksdb"
FORMAT: Final = 1
MARKER_KEY: Final = metadata_key("marker")
STATES_KEY: Final = metadata_key("states")
VERSION_KEY: Final = metadata_key("version")

R = TypeVar("R")


class StoreMarker(Record, frozen=True, kw_only=True):
    """Operator, key type and key groups of a directory; written when it is made."""

    magic: str
    format: int
    operator: str
    key_type: str
    low: int
    """First key group, inclusive."""
    high: int
    """Last key group, exclusive."""

    def check_equals(self, expected: StoreMarker, directory: str) -> None:
        """Raise `IncompatibleError` unless the directory is for that operator, key type and key-group range."""
        for field in ("operator", "key_type", "low", "high"):
            stored, needed = getattr(self, field), getattr(expected, field)
            if stored != needed:
                raise IncompatibleError(
                    f"the local state is of {field} {stored!r}, not {needed!r}; remove the directory, the state is "
                    "restored from storage",
                    operator=expected.operator,
                    object_name=directory,
                )


class StoreVersion(Record, frozen=True, kw_only=True):
    """The version of the state."""

    at: Link
    complete_from: int = 0
    """While `at.seq` is below this, some key groups are newer than `at` (`varvite.changelog.restore.clip`): the
    directory is only good for the running replay, and useless after a crash."""


class RegisteredState(Record, frozen=True, kw_only=True):
    """A state and its number in keys."""

    id: int
    schema: StateSchema


def new_marker(operator: str, key_type: str, low: int, high: int) -> StoreMarker:
    """The marker of a new directory."""
    return StoreMarker(magic=MAGIC, format=FORMAT, operator=operator, key_type=key_type, low=low, high=high)


def read_marker(database: Database) -> StoreMarker | None:
    """The marker; None if the database is empty (made, but nothing of it reached the disk).

    Raises `IncompatibleError` for another format, `CorruptDataError` for data without a marker.
    """
    data = database.get(MARKER_KEY)
    directory = str(database.directory)
    if data is None:
        if next(database.scan(b"", b"\xff" * 64), None) is not None:
            raise CorruptDataError("varvite did not write this database; use another directory", object_name=directory)
        return None
    fields = _decode(data, dict[str, Any], "marker", directory)
    if fields.get("magic") != MAGIC:
        raise CorruptDataError("the marker of the store is not varvite's", object_name=directory)
    if fields.get("format") != FORMAT:
        raise IncompatibleError(
            f"the store has format {fields.get('format')}, this varvite reads {FORMAT}; "
            "use the varvite that wrote it, or remove the directory: the state is restored from storage",
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
    return decode_json(data, record_type, f"the store's {what} record", directory)
