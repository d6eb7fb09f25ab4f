"""Values as JSON text: what readers of several states, or of several versions of a type, see of them."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from varvite.changelog.operator_state.section import StateSection, section_of
from varvite.changelog.reading.columns import StateColumns
from varvite.changelog.reading.operator_state_table import OperatorStateTable, Part
from varvite.changelog.reading.shared_columns import shared
from varvite.changelog.types.factory import Types
from varvite.changelog.types.wire import WireType
from varvite.storage.format.records import StateSchema

NUMBERS = [float("nan"), float("inf"), float("-inf"), 1.5, None]
TOLD = ["NaN", "Infinity", "-Infinity", 1.5]


def test_floats_that_json_lacks_are_text_and_no_nulls() -> None:
    """A NaN in a map was the null that the map held for another key."""
    schema = StateSchema(
        name="m", kind="map", map_key_type=Types.DOUBLE().type_string(), value_type=Types.DOUBLE().type_string()
    )
    columns = StateColumns(Types.STRING().type_string(), schema)
    batch = shared(columns.batch([(1, "a", number or 0.0, number) for number in NUMBERS]))
    assert batch.column("value").to_pylist() == [*map(json.dumps, TOLD), None]
    assert batch.column("map_key").to_pylist() == [*map(json.dumps, TOLD), "0.0"]


def test_they_are_text_inside_lists_maps_and_rows() -> None:
    value: Any = pa.array([[("k", [{"f": number}]) for number in NUMBERS]], _MAP)
    batch = pa.RecordBatch.from_arrays([pa.array([1], pa.int32()), value], ["key_group", "value"])
    assert json.loads(shared(batch).column("value")[0].as_py()) == [["k", [{"f": told}]] for told in [*TOLD, None]]


def test_they_are_text_where_partitions_wrote_different_types() -> None:
    parts = [Part(0, _section(Types.DOUBLE(), NUMBERS[:3])), Part(1, _section(Types.LONG(), [7]))]
    table = OperatorStateTable("seen", "operator-list", tuple(parts)).to_arrow()
    texts: list[Any] = table.column("value").to_pylist()
    assert [json.loads(text) for text in texts] == [*TOLD[:3], 7]


def _section(kind: WireType, values: list[Any]) -> StateSection:
    section = section_of("seen", "list", [kind.to_wire(value) for value in values], kind.type_string())
    assert section is not None
    return section


_MAP: Any = pa.map_(pa.string(), pa.list_(pa.struct([pa.field("f", pa.float64())])))
