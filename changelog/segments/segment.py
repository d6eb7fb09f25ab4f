"""Segments: the changes of one (operator, partition, batch, attempt), encoded (docs/reference/formats/segment.md).

A segment is one frame of kind `SEGM`. Its header names the job, the operator, the key groups, the batch's seq, the
attempt's tag and the schema of every state it holds; its blob holds one Arrow stream per state. Nothing else is needed
to decode it. An attempt that uploads early writes several segments, its chunks, numbered from 0 (`part` in the header).
They apply in that order.

Invariants: I2 (the tag is in the header, so that a reader can check it against the commit), I5, I8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from varvite.changelog.segments.changes import empty_changes
from varvite.changelog.segments.columns import decode_columns, encode_columns, ordinary_op, type_of
from varvite.storage.errors import CorruptDataError, VarviteError
from varvite.storage.format.frame import decode_json, frame, frame_length, unframe
from varvite.storage.format.records import Record, StateSchema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from varvite.changelog.segments.changes import StateChanges
    from varvite.changelog.segments.decoded_changes import DecodedChanges


KIND: Final = b"SEGM"
VERSION: Final = 1


class SegmentState(Record, frozen=True, kw_only=True):
    """The rows of one state: bytes `[offset, offset + length)` of the blob; no bytes if there are no rows."""

    schema: StateSchema
    rows: int
    offset: int
    length: int


class SegmentHeader(Record, frozen=True, kw_only=True):
    """The header of a segment."""

    job_id: str
    operator: str
    partition: int
    low: int
    """First key group of the partition, inclusive."""
    high: int
    """Last key group, exclusive."""
    seq: int
    """The slot of the chain that the batch was executed for; orders list elements."""
    tag: str
    """The attempt."""
    part: int = 0
    """Number of the chunk among those of this attempt, from 0."""
    key_type: str
    """Type string of the keys."""
    states: tuple[SegmentState, ...] = ()
    """Filled in by `encode_segment`; in the order of the changes."""

    @property
    def rows(self) -> int:
        """Rows of all states."""
        return sum(state.rows for state in self.states)

    @property
    def stored_bytes(self) -> int:
        """Bytes of all rows, compressed."""
        return sum(state.length for state in self.states)


@dataclass(frozen=True, slots=True)
class Segment:
    """A verified segment; its rows are decoded lazily."""

    header: SegmentHeader
    name: str
    """The object it came from, for errors."""
    _blob: memoryview

    def changes(self, accepts: Callable[[int], bool] | None = None) -> list[StateChanges]:
        """The rows of every state that has any, or those of them whose key group is accepted.

        A state that was written without rows is included without rows: its schema has changed.

        Raises `CorruptDataError` naming the object; `IncompatibleError` for types that this varvite does not know.
        """
        states = self.header.states
        decoded = [self.state_changes(i, accepts) if s.rows else empty_changes(s.schema) for i, s in enumerate(states)]
        return [changes for changes, state in zip(decoded, states, strict=True) if len(changes) or not state.rows]

    def pieces(
        self, accepts: Callable[[int], bool] | None = None, *, wire_ready: bool = False, bytes_max: int
    ) -> Iterator[StateChanges]:
        """The rows of `changes`, state by state, in pieces of about `bytes_max` bytes, `DecodedChanges` if any.

        With `wire_ready` the values are good for `to_wire` only, and take less time.
        """
        for state in self.header.states:
            if state.rows:
                yield from self._decoded(state, accepts, wire_ready=wire_ready).pieces(bytes_max)
            else:
                yield empty_changes(state.schema)

    def state_changes(self, index: int, accepts: Callable[[int], bool] | None = None) -> StateChanges:
        """The rows of state `header.states[index]`, which must not be empty, as in `changes`."""
        return self._decoded(self.header.states[index], accepts).lists

    def _decoded(
        self, state: SegmentState, accepts: Callable[[int], bool] | None, *, wire_ready: bool = False
    ) -> DecodedChanges:
        context = {"operator": self.header.operator, "object_name": self.name}
        data = self._blob[state.offset : state.offset + state.length]
        try:
            key_type = type_of(self.header.key_type)
            key_groups = range(self.header.low, self.header.high)
            return decode_columns(
                key_type, state.schema, state.rows, data, context, accepts, key_groups=key_groups, wire_ready=wire_ready
            )
        except VarviteError as error:
            raise error.with_context(**context) from error.__cause__


def encode_segment(header: SegmentHeader, changes: Sequence[StateChanges]) -> bytes:
    """Encode a segment of these changes; `header.states` is replaced.

    Equal arguments give equal bytes (with the same versions of Arrow and zstd).

    Raises:
        InvalidRequestError: a value does not fit its type; names the operator, the state and the first such key.
        InvariantError: a key group outside of the header's range, or columns of different lengths.
    """
    key_type, key_groups = type_of(header.key_type), range(header.low, header.high)
    states: list[SegmentState] = []
    streams: list[bytes] = []
    offset = 0
    for change in changes:
        try:
            stream = encode_columns(key_type, _without_plain_ops(change), key_groups) if len(change) else b""
        except VarviteError as error:
            raise error.with_context(operator=header.operator, partition=header.partition) from error.__cause__
        states.append(SegmentState(schema=change.schema, rows=len(change), offset=offset, length=len(stream)))
        streams.append(stream)
        offset += len(stream)
    encoded = msgspec.json.encode(msgspec.structs.replace(header, states=tuple(states)))
    return frame(KIND, VERSION, encoded, b"".join(streams))


def decode_segment(data: bytes | memoryview, name: str, *, is_verified: bool = False) -> Segment:
    """Verify and open a segment that fills `data` exactly.

    `is_verified`: the bytes were checked against the reference, so the rows are not checked again.

    Raises:
        CorruptDataError: not a segment, truncated, or a checksum does not match; names the object.
        IncompatibleError: written in a newer format.
    """
    opened = unframe(KIND, VERSION, data, name, blob_is_verified=is_verified)
    header: SegmentHeader = decode_json(opened.header, SegmentHeader, "the segment's header", name)
    if not header.low < header.high:
        raise CorruptDataError(f"[{header.low}, {header.high}) is not a key-group range", object_name=name)
    end = 0
    for state in header.states:
        if state.offset != end or state.length < 0 or state.rows < 0 or bool(state.rows) != bool(state.length):
            raise CorruptDataError(f"state {state.schema.name!r} is not where it must be", object_name=name)
        end += state.length
    if end != len(opened.blob):
        raise CorruptDataError(f"the blob has {len(opened.blob)} bytes, its states {end}", object_name=name)
    return Segment(header, name, opened.blob)


def decode_segments(data: bytes | memoryview, name: str, *, is_verified: bool = False) -> list[Segment]:
    """Verify and open the segments that follow one another in `data`; otherwise as `decode_segment`."""
    view = memoryview(data)
    segments: list[Segment] = []
    offset = 0
    while offset < len(view):
        end = offset + frame_length(view[offset:], name)
        segments.append(decode_segment(view[offset:end], name, is_verified=is_verified))
        offset = end
    return segments


def _without_plain_ops(change: StateChanges) -> StateChanges:
    """The same changes, without `ops` if all are ordinary; so equal changes have equal bytes."""
    ordinary = ordinary_op(change.schema.kind)
    if change.ops is None or change.ops.count(ordinary) != len(change.ops) or len(change.ops) != len(change):
        return change
    return change.but(ops=None)
