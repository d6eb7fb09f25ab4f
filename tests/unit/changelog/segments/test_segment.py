"""Segments: what goes in comes out, and what is damaged or foreign is refused by name."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import numpy as np
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
    Segment,
    SegmentHeader,
    SegmentState,
    decode_segment,
    decode_segments,
    encode_segment,
)
from varvite.changelog.segments.stream_size import decoded_bytes
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


def segment_of_columns(schema: StateSchema, columns: dict[str, Any]) -> Segment:
    """A segment of these rows, which need not be one that `encode_segment` would make."""
    stream = segment_columns._stream(columns)
    state = SegmentState(schema=schema, rows=len(columns["key_group"]), offset=0, length=len(stream))
    header = msgspec.structs.replace(segment_header(1), states=(state,))
    return decode_segment(frame(KIND, 1, msgspec.json.encode(header), stream), "seg/1")


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


def test_a_damaged_text_is_found_before_it_becomes_a_row() -> None:
    """Its bytes are copied as they are: whoever reads the row would meet it long after."""
    damaged = pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff"))
    columns = {"key_group": pa.array([0], pa.uint16()), "key": damaged, "value": pa.array([1])}
    segment = segment_of_columns(TOTAL, columns)
    with pytest.raises(CorruptDataError, match="varvite verify") as caught:
        list(segment.pieces(bytes_max=1 << 20))
    assert caught.value.context == {"operator": segment.header.operator, "object_name": "seg/1"}


def test_what_is_found_damaged_when_lists_are_made_is_named_too() -> None:
    """A replay into the hash map asks for them long after the segment was opened."""
    schema = StateSchema(name="price", kind="value", value_type=Types.BIG_DEC().type_string())
    columns = {"key_group": pa.array([0], pa.uint16()), "key": pa.array(["a"]), "value": pa.array(["one"])}
    segment = segment_of_columns(schema, columns)
    [piece] = segment.pieces(bytes_max=1 << 20)
    with pytest.raises(CorruptDataError, match=r"'price'.*varvite verify") as caught:
        _ = piece.values
    assert caught.value.context == {"operator": segment.header.operator, "object_name": "seg/1"}


def damaged(column: Any, offset: int) -> Any:
    """The texts with another second offset. It is changed afterwards, because Arrow checks arrays that are made."""
    offsets = np.frombuffer(column.buffers()[1], np.int32).copy()
    made = pa.Array.from_buffers(column.type, len(column), [None, pa.py_buffer(offsets), column.buffers()[2]])
    offsets[1] = offset
    return made


TEXTS, NUMBERS = pa.array(["a", "b"]), pa.array([1, 2])
FAR = 2_000_000_000
OUT_OF_BOUNDS: dict[str, tuple[StateSchema, dict[str, Any]]] = {
    "text of a key": (TOTAL, {"key": damaged(TEXTS, FAR), "value": NUMBERS}),
    "negative offset": (TOTAL, {"key": damaged(TEXTS, -9), "value": NUMBERS}),
    "text of a map key": (BY_NAME, {"key": TEXTS, "map_key": damaged(TEXTS, FAR), "value": NUMBERS}),
    "field of a tuple": (
        StateSchema(name="pair", kind="value", value_type=PAIR.type_string()),
        {
            "key": TEXTS,
            "value": pa.StructArray.from_arrays([NUMBERS, damaged(TEXTS, FAR)], fields=list(PAIR.arrow_type)),
        },
    ),
}


@pytest.mark.parametrize("case", OUT_OF_BOUNDS)
def test_an_offset_outside_of_its_column_is_found_also_if_half_of_the_rows_count(case: str) -> None:
    """Rows were filtered before they were checked: the process ended with SIGSEGV, or another's bytes were read."""
    schema, columns = OUT_OF_BOUNDS[case]
    segment = segment_of_columns(schema, {"key_group": pa.array([0, 1], pa.uint16()), **columns})
    for accepts in (None, {1}.__contains__):
        with pytest.raises(CorruptDataError, match="do not decode") as caught:
            segment.changes(accepts)
        assert caught.value.context["object_name"] == "seg/1"


def test_a_key_group_that_is_not_of_the_segment_is_refused() -> None:
    """A store asked for the prefix of a key group that it does not have."""
    columns = {"key_group": pa.array([65_000], pa.uint16()), "key": pa.array(["a"]), "value": pa.array([1])}
    with pytest.raises(CorruptDataError, match="65000"):
        segment_of_columns(TOTAL, columns).changes()


def test_the_size_of_a_stream_is_known_before_it_is_decompressed(monkeypatch: pytest.MonkeyPatch) -> None:
    """22 KB of segment became 480 MB of memory before anybody looked."""
    columns = {
        "key_group": pa.array([0] * 100_000, pa.uint16()), "key": pa.array(["a"] * 100_000),
        "value": pa.array([7] * 100_000),
    }  # fmt: skip
    stream = segment_columns._stream(columns)
    size_bytes = sum(column.nbytes for column in columns.values())
    assert size_bytes <= decoded_bytes(memoryview(stream)) < size_bytes + 100
    assert len(stream) < size_bytes // 5
    segment = segment_of_columns(TOTAL, columns)
    assert len(segment.changes()[0]) == 100_000
    monkeypatch.setattr(segment_columns, "DECODED_BYTES_MAX", size_bytes - 1)
    before = pa.total_allocated_bytes()
    with pytest.raises(CorruptDataError, match="above the limit"):
        segment.changes()
    assert pa.total_allocated_bytes() - before < size_bytes // 100
    with pytest.raises(InvalidRequestError, match=r"above the limit.*let a task take fewer rows"):
        segment_columns._stream(columns)  # what is written can be read


def test_a_stream_without_compression_or_without_rows_has_a_size() -> None:
    column = pa.array([1, 2, 3])
    batch = pa.RecordBatch.from_arrays([column], names=["x"])
    for rows in (batch, batch.slice(0, 0)):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(rows)
        found = decoded_bytes(memoryview(sink.getvalue().to_pybytes()))
        assert rows.nbytes <= found < rows.nbytes + 100


@pytest.mark.parametrize("batches", [0, 2])
def test_a_stream_of_another_number_of_batches_is_refused(batches: int) -> None:
    fields = [("key_group", pa.uint16()), ("key", pa.string()), ("value", pa.int64())]
    row = {"key_group": 0, "key": "a", "value": 1}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema(fields)) as writer:
        for _ in range(batches):
            writer.write_batch(pa.RecordBatch.from_pylist([row], pa.schema(fields)))
    stream = sink.getvalue().to_pybytes()
    state = SegmentState(schema=TOTAL, rows=1, offset=0, length=len(stream))
    header = msgspec.structs.replace(segment_header(1), states=(state,))
    segment = decode_segment(frame(KIND, 1, msgspec.json.encode(header), stream), "seg/1")
    with pytest.raises(CorruptDataError, match=f"{batches} record batches"):
        segment.changes()


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
