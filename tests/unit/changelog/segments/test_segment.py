"""Segments: what goes in comes out, and what is damaged or foreign is refused by name."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.jobs.state_model import (
    ALARMS,
    BY_NAME,
    EVENTS,
    GONE,
    LONG,
    STRING,
    TOTAL,
    BatchChanges,
    changes,
    key_group,
    puts,
    segment_header,
)
from varvite.changelog.keyed.timers import TimeDomain, timer_schema
from varvite.changelog.segments import columns as segment_columns
from varvite.changelog.segments.changes import Op, StateChanges
from varvite.changelog.segments.segment import (
    KIND,
    SegmentHeader,
    SegmentState,
    decode_segment,
    decode_segments,
    encode_segment,
)
from varvite.changelog.types.factory import Types, as_type
from varvite.storage.errors import CorruptDataError, IncompatibleError, InvalidRequestError, InvariantError
from varvite.storage.format.frame import frame, unframe
from varvite.storage.format.records import StateSchema

BATCH = BatchChanges(
    totals={"a": 1, "b": GONE, "c": -(2**63)},
    by_name={"a": (True, {"x": 1, "y": None, "z": GONE}), "b": (True, {})},
    events={"a": (False, ["one", "two"]), "c": (True, [])},
    alarms={("a", 1, None): True, ("b", 2, "x"): False},
)


def reframed(data: bytes, header: Any = None, blob: bytes | None = None, version: int = 1) -> bytes:
    """The same segment with another header or blob, and right checksums."""
    opened = unframe(KIND, 1, data, "s")
    encoded = opened.header if header is None else msgspec.json.encode(header)
    return frame(KIND, version, encoded, bytes(opened.blob) if blob is None else blob)


def test_all_kinds_of_rows_come_back() -> None:
    rows = BATCH.rows()
    segment = decode_segment(encode_segment(segment_header(7), rows), "s")
    assert segment.changes() == rows
    assert segment.header.rows == sum(len(change) for change in rows)
    assert [state.schema for state in segment.header.states] == [TOTAL, BY_NAME, EVENTS, ALARMS]


def test_the_header_comes_back() -> None:
    header = segment_header(9, 2, 6, part=3, tag="ab" * 16, partition=5)
    decoded = decode_segment(encode_segment(header, []), "s").header
    assert decoded == header


def test_a_null_map_value_is_not_a_delete() -> None:
    rows = BatchChanges(by_name={"a": (False, {"null": None, "gone": GONE})}).rows()
    [found] = decode_segment(encode_segment(segment_header(1), rows), "s").changes()
    assert dict(zip(found.map_keys or [], found.ops or b"", strict=True)) == {"null": Op.PUT, "gone": Op.DELETE}


def test_a_state_without_rows_leaves_its_schema_and_no_bytes() -> None:
    segment = decode_segment(encode_segment(segment_header(1), [changes(TOTAL, [])]), "s")
    assert segment.header.states == (SegmentState(schema=TOTAL, rows=0, offset=0, length=0),)
    [found] = segment.changes()
    assert (found.schema, len(found)) == (TOTAL, 0)


@pytest.mark.parametrize(("schema", "op"), [(TOTAL, Op.PUT), (EVENTS, Op.APPEND)])
def test_equal_changes_have_equal_bytes_whether_ops_are_given_or_not(schema: StateSchema, op: Op) -> None:
    value: Any = 1 if schema is TOTAL else "x"
    plain = StateChanges(schema, [1, 2], ["a", "b"], None, None, [value, value])
    spelled = StateChanges(schema, [1, 2], ["a", "b"], bytes((op, op)), None, [value, value])
    assert encode_segment(segment_header(1), [plain]) == encode_segment(segment_header(1), [spelled])


def test_a_put_in_a_list_state_is_not_taken_for_an_append() -> None:
    odd = StateChanges(EVENTS, [1], ["a"], bytes((Op.PUT,)), None, ["x"])
    assert decode_segment(encode_segment(segment_header(1), [odd]), "s").changes() == [odd]


PAIR = as_type(Types.TUPLE([Types.LONG(), Types.STRING()]))
LARGE: list[tuple[Any, list[Any]]] = [
    (as_type(Types.INT()), [i * 1001 % 4099 for i in range(10_000)]),
    (as_type(Types.DOUBLE()), [i / 7 for i in range(10_000)]),
    (as_type(Types.STRING()), [f"{i:x}" for i in range(10_000)]),
    (as_type(Types.LIST(Types.LONG())), [as_type(Types.LIST(Types.LONG())).freeze([i, i]) for i in range(10_000)]),
    (PAIR, [(i, str(i)) for i in range(10_000)]),
    (PAIR, [None if i == 9_000 else (i, None if i % 2 else "x") for i in range(10_000)]),
]


@pytest.mark.parametrize(("value_type", "values"), LARGE)
def test_rows_that_are_made_columns_in_pieces_have_the_bytes_of_the_whole(
    value_type: Any, values: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = StateSchema(name="large", kind="value", value_type=value_type.type_string())
    ops = bytes(Op.DELETE if value is None else Op.PUT for value in values)
    rows = StateChanges(
        schema, [i // 5_000 for i in range(10_000)], [f"k{i}" for i in range(10_000)], ops, None, values
    )
    in_pieces = encode_segment(segment_header(1), [rows])
    [found] = decode_segment(in_pieces, "s").changes()
    assert (found.keys, found.values, found.key_groups) == (rows.keys, rows.values, rows.key_groups)
    monkeypatch.setattr(segment_columns, "_ROWS_AT_ONCE", 1 << 30)
    assert encode_segment(segment_header(1), [rows]) == in_pieces


def test_a_misfit_in_a_later_piece_names_its_key() -> None:
    rows = StateChanges(
        TOTAL, [1] * 9_000, [f"k{i}" for i in range(9_000)], None, None, [*[1] * 8_500, "x", *[1] * 499]
    )
    with pytest.raises(InvalidRequestError, match="'k8500'"):
        encode_segment(segment_header(1), [rows])


@pytest.mark.parametrize("rows", [3, 5_000])
def test_changes_of_more_than_a_column_holds_say_what_to_do(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three values of 800 MB in one batch ended in pyarrow's TypeError, 5,000 of 500 KB in advice about a type."""
    binary = Types.BINARY()
    schema = StateSchema(name="large", kind="value", value_type=binary.type_string())
    changes = StateChanges(schema, [1] * rows, [f"k{i}" for i in range(rows)], None, None, [b"x"] * rows)
    real = type(binary).to_arrow

    def as_of_gigabytes(type_: Any, stored: Any) -> Any:
        column = real(type_, stored)
        return pa.chunked_array([column[:1], column[1:]]) if rows == 3 else column

    def overflowing(_: Any) -> Any:
        raise pa.ArrowInvalid("offset overflow while concatenating arrays")

    monkeypatch.setattr(type(binary), "to_arrow", as_of_gigabytes)
    monkeypatch.setattr(pa, "concat_arrays", overflowing)
    with pytest.raises(InvalidRequestError, match="2 GiB that are stored at once; let a task take fewer rows"):
        encode_segment(segment_header(1), [changes])


def test_only_accepted_key_groups_are_decoded() -> None:
    segment = decode_segment(encode_segment(segment_header(1), BATCH.rows()), "s")
    groups = {group for change in segment.changes() for group in change.key_groups}
    for group in groups:
        found = segment.changes(lambda g, group=group: g == group)
        assert {g for change in found for g in change.key_groups} == {group}
        whole = segment.changes()
        expected = [(c.schema.name, k) for c in whole for g, k in zip(c.key_groups, c.keys, strict=True) if g == group]
        assert [(c.schema.name, k) for c in found for k in c.keys] == expected
    assert segment.changes(lambda _: False) == []


@pytest.mark.parametrize("bytes_max", [1, 60, 1 << 20])
def test_pieces_are_the_rows_in_order(bytes_max: int) -> None:
    empty = StateChanges(StateSchema(name="empty", kind="value", value_type=LONG), [], [], None, None, [])
    rows = [*BATCH.rows(), empty]
    segment = decode_segment(encode_segment(segment_header(7), rows), "s")
    for accepts in (None, {key_group("a")}.__contains__):
        wanted = segment.changes(accepts)
        pieces = list(segment.pieces(accepts, bytes_max=bytes_max))
        assert len(pieces) == len(wanted) if bytes_max == 1 << 20 else len(pieces) > len(wanted)
        assert [piece.schema.name for piece in pieces if not len(piece)] == ["empty"]
        for state in wanted:
            own = [piece for piece in pieces if piece.schema == state.schema]
            for column in ("key_groups", "keys", "map_keys", "values", "namespaces"):
                found = [value for piece in own for value in getattr(piece, column) or ()]
                assert found == list(getattr(state, column) or ())
            assert b"".join(piece.ops or b"" for piece in own) == (state.ops or b"")


def test_rows_are_decoded_only_when_asked_for() -> None:
    data = encode_segment(segment_header(1), puts({"a": 1}))
    blob = bytearray(unframe(KIND, 1, data, "s").blob)
    blob[0:4] = b"\0\0\0\0"
    segment = decode_segment(reframed(data, blob=bytes(blob)), "seg/1")
    with pytest.raises(CorruptDataError) as caught:
        segment.changes()
    assert caught.value.context["object_name"] == "seg/1"


def test_segments_one_after_another_are_told_apart() -> None:
    parts = [
        encode_segment(segment_header(1, part=i), rows) for i, rows in enumerate([puts({"a": 1}), [], BATCH.rows()])
    ]
    found = decode_segments(memoryview(b"".join(parts)), "pack")
    assert [segment.header.part for segment in found] == [0, 1, 2]
    assert found[2].changes() == BATCH.rows()
    assert decode_segments(b"", "pack") == []
    with pytest.raises(CorruptDataError, match="pack"):
        decode_segments(b"".join(parts)[:-1], "pack")


def test_every_flipped_byte_is_found() -> None:
    data = encode_segment(segment_header(7), BATCH.rows())
    for i in range(len(data)):
        damaged = bytearray(data)
        damaged[i] ^= 0x10
        with pytest.raises(CorruptDataError) as caught:
            decode_segment(damaged, "seg/7")
        assert caught.value.context["object_name"] == "seg/7"


def test_every_truncation_is_found() -> None:
    data = encode_segment(segment_header(7), BATCH.rows())
    for length in range(len(data)):
        with pytest.raises(CorruptDataError, match="seg/7"):
            decode_segment(data[:length], "seg/7")


def test_a_newer_version_is_refused() -> None:
    data = encode_segment(segment_header(7), BATCH.rows())
    with pytest.raises(IncompatibleError, match="seg/7"):
        decode_segment(reframed(data, version=2), "seg/7")


def test_a_type_of_a_newer_varvite_is_refused() -> None:
    data = encode_segment(segment_header(7), puts({"a": 1}))
    header = decode_segment(data, "s").header
    [state] = header.states
    newer = msgspec.structs.replace(state.schema, value_type="9:long")
    changed = msgspec.structs.replace(header, states=(msgspec.structs.replace(state, schema=newer),))
    with pytest.raises(IncompatibleError, match="seg/7"):
        decode_segment(reframed(data, changed), "seg/7").changes()


@pytest.mark.parametrize(
    "field",
    [{"rows": 9}, {"offset": 1}, {"length": 3}, {"length": -1}, {"rows": 0}, {"rows": -1}],
)
def test_a_header_that_does_not_fit_the_blob_is_refused(field: dict[str, int]) -> None:
    data = encode_segment(segment_header(7), puts({"a": 1}))
    header = decode_segment(data, "s").header
    changed = msgspec.structs.replace(header, states=(msgspec.structs.replace(header.states[0], **field),))
    with pytest.raises(CorruptDataError, match="seg/7"):
        decode_segment(reframed(data, changed), "seg/7").changes()


@pytest.mark.parametrize(
    "schema",
    [
        StateSchema(name="total", kind="value", value_type=STRING),
        StateSchema(name="total", kind="map", value_type=LONG, map_key_type=STRING),
    ],
)
def test_columns_that_do_not_fit_the_schema_are_refused(schema: StateSchema) -> None:
    data = encode_segment(segment_header(7), puts({"a": 1}))
    header = decode_segment(data, "s").header
    changed = msgspec.structs.replace(header, states=(msgspec.structs.replace(header.states[0], schema=schema),))
    with pytest.raises(CorruptDataError, match="seg/7"):
        decode_segment(reframed(data, changed), "seg/7").changes()


def test_an_unknown_op_is_refused() -> None:
    odd = StateChanges(TOTAL, [1], ["a"], b"\x04", None, [1])
    with pytest.raises(CorruptDataError, match="seg/7"):
        decode_segment(encode_segment(segment_header(7), [odd]), "seg/7").changes()


def test_a_header_that_is_no_header_is_refused() -> None:
    with pytest.raises(CorruptDataError, match="seg/7"):
        decode_segment(frame(KIND, 1, b'{"job_id": 1}'), "seg/7")
    with pytest.raises(CorruptDataError, match="seg/7"):
        decode_segment(frame(KIND, 1, msgspec.json.encode(segment_header(7, 3, 3))), "seg/7")
    with pytest.raises(CorruptDataError, match="seg/7"):
        decode_segment(frame(b"CHEN", 1, msgspec.json.encode(segment_header(7))), "seg/7")


def test_fields_of_later_minor_changes_are_skipped() -> None:
    known = msgspec.to_builtins(segment_header(7))
    assert decode_segment(frame(KIND, 1, msgspec.json.encode({**known, "colour": 1})), "s").header == segment_header(7)


def test_a_value_that_does_not_fit_names_operator_state_and_key() -> None:
    misfit = StateChanges(TOTAL, [1, 2, 3], ["a", "b", "c"], None, None, [1, "two", 2**70])
    with pytest.raises(InvalidRequestError) as caught:
        encode_segment(segment_header(1, partition=4), [misfit])
    assert "'total'" in str(caught.value)
    assert "'b'" in str(caught.value)
    assert caught.value.context == {"operator": "flights", "partition": 4}


def test_a_composite_value_that_does_not_fit_names_the_key() -> None:
    pair = as_type(Types.TUPLE([Types.LONG(), Types.DOUBLE()]))
    schema = StateSchema(name="pair", kind="value", value_type=pair.type_string())
    misfit = StateChanges(schema, [1, 2], ["a", "b"], None, None, [(1, 1.0), 5])
    with pytest.raises(InvalidRequestError, match="'b'"):
        encode_segment(segment_header(1), [misfit])


@pytest.mark.parametrize("group", [-1, 2, 70_000])
def test_a_key_group_outside_of_the_header_is_a_bug(group: int) -> None:
    with pytest.raises(InvariantError):
        encode_segment(segment_header(1, 0, 2), [StateChanges(TOTAL, [group], ["a"], None, None, [1])])


@pytest.mark.parametrize(
    "odd",
    [
        StateChanges(TOTAL, [1], ["a"], b"", None, [1]),
        StateChanges(TOTAL, [1], ["a"], b"\0\0", None, [1]),
        StateChanges(TOTAL, [1, 1], ["a"], None, None, [1]),
        StateChanges(TOTAL, [1], ["a"], None, None, [1, 2]),
        StateChanges(TOTAL, [1], ["a"], None, ["m"], [1]),
        StateChanges(BY_NAME, [1], ["a"], None, None, [1]),
    ],
)
def test_columns_of_different_lengths_are_a_bug(odd: StateChanges) -> None:
    with pytest.raises(InvariantError):
        encode_segment(segment_header(1), [odd])


def test_100_000_rows_are_one_stream_and_small() -> None:
    count = 100_000
    pair = as_type(Types.TUPLE([Types.LONG(), Types.DOUBLE()]))
    schema = StateSchema(name="pair", kind="value", value_type=pair.type_string())
    rows = StateChanges(
        schema,
        [i % 8 for i in range(count)],
        [f"N{i:06d}" for i in range(count)],
        None,
        None,
        [(i, 0.5) for i in range(count)],
    )
    data = encode_segment(segment_header(1), [rows])
    assert len(data) < 10 * count
    assert decode_segment(data, "s").changes() == [rows]


def test_the_frame_says_segment_and_version_1() -> None:
    data = encode_segment(segment_header(1), [])
    assert data[:10] == b"varve\0SEGM"
    assert struct.unpack(">H", data[10:12]) == (1,)
    assert isinstance(decode_segment(data, "s").header, SegmentHeader)


TIMERS = timer_schema("user-timers", TimeDomain.EVENT_TIME)
WINDOW_TIMERS = timer_schema("windows", TimeDomain.PROCESSING_TIME, as_type(Types.STRING()))


def timer_rows() -> list[StateChanges]:
    put, delete = bytes((Op.PUT,)), bytes((Op.DELETE,))
    return [
        StateChanges(TIMERS, [0, 0, 3], ["a", None, "b"], None, None, [1, -(2**63), 2**63 - 1]),
        StateChanges(WINDOW_TIMERS, [1, 2], ["a", "a"], put + delete, None, [0, 5], ["w", None]),
    ]


def test_timers_come_back() -> None:
    segment = decode_segment(encode_segment(segment_header(7), timer_rows()), "s")
    assert segment.changes() == timer_rows()
    chosen = segment.changes(lambda group: group in {0, 2})
    assert [(change.keys, change.values, change.namespaces) for change in chosen] == [
        (["a", None], [1, -(2**63)], None), (["a"], [5], [None]),
    ]  # fmt: skip


def test_timers_without_a_time_are_refused() -> None:
    rows = [StateChanges(TIMERS, [0], ["a"], None, None, [None])]
    with pytest.raises(CorruptDataError, match="time"):
        decode_segment(encode_segment(segment_header(7), rows), "s").changes()


@pytest.mark.parametrize("namespaces", [None, []])
def test_timers_without_the_namespaces_that_their_state_has_are_a_bug(namespaces: Any) -> None:
    rows = [StateChanges(WINDOW_TIMERS, [0], ["a"], None, None, [1], namespaces)]
    with pytest.raises(InvariantError):
        encode_segment(segment_header(7), rows)


def test_a_kind_of_state_that_is_not_known_is_of_a_newer_varvite() -> None:
    data = encode_segment(segment_header(7), timer_rows())
    states = decode_segment(data, "s").header.states
    newer = msgspec.structs.replace(
        decode_segment(data, "s").header,
        states=tuple(
            msgspec.structs.replace(state, schema=msgspec.structs.replace(state.schema, kind="tree"))
            for state in states
        ),
    )
    with pytest.raises(IncompatibleError, match="'tree'"):
        decode_segment(reframed(data, newer), "s").changes()
