"""Rows that a replay makes of whole columns are those that it makes one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.jobs.state_model import KEY_GROUPS, segment_header
from tests.jobs.strategies import any_types, hashable_types, values_of
from tests.simulation.system.database import SimulatedBatch
from varvite.changelog.segments.batch import Batch
from varvite.changelog.segments.changes import Op, StateChanges
from varvite.changelog.segments.columns import LIST, MAP, TIME_TYPE, TIMERS, type_of
from varvite.changelog.segments.segment import decode_segment, encode_segment
from varvite.changelog.types.stamped import StampedType
from varvite.changelog.working_stores.rocksdb import columns as rocksdb_columns
from varvite.changelog.working_stores.rocksdb.batch import RowBuilder
from varvite.changelog.working_stores.rocksdb.columns import states_by_column
from varvite.changelog.working_stores.rocksdb.state_form import StateForm
from varvite.storage.errors import InvariantError
from varvite.storage.format.records import StateSchema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varvite.changelog.types.wire import WireType

STATE_ID = 3
PIECE_BYTES = 40


def written(batches: Sequence[Batch], key_type: WireType, by_column: frozenset[str]) -> tuple[list[Any], set[Any]]:
    """Calls of a write batch, in order, and the value-like states that changed."""
    forms: dict[Any, StateForm] = {}

    def form(schema: StateSchema) -> StateForm:
        found = StateForm.of(schema, STATE_ID, key_type, range(KEY_GROUPS), lambda _: lambda data: data)
        return forms.setdefault((schema.name, schema.version), found)

    builder = RowBuilder(form, lambda _start, _end: iter(()), remembers=False, by_column=by_column)
    for one in batches:
        builder.add(one)
    batch: Any = SimulatedBatch()
    builder.put_into(batch)
    return batch.writes, set(builder.recent)


@st.composite
def logs(draw: st.DrawFn) -> tuple[WireType, list[StateChanges]]:
    """Changes of one state, several times of some keys, and with its schema changed on the way or not."""
    key_type, map_key_type = draw(hashable_types()), draw(hashable_types(1))
    kind = draw(st.sampled_from(["value", MAP, LIST, TIMERS]))
    has_ttl = kind != TIMERS and draw(st.booleans())
    has_namespaces = draw(st.booleans())
    keys = draw(st.lists(st.none() | values_of(key_type).map(key_type.freeze), min_size=1, max_size=5))
    map_keys = draw(st.lists(values_of(map_key_type).map(map_key_type.freeze), min_size=1, max_size=4))
    log: list[StateChanges] = []
    for version in sorted(draw(st.lists(st.integers(1, 3), min_size=1, max_size=5))):
        if kind == TIMERS:
            inner = TIME_TYPE
        elif not log or log[-1].schema.version != version:
            inner = draw(any_types(1))
        value_type = StampedType(inner) if has_ttl else inner
        own = {MAP: "map_key_type", TIMERS: "namespace_type"}.get(kind)
        of_kind = {own: map_key_type.type_string()} if own and (kind == MAP or has_namespaces) else {}
        schema = StateSchema(name="s", kind=kind, value_type=value_type.type_string(), version=version, **of_kind)
        count = draw(st.integers(1, 8))
        some = [Op.APPEND] if kind == LIST else [Op.PUT, Op.DELETE]
        ops = draw(st.none() | st.lists(st.sampled_from(some), min_size=count, max_size=count))
        values: list[Any] = []
        for op in ops or [Op.PUT] * count:
            value = None if op == Op.DELETE and kind != TIMERS else inner.freeze(draw(values_of(inner)))
            if kind == MAP and draw(st.integers(0, 4)) == 0:
                value = None
            values.append(value if op == Op.DELETE or not has_ttl else (draw(st.integers(-5, 5)), value))
        names = [None, *map_keys] if kind == TIMERS else map_keys
        named = [draw(st.sampled_from(names)) for _ in range(count)] if of_kind else None
        rows = draw(st.lists(st.integers(0, len(keys) - 1), min_size=count, max_size=count))
        log.append(
            StateChanges(
                schema,
                [row % KEY_GROUPS for row in rows],
                [keys[row] for row in rows],
                None if ops is None else bytes(ops),
                named if kind == MAP else None,
                values,
                named if kind == TIMERS else None,
            )
        )
    return key_type, log


@given(logs())
@settings(max_examples=200)
def test_rows_by_column_are_the_rows_one_by_one(given_: tuple[WireType, list[StateChanges]]) -> None:
    key_type, log = given_
    batches: list[Batch] = []
    for seq, change in enumerate(log, 1):
        encoded = encode_segment(segment_header(seq, key_type=key_type.type_string()), [change])
        segment = decode_segment(encoded, f"seg/{seq}")
        pieces = list(segment.pieces(wire_ready=True, bytes_max=PIECE_BYTES))
        assert sum(map(len, pieces)) == len(change)
        positions: dict[str, int] = {}
        batches += [Batch((piece,), seq, positions=positions) for piece in pieces]
    with mock.patch.object(rocksdb_columns, "ROWS_MIN", 1):
        by_column = states_by_column(batches)
    assert by_column == {"s"}
    one_by_one, recent = written([Batch([c], seq) for seq, c in enumerate(log, 1)], key_type, frozenset())
    at_once, recent_too = written(batches, key_type, by_column)
    assert dict(at_once) == dict(one_by_one)
    assert [key for key, _ in at_once] == sorted(dict(at_once)), "each row once, in order of key"
    assert recent_too == recent


def test_a_key_group_that_is_not_the_stores_is_a_bug() -> None:
    text = type_of("1:string")
    schema = StateSchema(name="s", kind="value", value_type="1:string")
    change = StateChanges(schema, [KEY_GROUPS], ["a"], None, None, ["x"])
    encoded = encode_segment(segment_header(1, 0, KEY_GROUPS + 1, key_type=text.type_string()), [change])
    pieces = list(decode_segment(encoded, "seg/1").pieces(bytes_max=1 << 20))
    with pytest.raises(InvariantError, match=f"key group {KEY_GROUPS}"):
        written([Batch(pieces, 1)], text, frozenset({"s"}))


def test_what_clears_is_made_row_by_row() -> None:
    text = type_of("1:string")
    by_kind = {
        kind: StateSchema(name=kind, kind=kind, value_type="1:string", map_key_type="1:string" if kind == MAP else None)
        for kind in ("value", MAP, LIST)
    }
    changes = [
        StateChanges(by_kind["value"], [0], ["a"], None, None, ["x"]),
        StateChanges(by_kind[MAP], [0], ["a"], bytes([Op.CLEAR]), [None], [None]),
        StateChanges(by_kind[LIST], [0, 0], ["a", "a"], bytes([Op.CLEAR, Op.APPEND]), None, [None, "x"]),
    ]
    segment = decode_segment(encode_segment(segment_header(1, key_type=text.type_string()), changes), "seg/1")
    batches = [Batch((piece,), 1) for piece in segment.pieces(bytes_max=1 << 20)]
    with mock.patch.object(rocksdb_columns, "ROWS_MIN", 1):
        assert states_by_column(batches) == {"value"}
        assert states_by_column([Batch(changes, 1)]) == frozenset(), "these have no columns"
        mixed = [*batches, Batch(changes[:1], 2)]
        assert states_by_column(mixed) == frozenset(), "not all of its changes have"
    assert states_by_column(batches) == frozenset(), "few rows are made sooner one by one"
