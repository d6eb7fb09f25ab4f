"""Non-keyed states of a checkpoint for readers, with their rows as Arrow tables.

| kind | columns after `partition` (int32) |
|---|---|
| operator-list, operator-union-list | `position` (int64, from 0), `value`: a row per element |
| broadcast | `key`, `value`: a row per entry, in every partition |
| raw-operator | `position`, `value` (bytes): a row per stream |
| raw-keyed | `key_group` (int32), `value` (bytes) |

A partition is one of those that the operator had when it wrote the state. Raw state is named after its kind.
Values that were written by different versions of a type are text (JSON).

Invariants: I8 (images are verified).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from varvite.changelog.operator_state.section import BROADCAST, LIST, RAW_KEYED, RAW_OPERATOR, UNION_LIST
from varvite.changelog.reading.json_text import json_text
from varvite.changelog.reading.readable_columns import readable_column
from varvite.changelog.segments.columns import type_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from varvite.changelog.operator_state.section import StateSection
    from varvite.storage.format.records import ImageRef

_arrow: Final[Any] = pa
_KINDS: Final = {
    LIST: "operator-list",
    UNION_LIST: "operator-union-list",
    BROADCAST: BROADCAST,
    RAW_OPERATOR: RAW_OPERATOR,
    RAW_KEYED: RAW_KEYED,
}


class Part(NamedTuple):
    """A section of a partition's image."""

    partition: int
    section: StateSection


class OperatorStateTable(NamedTuple):
    """One non-keyed state of an operator, in all its partitions."""

    name: str
    kind: str
    """A kind of the table in the module's docstring."""
    parts: tuple[Part, ...]
    """By partition."""

    @property
    def elements(self) -> int:
        """Rows in all partitions."""
        return sum(section.rows for _, section in self.parts)

    @property
    def size_bytes(self) -> int:
        """Bytes of the rows, encoded, in all partitions."""
        return sum(len(section.data) for _, section in self.parts)

    @property
    def value_type(self) -> str:
        """Type string of the newest part; "" of raw state."""
        return self.parts[-1].section.value_type

    @property
    def map_key_type(self) -> str | None:
        """Type string of the keys of a broadcast state."""
        return self.parts[-1].section.map_key_type

    def to_arrow(self) -> pa.Table:
        """The rows. Raises `CorruptDataError`."""
        rows = [(partition, section, section.decoded()) for partition, section in self.parts]
        columns: dict[str, Any] = {
            "partition": _arrow.array([p for p, _, values in rows for _ in values], pa.int32()),
        }
        if self.kind == BROADCAST:
            columns["key"] = _readable([(s.map_key_type or "", [key for key, _ in values]) for _, s, values in rows])
            columns["value"] = _readable([(s.value_type, [value for _, value in values]) for _, s, values in rows])
        elif self.kind == RAW_KEYED:
            columns["key_group"] = _arrow.array([group for _, _, values in rows for group, _ in values], pa.int32())
            columns["value"] = _arrow.array([data for _, _, values in rows for _, data in values], pa.binary())
        else:
            columns["position"] = _arrow.array(_positions(rows), pa.int64())
            is_raw = self.kind == RAW_OPERATOR
            columns["value"] = (
                _arrow.array([data for _, _, values in rows for data in values], pa.binary())
                if is_raw
                else _readable([(s.value_type, values) for _, s, values in rows])
            )
        return _arrow.table(columns)


def operator_state_tables(sections: Mapping[ImageRef, Sequence[StateSection]]) -> tuple[OperatorStateTable, ...]:
    """The states in the images of one operator, by name."""
    tables: dict[tuple[str, str], list[Part]] = {}
    for ref in sorted(sections, key=lambda ref: (ref.partition, ref.seq)):
        for section in sections[ref]:
            kind = _KINDS[section.kind]
            tables.setdefault((section.name or kind, kind), []).append(Part(ref.partition, section))
    return tuple(OperatorStateTable(name, kind, tuple(parts)) for (name, kind), parts in sorted(tables.items()))


def _positions(rows: Sequence[tuple[int, StateSection, list[Any]]]) -> list[int]:
    """The place of each element in its partition's list, of which there may be several sections."""
    counts: dict[int, int] = {}
    positions: list[int] = []
    for partition, _, values in rows:
        start = counts.get(partition, 0)
        positions += range(start, start + len(values))
        counts[partition] = start + len(values)
    return positions


def _readable(parts: Sequence[tuple[str, Sequence[bytes | None]]]) -> Any:
    """Wire forms of values as one readable column."""
    arrays: list[Any] = []
    for type_string, wires in parts:
        kind: Any = type_of(type_string)
        stored = [None if wire is None else kind.from_wire(wire) for wire in wires]
        arrays.append(readable_column(kind).to_arrow(stored))
    if len({array.type for array in arrays}) == 1:
        return _arrow.chunked_array(arrays).combine_chunks()
    texts = [json_text(value) for array in arrays for value in array.to_pylist()]
    return _arrow.array(texts, pa.string())
