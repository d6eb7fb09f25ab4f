"""Values of every type, stamped or not, go through the Parquet files of canonical savepoints and come back."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.jobs.state_model import KEY_GROUPS, OPERATOR, link
from tests.jobs.strategies import any_types, hashable_types, typed_columns
from varvite.changelog.segments.changes import StateChanges
from varvite.changelog.segments.columns import type_of
from varvite.changelog.types.stamped import StampedType
from varvite.changelog.working_stores.hashmap.store import HashMapStore
from varvite.materializer.savepoints.parquet import read_state, write_state
from varvite.storage.format.records import StateSchema
from varvite.testing.contracts.working_store import contents

Typed = tuple[Any, list[Any]]


@given(
    typed_columns(any_types()),
    typed_columns(hashable_types()),
    typed_columns(hashable_types()),
    st.sampled_from(["value", "map", "list", "timers"]),
    st.booleans(),
)
@settings(max_examples=120, deadline=None)
def test_rows_of_every_type_come_back(value: Typed, key: Typed, map_key: Typed, kind: str, stamped: bool) -> None:
    key_type, keys = key
    schema, changes = _changes(value, key_type, keys, map_key, kind, stamped=stamped)
    store = HashMapStore(operator=OPERATOR, key_type=key_type.type_string(), low=0, high=KEY_GROUPS)
    store.apply([changes], link(1))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "rows"
        rows = write_state(path, store, key_type, schema)
        found = [row for part in read_state(path, key_type, schema, "rows") for row in _rows(part)] if rows else []
    assert len(found) == rows
    again = HashMapStore(operator=OPERATOR, key_type=key_type.type_string(), low=0, high=KEY_GROUPS)
    again.apply([_made(schema, found)], link(1))
    assert contents(again, key_type.type_string()) == contents(store, key_type.type_string())


def _changes(
    value: Typed, key_type: Any, keys: list[Any], map_key: Typed, kind: str, *, stamped: bool
) -> tuple[StateSchema, StateChanges]:
    value_type, values = value
    map_type, map_keys = map_key
    stored = [value_type.freeze(v) for v in values if v is not None]
    frozen = list(dict.fromkeys(key_type.freeze(k) for k in keys if k is not None))
    frozen_map = [map_type.freeze(k) for k in map_keys if k is not None]
    if kind == "timers":
        value_type, stored = type_of("1:long"), list(range(len(frozen)))
    elif stamped:
        value_type, stored = StampedType(value_type), [(i - 1, v) for i, v in enumerate(stored)]
    schema = StateSchema(
        name="s",
        kind=kind,
        value_type=value_type.type_string(),
        map_key_type=map_type.type_string() if kind == "map" else None,
        namespace_type=map_type.type_string() if kind == "timers" else None,
    )
    count = min(len(stored), len(frozen), len(frozen_map) if kind in ("map", "timers") else len(frozen))
    rows = [
        (i % KEY_GROUPS, frozen[i], frozen_map[i] if kind in ("map", "timers") else None, stored[i])
        for i in range(count)
    ]
    return schema, _made(schema, rows)


def _made(schema: StateSchema, rows: list[tuple[Any, ...]]) -> StateChanges:
    groups, keys, others, values = ([row[i] for row in rows] for i in range(4))
    is_map, is_timers = schema.kind == "map", schema.kind == "timers"
    return StateChanges(schema, groups, keys, None, others if is_map else None, values, others if is_timers else None)


def _rows(changes: StateChanges) -> list[tuple[Any, ...]]:
    others = changes.map_keys or changes.namespaces or [None] * len(changes)
    return list(zip(changes.key_groups, changes.keys, others, changes.values, strict=True))
