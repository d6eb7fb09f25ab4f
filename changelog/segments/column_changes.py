"""`ColumnChanges`: changes of a value state that were made as Arrow columns and mostly stay columns.

A segment is encoded from the columns without an object per row. The lists of `StateChanges` are made lazily, once, for
a working store that keeps Python objects.

Invariants: I5 (the lists are what decoding the encoded columns gives).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute

from varvite.changelog.segments.changes import Op, StateChanges
from varvite.storage.errors import InvariantError

if TYPE_CHECKING:
    from varvite.changelog.api.batch_keys import BatchKeys
    from varvite.changelog.types.contract import TypeInformation
    from varvite.storage.format.records import StateSchema

pc: Final[Any] = pyarrow.compute


class ColumnChanges(StateChanges):
    """One row per key: PUT of the value, or DELETE where the value is null. Immutable like every `StateChanges`.

    Args:
        schema: Of a value-like state.
        batch_keys: The keys, distinct.
        value_type: Type of the values.
        value_column: A value for each key, canonical (`varvite.changelog.types.columns`).
    """

    def __init__(
        self, schema: StateSchema, batch_keys: BatchKeys, value_type: TypeInformation, value_column: Any
    ) -> None:
        if not batch_keys.distinct or len(batch_keys) != len(value_column):
            raise InvariantError(f"the columns of the changes of state {schema.name!r} do not fit together")
        set_field = object.__setattr__
        set_field(self, "schema", schema)
        set_field(self, "map_keys", None)
        set_field(self, "namespaces", None)
        set_field(self, "batch_keys", batch_keys)
        set_field(self, "value_column", value_column)
        set_field(self, "ops", _ops(value_column))
        set_field(self, "_value_type", value_type)

    batch_keys: BatchKeys
    value_column: Any
    _value_type: TypeInformation

    @cached_property
    def key_groups(self) -> list[int]:  # type: ignore[override]  # made lazily
        return self.batch_keys.key_groups

    @cached_property
    def runs(self) -> tuple[tuple[int, int, int], ...]:
        return tuple(self.batch_keys.runs())

    @cached_property
    def keys(self) -> list[Any]:  # type: ignore[override]  # made lazily
        return self.batch_keys.stored

    @cached_property
    def values(self) -> list[Any]:  # type: ignore[override]  # made lazily
        return self._value_type.from_arrow(self.value_column)

    @cached_property
    def row_bytes_most(self) -> int | None:
        """The most raw bytes of the key and the value of a row; None if only each row can tell."""
        key, value = _widest(self.batch_keys.array), _widest(self.value_column)
        return None if key is None or value is None else key + value

    def __len__(self) -> int:
        return len(self.value_column)

    def columns(self) -> dict[str, Any]:
        """The columns of a segment, by name."""
        groups: Any = pa.array(self.batch_keys.key_group_array, pa.uint16())
        columns: dict[str, Any] = {"key_group": groups, "key": self.batch_keys.array}
        if self.ops is not None:
            columns["op"] = pa.array(np.frombuffer(self.ops, np.uint8))
        return {**columns, "value": self.value_column}


def _widest(column: Any) -> int | None:
    kind = column.type
    if pa.types.is_struct(kind):
        widths = [_widest(column.field(i)) for i in range(kind.num_fields)]
        return None if None in widths else sum(width for width in widths if width is not None)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return pc.max(pc.binary_length(column)).as_py() or 0
    return -(-kind.bit_width // 8) if pa.types.is_primitive(kind) or pa.types.is_decimal(kind) else None


def _ops(values: Any) -> bytes | None:
    if not values.null_count:
        return None
    gone = pc.is_null(values).to_numpy(zero_copy_only=False)
    return np.where(gone, np.uint8(Op.DELETE), np.uint8(Op.PUT)).tobytes()
