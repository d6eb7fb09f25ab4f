"""The rows of one state as an Arrow IPC stream with one record batch, compressed with zstd, and back.

Columns, in this order: `key_group` uint16; `key`; `op` uint8, left out when every row is what the state's kind does
ordinarily (APPEND in a list state, else PUT); `map_key`, only in map states; `value`. The types of `key`, `map_key` and
`value` are those of the schema's type strings. A null `value` of a PUT is a null map value, never a delete. A timer
state has instead of `value` the columns `namespace`, if it has namespaces, and `time`, which is never null.

Invariants: I5 (what is decoded equals what was encoded), I8 (what does not fit the schema is `CorruptDataError`).
"""

from __future__ import annotations

import sys
from array import array
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute

from varvite.changelog.segments.changes import Op, StateChanges
from varvite.changelog.segments.column_changes import ColumnChanges
from varvite.changelog.segments.decoded_changes import DecodedChanges, ops_of
from varvite.changelog.segments.stream_size import decoded_bytes
from varvite.changelog.types.factory import Types, as_type, parse_type_string
from varvite.storage.errors import CorruptDataError, IncompatibleError, InvalidRequestError, InvariantError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from varvite.changelog.segments.decoded_changes import Columns
    from varvite.changelog.types.contract import TypeInformation
    from varvite.storage.format.records import StateSchema

Column: TypeAlias = Any
"""A `pyarrow.Array`; the stubs have no type for an array of any type that the strict checker accepts."""
arrow: Final[Any] = pa
pc: Final[Any] = pyarrow.compute

LIST: Final = "list"
MAP: Final = "map"
VALUE_LIKE: Final = ("value", "reducing", "aggregating")
TIMERS: Final = "timers"
KINDS: Final = (*VALUE_LIKE, LIST, MAP, TIMERS)
TIME_TYPE: Final = as_type(Types.LONG())
"""Type of the time of a timer, milliseconds."""
KEY_GROUP_MAX: Final = 0xFFFF
DECODED_BYTES_MAX: Final = 4 << 30
"""Largest size of the columns of one state in a segment, decompressed: each of key and value has at most 2 GiB."""
_OP_MAX: Final = max(Op)
_LESS_AT_ONCE: Final = (
    "let a task take fewer rows at once (lower spark.sql.execution.arrow.maxRecordsPerBatch, or use more partitions), "
    "or keep less in each"
)
_ROWS_AT_ONCE: Final = 4096
"""Rows that are encoded together: their objects fit into the processor's cache, where later passes find them."""
_WRITE: Final = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
_READ: Final = pa.ipc.IpcReadOptions(use_threads=False)
type_of: Final = lru_cache(maxsize=1024)(parse_type_string)
"""The type of a type string; types are immutable, so each is parsed once per process."""
# What pyarrow raises for values that do not fit a column, TypeInformation.to_arrow included.
_MISFIT: Final = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError, LookupError)


def ordinary_op(kind: str) -> Op:
    """The effect of a row of a state of this kind if no op is stored."""
    return Op.APPEND if kind == LIST else Op.PUT


def encode_columns(key_type: TypeInformation, changes: StateChanges, key_groups: range) -> bytes:
    """Encode the rows as an Arrow IPC stream; equal rows give equal bytes with the same Arrow and zstd.

    Args:
        key_type: Type of the keys.
        changes: At least one row.
        key_groups: The key groups that the rows may belong to.

    Raises:
        InvalidRequestError: a key or value does not fit its type; names the state and the first offending key.
        InvariantError: a row of another key group, or columns that do not fit together.
    """
    columns = changes.columns() if isinstance(changes, ColumnChanges) else _columns(key_type, changes)
    bounds = pc.min_max(columns["key_group"]).as_py()
    if bounds["min"] not in key_groups or bounds["max"] not in key_groups:
        problem = f"changes of state {changes.schema.name!r} have key groups outside of {key_groups}: {bounds}"
        raise InvariantError(problem)
    return _stream(columns)


def _columns(key_type: TypeInformation, changes: StateChanges) -> dict[str, Column]:
    schema = changes.schema
    _check_lengths(changes)
    columns: dict[str, Column] = {"key_group": _key_group_column(changes)}
    columns["key"] = _column(key_type, changes.keys, changes, "key")
    if changes.ops is not None:
        columns["op"] = pa.UInt8Array.from_buffers(pa.uint8(), len(changes), [None, pa.py_buffer(changes.ops)])
    if schema.kind == MAP:
        columns["map_key"] = _column(map_key_type(schema), changes.map_keys or [], changes, "map key")
    if schema.kind == TIMERS:
        if (namespace_type := namespace_type_of(schema)) is not None:
            columns["namespace"] = _column(namespace_type, changes.namespaces or [], changes, "namespace")
        columns["time"] = _column(TIME_TYPE, changes.values, changes, "time")
    else:
        columns["value"] = _column(type_of(schema.value_type), changes.values, changes, "value")
    return columns


def _stream(columns: dict[str, Column]) -> bytes:
    batch: Any = arrow.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    if batch.nbytes > DECODED_BYTES_MAX:
        problem = f"the rows of {batch.num_rows} changes of a state have {batch.nbytes} bytes, above the limit of "
        raise InvalidRequestError(f"{problem}{DECODED_BYTES_MAX} that are stored at once; {_LESS_AT_ONCE}")
    sink = pa.BufferOutputStream()
    with arrow.ipc.new_stream(sink, batch.schema, options=_WRITE) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def decode_columns(
    key_type: TypeInformation,
    schema: StateSchema,
    rows: int,
    data: memoryview,
    context: Mapping[str, str],
    accepts: Callable[[int], bool] | None = None,
    *,
    key_groups: range,
    wire_ready: bool = False,
) -> DecodedChanges:
    """Decode a stream of `rows` rows, or those of them whose key group is accepted.

    The rows belong to `key_groups`. With `wire_ready` the values in the lists need not be stored forms, see
    `TypeInformation.wire_ready`.
    Raises `CorruptDataError` with that context (operator and object), at once or when the lists are made, and
    `IncompatibleError` for a kind of state that is not known.
    """

    def lists(columns: Columns) -> StateChanges:
        with _decoding(schema, context):
            return _changes(key_type, schema, columns, wire_ready=wire_ready)

    with _decoding(schema, context):
        batch = _read_batch(data)
        columns = _expect_columns(batch, _fields(key_type, schema, batch), rows, key_groups)
        if accepts is not None:
            columns = _accepted(columns, accepts)
        return DecodedChanges(schema, columns, lists)


@contextmanager
def _decoding(schema: StateSchema, context: Mapping[str, str]) -> Generator[None]:
    """Raise errors of damaged rows as `CorruptDataError`."""
    if schema.kind not in KINDS:
        raise IncompatibleError(
            f"state {schema.name!r} is of kind {schema.kind!r}, which this varvite does not know; use a newer varvite",
            **context,
        )
    if schema.kind == MAP and schema.map_key_type is None:
        raise CorruptDataError(f"map state {schema.name!r} has no map key type", **context)
    try:
        yield
    except (pa.ArrowException, CorruptDataError, ValueError, ArithmeticError, OSError) as error:
        problem = f"the rows of state {schema.name!r} do not decode: {error}; see `varvite verify JOB --repair`"
        raise CorruptDataError(problem, **context) from error


def map_key_type(schema: StateSchema) -> TypeInformation:
    """Type of the map keys of a map state."""
    if schema.map_key_type is None:
        raise InvariantError(f"map state {schema.name!r} has no map key type")
    return type_of(schema.map_key_type)


def namespace_type_of(schema: StateSchema) -> TypeInformation | None:
    """Type of the state's namespaces; None if it has none."""
    return None if schema.namespace_type is None else type_of(schema.namespace_type)


def _key_group_column(changes: StateChanges) -> Column:
    try:
        groups = np.asarray(array("H", [key_group for key_group, _, _ in changes.runs]))
    except (OverflowError, TypeError) as error:
        problem = f"a key group of state {changes.schema.name!r} is not in [0, {KEY_GROUP_MAX}]: {error}"
        raise InvariantError(problem) from error
    return pa.array(np.repeat(groups, [end - start for _, start, end in changes.runs]), pa.uint16())


def _column(type_: TypeInformation, stored: Sequence[Any], changes: StateChanges, what: str) -> Column:
    try:
        if len(stored) <= _ROWS_AT_ONCE:
            pieces: list[Column] = [type_.to_arrow(stored)]
        else:
            begins = range(0, len(stored), _ROWS_AT_ONCE)
            pieces = [type_.to_arrow(stored[i : i + _ROWS_AT_ONCE]) for i in begins]
    except _MISFIT as error:
        raise InvalidRequestError(
            f"state {changes.schema.name!r}: {_offender(type_, stored, changes, what)} does not fit type "
            f"{type_.type_string()}: {error}; correct the function that writes it, or the state's type"
        ) from error
    return _joined(pieces, changes, what)


def _joined(pieces: list[Column], changes: StateChanges, what: str) -> Column:
    """Join the pieces of a column. Arrow refuses to join more than 2 GiB, or makes several arrays of it."""
    overflow: Exception | None = None
    if not any(isinstance(piece, pa.ChunkedArray) for piece in pieces):
        try:
            return pieces[0] if len(pieces) == 1 else arrow.concat_arrays(pieces)
        except pa.ArrowInvalid as error:
            overflow = error
    raise InvalidRequestError(
        f"state {changes.schema.name!r}: each {what} of {len(changes)} changes fits, but together they have more than "
        f"the 2 GiB that are stored at once; {_LESS_AT_ONCE}"
    ) from overflow


def _offender(type_: TypeInformation, stored: Sequence[Any], changes: StateChanges, what: str) -> str:
    """The first row that does not encode by itself, in words."""
    for key, element in zip(changes.keys, stored, strict=False):
        try:
            type_.to_arrow([element])
        except _MISFIT:
            return f"the {what} of key {key!r}"
    return f"the {what} of some key among {len(stored)}"


def _check_lengths(changes: StateChanges) -> None:
    columns = (changes.key_groups, changes.keys, changes.ops, changes.map_keys, changes.values, changes.namespaces)
    is_map = changes.schema.kind == MAP
    is_named = changes.schema.namespace_type is not None
    fits = is_map == (changes.map_keys is not None) and is_named == (changes.namespaces is not None)
    if not fits or {len(c) for c in columns if c is not None} != {len(changes)}:
        raise InvariantError(f"the columns of the changes of state {changes.schema.name!r} do not fit together")


def _read_batch(data: memoryview) -> Any:
    if (size_bytes := decoded_bytes(data)) > DECODED_BYTES_MAX:
        raise CorruptDataError(f"decompressed it has {size_bytes} bytes, above the limit of {DECODED_BYTES_MAX}")
    stream: Any = arrow.ipc.open_stream(pa.py_buffer(data), options=_READ)
    with stream as reader:
        batches: list[Any] = list(islice(reader, 2))
    if len(batches) != 1:
        raise CorruptDataError(f"{len(batches)} record batches instead of one")
    return batches[0]


def _fields(key_type: TypeInformation, schema: StateSchema, batch: Any) -> dict[str, pa.DataType]:
    """Names and types that the columns must have."""
    fields = {"key_group": pa.uint16(), "key": key_type.arrow_type}
    if "op" in batch.schema.names:
        fields["op"] = pa.uint8()
    if schema.kind == MAP:
        fields["map_key"] = map_key_type(schema).arrow_type
    if schema.kind == TIMERS:
        if (namespace_type := namespace_type_of(schema)) is not None:
            fields["namespace"] = namespace_type.arrow_type
        fields["time"] = TIME_TYPE.arrow_type
    else:
        fields["value"] = type_of(schema.value_type).arrow_type
    return fields


def _expect_columns(batch: Any, fields: dict[str, pa.DataType], rows: int, key_groups: range) -> dict[str, Column]:
    """The columns, if they are valid as a whole: Arrow's functions trust the offsets in them."""
    if batch.schema.names != list(fields) or batch.schema.types != list(fields.values()):
        raise CorruptDataError(f"the columns are {batch.schema.to_string()}, not {fields}")
    if batch.num_rows != rows:
        raise CorruptDataError(f"{batch.num_rows} rows instead of {rows}")
    batch.validate(full=True)
    columns: dict[str, Column] = dict(zip(fields, batch.columns, strict=True))
    for required in ("key_group", "op", "time"):
        if required in columns and columns[required].null_count:
            raise CorruptDataError(f"column {required} has nulls")
    if "op" in columns and rows and pc.max(columns["op"]).as_py() > _OP_MAX:
        raise CorruptDataError("unknown op")
    bounds = pc.min_max(columns["key_group"]).as_py()
    if rows and (bounds["min"] not in key_groups or bounds["max"] not in key_groups):
        raise CorruptDataError(f"rows have key groups outside of {key_groups}: {bounds}")
    return columns


def _accepted(columns: dict[str, Column], accepts: Callable[[int], bool]) -> dict[str, Column]:
    groups: list[int] = pc.unique(columns["key_group"]).to_pylist()
    kept = [group for group in groups if accepts(group)]
    if len(kept) == len(groups):
        return columns
    mask = pc.is_in(columns["key_group"], value_set=pa.array(kept, pa.uint16()))
    return {name: column.filter(mask) for name, column in columns.items()}


def _changes(key_type: TypeInformation, schema: StateSchema, columns: Columns, *, wire_ready: bool) -> StateChanges:
    is_timers = schema.kind == TIMERS
    namespace_type = namespace_type_of(schema) if is_timers else None
    value_type, value_column = type_of(schema.value_type), columns["time" if is_timers else "value"]
    return StateChanges(
        schema=schema,
        key_groups=_bytes_of(columns["key_group"], 2).cast("H").tolist(),
        keys=key_type.from_arrow(columns["key"]),
        ops=ops_of(columns),
        map_keys=map_key_type(schema).from_arrow(columns["map_key"]) if schema.kind == MAP else None,
        values=value_type.wire_ready(value_column) if wire_ready else value_type.from_arrow(value_column),
        namespaces=None if namespace_type is None else namespace_type.from_arrow(columns["namespace"]),
    )


def _bytes_of(column: Column, width: int) -> memoryview:
    """The data buffer of a fixed-width column without nulls (`to_pylist` is ten times slower)."""
    data = column.buffers()[1]
    if data is None:
        return memoryview(b"")
    return memoryview(data)[column.offset * width : (column.offset + len(column)) * width]


if sys.byteorder != "little":  # pragma: no cover
    raise ImportError("varvite's segments are read and written on little-endian machines only")
