"""A working store on SQLite, from the standard library: an example of a custom state backend.

```python
env.set_state_backend(CustomStateBackend("examples.sqlite_store:SQLiteStore"))
```

Each state is one table of rows (key group, key, sub-key) -> value, all in varvite's wire forms: bytes whose equality is
that of the values. The sub-key is the map key in a map state, the position in a list state, else empty. The database
needs no durability of its own, as it is only a cache of what varvite can restore. Timers are kept by `TableStore`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import count, groupby
from operator import itemgetter
from typing import Any

from varvite.extending import (
    Op,
    StateChanges,
    StateSchema,
    StoreTarget,
    TableChanges,
    TableStore,
    key_reader,
    key_writer,
    parse_type_string,
)

Parameters = tuple[Any, ...]
SUB_KEY_BYTES = 8
"""Of a position in a list; big-endian, so that bytes are in the order of positions."""


class SQLiteStore(TableStore):
    """Rows in one SQLite file. Option `cache-mb`: SQLite's page cache, 16 unless given."""

    def __init__(self, target: StoreTarget) -> None:
        super().__init__(target)
        target.directory.mkdir()
        self.database = sqlite3.connect(
            target.directory / "state.sqlite", isolation_level=None, check_same_thread=False
        )
        self.database.execute("PRAGMA journal_mode = MEMORY")
        self.database.execute("PRAGMA synchronous = OFF")
        self.database.execute(f"PRAGMA cache_size = {-1024 * int(target.options.get('cache-mb', '16'))}")
        self.positions = count()
        self.numbers = count()
        """Of tables: names of states may differ only in case, which SQLite ignores."""

    def make_table(self, schema: StateSchema) -> Any:
        return {"map": SQLiteMap, "list": SQLiteList}.get(schema.kind, SQLiteValue)(self, schema)

    def drop_table(self, table: Any) -> None:
        self.database.execute(f"DROP TABLE {table.name}")

    def write(self, rows: Sequence[TableChanges]) -> None:
        self.database.execute("BEGIN")
        try:
            for table, changes in rows:
                table.write(changes)
        except BaseException:
            self.database.execute("ROLLBACK")
            raise
        self.database.execute("COMMIT")

    def close(self) -> None:
        self.database.close()


class SQLiteTable:
    """Base of the three kinds of tables."""

    def __init__(self, store: SQLiteStore, schema: StateSchema) -> None:
        self.store = store
        self.schema = schema
        self.name = f"state_{next(store.numbers)}"
        self.to_key = key_writer(parse_type_string(store.target.key_type))
        self.from_key = key_reader(parse_type_string(store.target.key_type))
        value_type = parse_type_string(schema.value_type)
        self.to_value, self.from_value = value_type.to_wire, value_type.from_wire
        store.database.execute(
            f"CREATE TABLE {self.name} (key_group INTEGER, key BLOB, sub BLOB, value BLOB, "
            "PRIMARY KEY (key_group, key, sub)) WITHOUT ROWID"
        )

    def select(self, columns: str, where: str, *parameters: Any) -> list[Parameters]:
        return self.store.database.execute(f"SELECT {columns} FROM {self.name} {where}", parameters).fetchall()

    def of_key(self, columns: str, key_group: int, key: Any) -> list[Parameters]:
        self.store.check_key_group(key_group)
        return self.select(columns, "WHERE key_group = ? AND key = ? ORDER BY sub", key_group, self.to_key(key))

    def rows(self) -> Iterator[Parameters]:
        """All (key group, key, sub-key, value), a key group at a time."""
        for key_group in self.store.key_groups:
            for key, sub, value in self.select("key, sub, value", "WHERE key_group = ? ORDER BY key, sub", key_group):
                yield key_group, self.from_key(key), sub, None if value is None else self.from_value(value)

    def write(self, changes: StateChanges) -> None:
        ordinary = Op.APPEND if self.schema.kind == "list" else Op.PUT
        ops = changes.ops or bytes([ordinary]) * len(changes)
        map_keys = changes.map_keys or [None] * len(changes)
        cells = zip(ops, changes.key_groups, changes.keys, map_keys, changes.values, strict=True)
        for op, run in groupby(cells, key=itemgetter(0)):
            self.store.database.executemany(*self.statement(Op(op), run))

    def statement(self, op: Op, cells: Iterator[Parameters]) -> tuple[str, Iterator[Parameters]]:
        """SQL of an op, and its parameters for these (op, key group, key, map key, value)."""
        if op is Op.CLEAR:
            cleared = ((group, self.to_key(key)) for _, group, key, _, _ in cells)
            return f"DELETE FROM {self.name} WHERE key_group = ? AND key = ?", cleared
        if op is Op.DELETE:
            deleted = ((group, self.to_key(key), self.sub_key(map_key)) for _, group, key, map_key, _ in cells)
            return f"DELETE FROM {self.name} WHERE key_group = ? AND key = ? AND sub = ?", deleted
        written = (
            (group, self.to_key(key), self.sub_key(map_key), None if value is None else self.to_value(value))
            for _, group, key, map_key, value in cells
        )
        return f"INSERT OR REPLACE INTO {self.name} VALUES (?, ?, ?, ?)", written

    def sub_key(self, map_key: Any) -> bytes:
        _ = map_key
        return b""


class SQLiteValue(SQLiteTable):
    """One row per key."""

    def get(self, key_group: int, key: Any) -> Any:
        rows = self.of_key("value", key_group, key)
        return self.from_value(rows[0][0]) if rows else None

    def get_many(self, key_groups: Sequence[int], keys: Sequence[Any]) -> list[Any]:
        return [self.get(key_group, key) for key_group, key in zip(key_groups, keys, strict=True)]

    def prefetch(self, key_groups: Sequence[int], keys: Sequence[Any]) -> None:
        """Reading ahead gains nothing here."""

    def items(self) -> Iterator[tuple[int, Any, Any]]:
        for key_group, key, _, value in self.rows():
            yield key_group, key, value


class SQLiteMap(SQLiteTable):
    """One row per entry; a null value is NULL."""

    def __init__(self, store: SQLiteStore, schema: StateSchema) -> None:
        super().__init__(store, schema)
        self.map_key_type = parse_type_string(schema.map_key_type or "")

    def sub_key(self, map_key: Any) -> bytes:
        return self.map_key_type.to_wire(map_key)

    def get(self, key_group: int, key: Any, map_key: Any) -> tuple[bool, Any]:
        self.store.check_key_group(key_group)
        where = "WHERE key_group = ? AND key = ? AND sub = ?"
        rows = self.select("value", where, key_group, self.to_key(key), self.sub_key(map_key))
        return (True, self._value(rows[0][0])) if rows else (False, None)

    def get_many(self, key_groups: Sequence[int], keys: Sequence[Any], map_keys: Sequence[Any]) -> list[Any]:
        return [self.get(*row)[1] for row in zip(key_groups, keys, map_keys, strict=True)]

    def entries(self, key_group: int, key: Any) -> dict[Any, Any]:
        read_key = self.map_key_type.from_wire
        return {read_key(sub): self._value(value) for sub, value in self.of_key("sub, value", key_group, key)}

    def items(self) -> Iterator[tuple[int, Any, Any, Any]]:
        for key_group, key, sub, value in self.rows():
            yield key_group, key, self.map_key_type.from_wire(sub), value

    def _value(self, wire: bytes | None) -> Any:
        return None if wire is None else self.from_value(wire)


class SQLiteList(SQLiteTable):
    """One row per element; positions only grow, so an appended element is the last."""

    def sub_key(self, map_key: Any) -> bytes:
        _ = map_key
        return next(self.store.positions).to_bytes(SUB_KEY_BYTES, "big")

    def elements(self, key_group: int, key: Any) -> list[Any]:
        return [self.from_value(value) for (value,) in self.of_key("value", key_group, key)]

    def items(self) -> Iterator[tuple[int, Any, list[Any]]]:
        for (key_group, key), rows in groupby(self.rows(), key=itemgetter(0, 1)):
            yield key_group, key, [row[3] for row in rows]
