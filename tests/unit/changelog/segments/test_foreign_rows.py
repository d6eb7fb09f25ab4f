"""Rows of a segment that anybody may have written: its checksums are right, its columns need not be."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from tests.jobs.state_model import BY_NAME, TOTAL, segment_header
from varvite.changelog.segments import columns as segment_columns
from varvite.changelog.segments.segment import KIND, Segment, SegmentState, decode_segment
from varvite.changelog.segments.stream_size import decoded_bytes
from varvite.changelog.types.factory import Types, as_type
from varvite.storage.errors import CorruptDataError, InvalidRequestError
from varvite.storage.format.frame import frame
from varvite.storage.format.records import StateSchema

PAIR = as_type(Types.TUPLE([Types.LONG(), Types.STRING()]))


def segment_of_columns(schema: StateSchema, columns: dict[str, Any]) -> Segment:
    """A segment of these rows, which need not be one that `encode_segment` would make."""
    stream = segment_columns._stream(columns)
    state = SegmentState(schema=schema, rows=len(columns["key_group"]), offset=0, length=len(stream))
    header = msgspec.structs.replace(segment_header(1), states=(state,))
    return decode_segment(frame(KIND, 1, msgspec.json.encode(header), stream), "seg/1")


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
