"""All rows of one state as a Parquet file that any tool reads, and back (docs/reference/formats/savepoints.md).

Columns: `key_group`, `key`, then `map_key` in a map state, `position` in a list state (the element's place in its
key's list), `namespace` in a timer state that has them, and in the end `value`, or `time` in a timer state. Types are
those of the schema's type strings, as in segments.

Invariants: I5 (reading back gives the same rows, lists in their order), I8 (rows that do not fit the schema are
`CorruptDataError`), I10 (`ROWS` rows are in memory at once).
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet

from varvite.changelog.segments.changes import StateChanges
from varvite.changelog.segments.columns import LIST, MAP, TIME_TYPE, TIMERS, map_key_type, namespace_type_of, type_of
from varvite.changelog.working_stores.table_rows import table_of
from varvite.storage.errors import CorruptDataError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from varvite.changelog.types.contract import TypeInformation
    from varvite.changelog.working_stores.contract import WorkingStore
    from varvite.storage.format.records import StateSchema

ROWS: Final = 50_000
"""Rows of a row group."""
SCHEMA_KEY: Final = b"varve.state"
"""Key of the Parquet metadata that holds the state's schema, as JSON."""
KEY_TYPE_KEY: Final = b"varve.key_type"
arrow: Final[Any] = pa
parquet: Final[Any] = pyarrow.parquet


def write_state(path: Path, store: WorkingStore, key_type: TypeInformation, schema: StateSchema) -> int:
    """Write a state's rows in a store to a file; no file if there are none.

    Args:
        path: The new file.
        store: The store.
        key_type: Type of the operator's keys.
        schema: The newest schema of the state; values are of its version.

    Returns:
        Number of rows.
    """
    rows = _rows(schema, table_of(store, schema))
    first = list(islice(rows, ROWS))
    if not first:
        return 0
    fields = _fields(key_type, schema)
    metadata = {SCHEMA_KEY: msgspec.json.encode(schema), KEY_TYPE_KEY: key_type.type_string().encode()}
    file_schema = arrow.schema([(name, type_) for name, (type_, _) in fields.items()], metadata=metadata)
    count = 0
    with parquet.ParquetWriter(path, file_schema, compression="zstd") as writer:
        chunk = first
        while chunk:
            columns = zip(*chunk, strict=True)
            arrays = [_array(kind, list(column)) for kind, column in zip(fields.values(), columns, strict=True)]
            writer.write_table(arrow.Table.from_arrays(arrays, schema=file_schema))
            count += len(chunk)
            chunk = list(islice(rows, ROWS))
    return count


def read_state(path: Path, key_type: TypeInformation, schema: StateSchema, name: str) -> Iterator[StateChanges]:
    """Read the changes that make the same state from an empty one. Raises `CorruptDataError` naming object `name`."""
    fields = _fields(key_type, schema)
    try:
        with parquet.ParquetFile(path) as file:
            actual = file.schema_arrow
            expected = {name: type_ for name, (type_, _) in fields.items()}
            if dict(zip(actual.names, actual.types, strict=True)) != expected:
                raise CorruptDataError(f"the columns are {actual.to_string()}, not {expected}", object_name=name)
            for batch in file.iter_batches(ROWS):
                batch.validate(full=True)
                yield _changes(key_type, schema, dict(zip(batch.schema.names, batch.columns, strict=True)))
    except (pa.ArrowException, OSError, ValueError) as error:
        problem = f"the rows of state {schema.name!r} do not decode: {error}; use another savepoint"
        raise CorruptDataError(problem, object_name=name) from error


def _rows(schema: StateSchema, table: Any) -> Iterator[tuple[Any, ...]]:
    """The cells of every row, in the order of the columns."""
    if schema.kind == LIST:
        for key_group, key, elements in table.items():
            for position, element in enumerate(elements):
                yield key_group, key, position, element
    elif schema.kind == TIMERS:
        has_namespaces = schema.namespace_type is not None
        for key_group, packed in table.items():
            time_ms, key, namespace = table.form.unpack(packed)
            yield (key_group, key, namespace, time_ms) if has_namespaces else (key_group, key, time_ms)
    else:
        yield from table.items()


def _fields(key_type: TypeInformation, schema: StateSchema) -> dict[str, tuple[Any, TypeInformation | None]]:
    """Name → Arrow type, and the type of the column's stored forms; None for plain numbers."""
    fields: dict[str, tuple[Any, TypeInformation | None]] = {
        "key_group": (pa.uint16(), None),
        "key": (key_type.arrow_type, key_type),
    }
    if schema.kind == MAP:
        key = map_key_type(schema)
        fields["map_key"] = key.arrow_type, key
    if schema.kind == LIST:
        fields["position"] = pa.int64(), None
    if schema.kind == TIMERS:
        if (namespace_type := namespace_type_of(schema)) is not None:
            fields["namespace"] = namespace_type.arrow_type, namespace_type
        fields["time"] = TIME_TYPE.arrow_type, TIME_TYPE
    else:
        value = type_of(schema.value_type)
        fields["value"] = value.arrow_type, value
    return fields


def _array(field: tuple[Any, TypeInformation | None], cells: list[Any]) -> Any:
    type_, kind = field
    return arrow.array(cells, type_) if kind is None else kind.to_arrow(cells)


def _changes(key_type: TypeInformation, schema: StateSchema, columns: dict[str, Any]) -> StateChanges:
    namespace_type = namespace_type_of(schema) if schema.kind == TIMERS else None
    kind = TIME_TYPE if schema.kind == TIMERS else type_of(schema.value_type)
    return StateChanges(
        schema=schema,
        key_groups=columns["key_group"].to_pylist(),
        keys=key_type.from_arrow(columns["key"]),
        ops=None,
        map_keys=map_key_type(schema).from_arrow(columns["map_key"]) if schema.kind == MAP else None,
        values=kind.from_arrow(columns["time" if schema.kind == TIMERS else "value"]),
        namespaces=None if namespace_type is None else namespace_type.from_arrow(columns["namespace"]),
    )
