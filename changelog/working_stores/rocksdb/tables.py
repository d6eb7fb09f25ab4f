"""The tables of a RocksDB store: reads of confirmed cells.

Two caches keep reads away from RocksDB, where one read costs 2 to 4 µs: prefetched values (until the next batch), and
values of recent batches (bounded by bytes, two generations). Prefetching is one scan of the key groups, if the batch
reads a good part of the state. RocksDB's multi-get was measured and is no faster than single gets, and reading ahead
one by one in order of key gains a tenth at most.

A table also reads confirmed values that are not written yet
(`varvite.changelog.working_stores.rocksdb.write_behind`); before it scans, it has them written.

Invariants: I5 (a table answers from the confirmed state alone), I8 (a damaged value is an error), I10.
"""

from __future__ import annotations

from itertools import islice, repeat
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from varvite.changelog.segments.changes import runs_of
from varvite.changelog.types.key_wire import key_reader, key_writer, keys_reader
from varvite.changelog.types.stamped import STAMP_MIN, StampedType, unstamped
from varvite.changelog.types.wire_columns import bulk_reader
from varvite.changelog.working_stores.rocksdb.database import rocksdb_error
from varvite.changelog.working_stores.rocksdb.keys import (
    ELEMENT_BYTES,
    PREFIX_BYTES,
    split_map_key,
    split_value,
    successor,
    version_number,
)
from varvite.storage.errors import InvariantError, VarviteError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from varvite.changelog.working_stores.rocksdb.database import Database
    from varvite.changelog.working_stores.rocksdb.state_form import StateForm

_UNKNOWN: Final = object()
_NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})
_ROWS_AT_ONCE: Final = 256
"""Rows of a whole table that are decoded together; with values of 1 KB they fit into the processor's cache."""
SCAN_FACTOR: Final = 3
"""A prefetch scans if the whole store has at most this many rows per prefetched key: a scanned row costs about a
quarter of a single read."""

OBJECT_BYTES: Final = 200
"""Approximate cost of a cached value beside its content: dict entry, objects of key and value."""
OBJECTS_PER_WIRE_BYTE: Final = 3
"""Approximate bytes of Python objects for one byte of wire form."""


def remembered_bytes(rows: int, wire_bytes: int) -> int:
    """Approximate memory of `rows` values, whose keys and values have `wire_bytes` together."""
    return rows * OBJECT_BYTES + wire_bytes * OBJECTS_PER_WIRE_BYTE


class RecentValues:
    """Values by key, None for keys without one; about `limit_bytes` at most, in two generations.

    A value in `young` is current; one in `old` is current unless `young` has the key.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._is_lent = False
        self._generation_bytes = limit_bytes // 2
        self._young_bytes = 0
        self.young: dict[Any, Any] = {}
        self.old: dict[Any, Any] = {}

    @property
    def generation_bytes(self) -> int:
        """Limit of one of the two generations."""
        return self._generation_bytes

    def lend(self) -> None:
        """Lend the memory of one generation until `take_back`."""
        self._is_lent, self.old = True, {}

    def take_back(self) -> None:
        """End the loan: keep both generations again."""
        self._is_lent = False

    def limit(self, limit_bytes: int) -> None:
        """Set the limit; a lower one than before clears the cache."""
        if limit_bytes // 2 < self._generation_bytes:
            self.old, self.young, self._young_bytes = {}, {}, 0
        self._generation_bytes = limit_bytes // 2

    def put(self, key: Any, value: Any, wire_bytes: int) -> None:
        """Cache a value that is not in `young`."""
        size = remembered_bytes(1, wire_bytes)
        if size > self._generation_bytes:
            return
        self._make_room(size)
        self.young[key] = value

    def update(self, values: Mapping[Any, Any], wire_bytes: int) -> None:
        """Cache these values; if they do not fit, clear the cache."""
        size = remembered_bytes(len(values), wire_bytes)
        if size > self._generation_bytes:
            self.clear()
            return
        self._make_room(size)
        self.young.update(values)

    def _make_room(self, size: int) -> None:
        if self._young_bytes + size > self._generation_bytes:
            self.old, self.young, self._young_bytes = {} if self._is_lent else self.young, {}, 0
        self._young_bytes += size

    def clear(self) -> None:
        """Clear the cache."""
        self.old, self.young, self._young_bytes = {}, {}, 0


class _Table:
    """Base of the tables: conversion of stored values to stored forms."""

    def __init__(self, form: StateForm, database: Database) -> None:
        self.form = form
        self._database = database
        self._from_wire: Callable[[bytes], Any] = form.value.from_wire
        self._head = form.head
        self._is_stamped = isinstance(form.value, StampedType)
        self._readers: dict[int, Callable[[bytes], Any]] = {
            version_number(form.schema.version): unstamped(form.value).from_wire
        }
        """By version number: functions from wire forms to stored forms, both without time stamps."""
        self._all_from_wire = None if self._is_stamped else bulk_reader(form.value)
        self._key_to_wire: Callable[[Any], bytes] = key_writer(form.key)
        self._key_from_wire = key_reader(form.key)
        self._keys = keys_reader(form.key)

    def _value(self, data: bytes) -> Any:
        """The stored form of a stored value; None for a null map value."""
        try:
            # Nearly all values are of this version, with a time stamp if it has one: splitting them here saves a call.
            if data[:1] != self._head:
                return self._other_value(data)
            wire = data[1:]
            return self._from_wire(wire) if wire or self._is_stamped else None
        except VarviteError as error:
            raise error.with_context(object_name=str(self._database.directory)) from error.__cause__

    def _other_value(self, data: bytes) -> Any:
        """The stored form, of this version, of a value of an older version or without stamp, as its header says."""
        number, stamp, wire = split_value(data)
        read = self._readers.get(number)
        if read is None:
            read = self._readers[number] = self.form.reader_of(number)
        value = read(wire) if wire else None
        return (STAMP_MIN if stamp is None else stamp, value) if self._is_stamped else value

    def _values(self, cells: Sequence[bytes | None]) -> list[Any]:
        """The stored forms of stored values that are not null, None for None; together they cost half."""
        head, all_from_wire = self._head, self._all_from_wire
        if all_from_wire is None or not all(cell is None or cell[:1] == head for cell in cells):
            return [None if cell is None else self._value(cell) for cell in cells]
        try:
            wires = [cell[1:] for cell in cells if cell is not None]
            stored = all_from_wire(wires)
        except VarviteError as error:
            raise error.with_context(object_name=str(self._database.directory)) from error.__cause__
        if len(wires) == len(cells):
            return stored
        following = iter(stored)
        return [None if cell is None else next(following) for cell in cells]

    def _key(self, wire: bytes) -> Any:
        return self._key_from_wire(wire)

    def _pieces(self, start: bytes) -> Iterator[list[tuple[bytes, bytes]]]:
        """The rows that begin with `start`, `_ROWS_AT_ONCE` at a time."""
        rows = self._rows(start)
        while piece := list(islice(rows, _ROWS_AT_ONCE)):
            yield piece

    def _rows(self, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._database.scan(start, successor(start))


class RocksDBValueTable(_Table):
    """Cells of a value-like state."""

    def __init__(
        self, form: StateForm, database: Database, recent: RecentValues, write_held: Callable[[], None]
    ) -> None:
        """`write_held` writes the values that the store holds back."""
        super().__init__(form, database)
        self._recent = recent
        self._write_held = write_held
        self._held: tuple[Mapping[int, Mapping[Any, Any]], ...] = ()
        """Newest first: key group → key → value, None for none, that is not in the database yet."""
        self._ahead: dict[Any, Any] = {}
        self._read = database.read
        self._counted: int | None = None
        """Rows at the last scan of all, and those written since; None before."""

    def get(self, key_group: int, key: Any) -> Any:
        value = self._ahead.get(key, _UNKNOWN)
        if value is not _UNKNOWN:
            return value
        for held in self._held:
            value = held.get(key_group, _NOTHING).get(key, _UNKNOWN)
            if value is not _UNKNOWN:
                return value
        recent = self._recent
        value = recent.young.get(key, _UNKNOWN)
        if value is not _UNKNOWN:
            return value
        value = recent.old.get(key, _UNKNOWN)
        if value is not _UNKNOWN:
            return value
        row = self.form.prefixes[key_group] + self._key_to_wire(key)
        data = self._load(row)
        value = None if data is None else self._value(data)
        recent.put(key, value, len(row) if data is None else len(row) + len(data))
        return value

    def prefetch(self, key_groups: Sequence[int], keys: Sequence[Any]) -> None:
        """Scan the key groups if that is cheaper than single reads."""
        self._ahead = {}
        keys_min = self._database.count_estimate() // SCAN_FACTOR
        if len(keys) < keys_min:
            return
        self._settle()
        young, old, prefixes, to_wire = self._recent.young, self._recent.old, self.form.prefixes, self._key_to_wire
        missing = {
            prefixes[key_group] + to_wire(key): key
            for key_group, key in zip(key_groups, keys, strict=True)
            if key not in young and key not in old
        }
        if missing and len(missing) >= keys_min:
            self._scan_ahead(missing, set(key_groups))

    def get_many(self, key_groups: Sequence[int], keys: Sequence[Any]) -> list[Any]:
        """The values of the keys; scans the key groups if that is cheaper than single reads."""
        if len(keys) * SCAN_FACTOR < self._rows_most():
            return list(map(self.get, key_groups, keys))
        self._settle()
        prefixes, to_wire = self.form.prefixes, self._key_to_wire
        cells: list[bytes | None] = []
        scanned = scans = 0
        for key_group, start, end in runs_of(key_groups):
            begin = prefixes[key_group]
            rows = dict(self._rows(begin))
            cells += [rows.get(begin + to_wire(key)) for key in keys[start:end]]
            scanned, scans = scanned + len(rows), scans + 1
        self._counted = scanned if scans == len(prefixes) else None
        return self._values(cells)

    def _rows_most(self) -> int:
        """Approximate upper bound of rows: RocksDB's estimate is of all states, and counts overwritten rows as well."""
        estimate = self._database.count_estimate()
        return estimate if self._counted is None else min(estimate, self._counted)

    @property
    def is_stamped(self) -> bool:
        """Do values have time stamps?"""
        return self._is_stamped

    @property
    def room_bytes(self) -> int:
        """Memory that values that are held back may take."""
        return self._recent.generation_bytes

    def hold(self, *cells: Mapping[int, Mapping[Any, Any]]) -> None:
        """Read these confirmed cells before the database: key group → key → value, None for a removed one.

        Newest first; none: everything is in the database. The cached values of keys that have been written may be
        older: `remember` or `forget` must follow.
        """
        self._ahead = {}
        self._held = cells
        if cells:
            self._recent.lend()
        else:
            self._recent.take_back()

    def _settle(self) -> None:
        """Have all confirmed values written to the database."""
        if self._held:
            self._write_held()

    def remember(self, values: Mapping[Any, Any], wire_bytes: int) -> None:
        """Cache the values that a batch has set (None: deleted), `wire_bytes` in all."""
        if self._counted is not None:
            self._counted += len(values)
        self._ahead = {}
        self._recent.update(values, wire_bytes)

    def forget(self) -> None:
        """Clear the caches: their values may be outdated."""
        self._counted = None
        self._ahead = {}
        self._recent.clear()

    def items(self) -> Iterator[tuple[int, Any, Any]]:
        for key_group in self.form.prefixes:
            yield from self.group_items(key_group)

    def group_items(self, key_group: int) -> Iterator[tuple[int, Any, Any]]:
        """The rows of `items` of one key group."""
        self._settle()
        for piece in self._pieces(self.form.prefixes[key_group]):
            keys = self._keys([row[PREFIX_BYTES:] for row, _ in piece])
            values = self._values([data for _, data in piece])
            yield from zip(repeat(key_group, len(piece)), keys, values, strict=True)

    def _scan_ahead(self, keys_by_row: dict[bytes, Any], key_groups: set[int]) -> None:
        """Scan these key groups and keep the values of these rows."""
        ahead, value, find = self._ahead, self._value, keys_by_row.get
        for key_group in sorted(key_groups):
            for row, data in self._rows(self.form.prefixes[key_group]):
                key = find(row, _UNKNOWN)
                if key is not _UNKNOWN:
                    ahead[key] = value(data)

    def _load(self, row: bytes) -> bytes | None:
        try:
            return self._read(row)
        except Exception as error:
            raise rocksdb_error(error, self._database.directory) from error


class RocksDBMapTable(_Table):
    """Entries of a map state."""

    def __init__(self, form: StateForm, database: Database) -> None:
        super().__init__(form, database)
        if form.map_key is None:
            raise InvariantError(f"map state {form.schema.name!r} has no map key type")
        self._map_key = form.map_key
        self._map_key_to_wire: Callable[[Any], bytes] = form.map_key.to_wire
        self._all_map_keys_from_wire = bulk_reader(form.map_key)
        self._prefixes = form.prefixes
        self._read = database.read

    def get(self, key_group: int, key: Any, map_key: Any) -> tuple[bool, Any]:
        row = self._prefixes[key_group] + self._key_to_wire(key) + self._map_key_to_wire(map_key)
        try:
            data = self._read(row)
        except Exception as error:
            raise rocksdb_error(error, self._database.directory) from error
        return (False, None) if data is None else (True, self._value(data))

    def get_many(self, key_groups: Sequence[int], keys: Sequence[Any], map_keys: Sequence[Any]) -> list[Any]:
        prefixes, to_wire, map_to_wire = self.form.prefixes, self._key_to_wire, self._map_key.to_wire
        read, rows = self._database.get, zip(key_groups, keys, map_keys, strict=True)
        data = [read(prefixes[group] + to_wire(key) + map_to_wire(map_key)) for group, key, map_key in rows]
        return self._values(data)

    def entries(self, key_group: int, key: Any) -> dict[Any, Any]:
        start = self.form.prefixes[key_group] + self._key_to_wire(key)
        skip, map_key, value = len(start), self._map_key.from_wire, self._value
        return {map_key(row[skip:]): value(data) for row, data in self._rows(start)}

    def holds_any(
        self, key_group: int, key: Any, without: AbstractSet[Any], accepts: Callable[[Any], bool] | None
    ) -> bool:
        """`MapOverlay.holds_any` of the confirmed entries."""
        start = self.form.prefixes[key_group] + self._key_to_wire(key)
        skip, map_key, value = len(start), self._map_key.from_wire, self._value
        return any(
            map_key(row[skip:]) not in without and (accepts is None or accepts(value(data)))
            for row, data in self._rows(start)
        )

    def items(self) -> Iterator[tuple[int, Any, Any, Any]]:
        for key_group in self.form.prefixes:
            yield from self.group_items(key_group)

    def group_items(self, key_group: int) -> Iterator[tuple[int, Any, Any, Any]]:
        """The rows of `items` of one key group."""
        for piece in self._pieces(self._prefixes[key_group]):
            parts = [split_map_key(row) for row, _ in piece]
            keys = self._keys([part.key for part in parts])
            map_keys = self._all_map_keys_from_wire([part.map_key for part in parts])
            values = self._values([data for _, data in piece])
            yield from zip(repeat(key_group, len(piece)), keys, map_keys, values, strict=True)

    def _values(self, cells: Sequence[bytes | None]) -> list[Any]:
        """Stored forms; null map values cannot be decoded together."""
        if self._head in cells:
            return [None if cell is None else self._value(cell) for cell in cells]
        return super()._values(cells)


class RocksDBListTable(_Table):
    """Elements of a list state."""

    def elements(self, key_group: int, key: Any) -> list[Any]:
        value = self._value
        return [value(data) for _, data in self._rows(self.form.prefixes[key_group] + self._key_to_wire(key))]

    def items(self) -> Iterator[tuple[int, Any, list[Any]]]:
        for key_group in self.form.prefixes:
            yield from self.group_items(key_group)

    def group_items(self, key_group: int) -> Iterator[tuple[int, Any, list[Any]]]:
        """The rows of `items` of one key group."""
        current, elements = b"", list[Any]()
        for row, data in self._rows(self.form.prefixes[key_group]):
            wire = row[PREFIX_BYTES:-ELEMENT_BYTES]
            if wire != current and elements:
                yield key_group, self._key(current), elements
                elements = []
            current = wire
            elements.append(self._value(data))
        if elements:
            yield key_group, self._key(current), elements
