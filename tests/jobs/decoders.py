"""Every decoder of bytes that come from a storage, with bytes that it reads, and mutations of these.

A checksum is no protection: who may write to the storage writes it, too. So a mutation has right checksums, and a
decoder has two outcomes: a value, or an error of ours that says what is damaged.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from tests.golden.test_types_golden import CASES
from tests.golden.writers import encrypted
from tests.jobs.state_model import FULL, KEY_TYPE
from varvite.changelog.commit.pack import open_pack
from varvite.changelog.operator_state.image import decode_image
from varvite.changelog.row import Row
from varvite.changelog.segments.columns import type_of
from varvite.changelog.segments.decoded_changes import DecodedChanges
from varvite.changelog.segments.segment import decode_segments
from varvite.changelog.types.dynamic_key import DynamicKeyType
from varvite.changelog.types.factory import parse_type_string
from varvite.changelog.types.wire import end_of
from varvite.materializer.restore.spark_files import file_lines, parse_offsets, query_id_of
from varvite.materializer.savepoints.parquet import read_state
from varvite.materializer.service.demand import decode_request
from varvite.materializer.service.sharing import decode_heartbeat
from varvite.materializer.standby.record import decode_standby
from varvite.spark_integration.connectors.files import spark_file_log
from varvite.spark_integration.connectors.files.file_sink import OutputCommit, OutputOwner, decode_marker
from varvite.spark_integration.connectors.heartbeats.source_marker import decode_sources
from varvite.spark_integration.connectors.kafka.commit_topic import decode_commit
from varvite.spark_integration.connectors.kafka.source_topics import decode_topics
from varvite.spark_integration.connectors.sink_note import decode_note
from varvite.storage.errors import CorruptDataError, IncompatibleError
from varvite.storage.format.frame import MAGIC, PREFIX_BYTES, frame, frame_length
from varvite.storage.format.records import JobRecord, Pin, Savepoint, SnapshotDescriptor, decode_entry, decode_record
from varvite.storage.object_stores.encrypted.sealed_object import ObjectCipher, read_header

DATA = Path(__file__).parents[1] / "golden" / "data"
NAME = "some/object"
ERRORS = (CorruptDataError, IncompatibleError)
"""The errors of a decoder."""
_LEAVES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 255, 65_536, 2**31, 2**63 - 1, 2**63, -(2**63), 10**30, 1.5, 1e308, "", "x", "x" * 300, "\0",
    "\x1b[2J", "../..", [], {}, [[]], "1:long", "1:row<a:long>", "1:list<string>", "9:long", "value", "map", "timers",
)  # fmt: skip
_CHUNKS = (b"", b"\0" * 8, b"\xff" * 4, b"\xff" * 8, b"\x7f\xff\xff\xff", b"[" * 100, b'{"a":' * 50, b"\xc3", b"1" * 40)


class Decoder(NamedTuple):
    """A decoder, and bytes that it reads."""

    seeds: tuple[bytes, ...]
    decode: Callable[[bytes], Any]


def _files(pattern: str) -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted(DATA.glob(pattern)))


def _segments(data: bytes) -> None:
    for segment in decode_segments(data, NAME):
        segment.changes()
        segment.changes(lambda key_group: key_group % 2 == 0)
        for piece in segment.pieces(wire_ready=True, bytes_max=1_000):
            _ = piece.values
            if isinstance(piece, DecodedChanges):
                type_of(segment.header.key_type).wire_column(piece.columns["key"])


def _image(data: bytes) -> None:
    for section in decode_image(data, NAME).sections:
        section.decoded()


def _sealed(data: bytes) -> bytes:
    header = read_header(data, NAME)
    binding = encrypted.JOB_ID.encode() + b"\0" + encrypted.NAME.encode()
    return ObjectCipher(header, encrypted.KEY, binding, NAME).open(data)


def _value(data: bytes) -> None:
    """A type string, a zero byte, and the wire form of a value of the type."""
    text, _, wire = data.partition(b"\0")
    kind = parse_type_string(text.decode(errors="replace"))
    kind.thaw(kind.from_wire(wire))


def _parquet(data: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        file.write(data)
        file.flush()
        for schema in (change.schema for change in FULL.rows()):
            try:
                for changes in read_state(Path(file.name), type_of(KEY_TYPE), schema, NAME):
                    _ = changes.keys, changes.values
            except ERRORS:
                continue


def _values() -> tuple[bytes, ...]:
    kinds = ((text, parse_type_string(text), value) for text, value in CASES)
    return tuple(text.encode() + b"\0" + kind.to_wire(kind.freeze(value)) for text, kind, value in kinds)


def _dynamic_keys() -> tuple[bytes, ...]:
    kind = DynamicKeyType()
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    keys = (
        1, 2**70, "a", b"b", 1.5, True, ("x", (1, None)), Row(1, "x"), Row(a=1, b=("x",)), Decimal("1.5"), moment,
        moment.date(), moment.replace(tzinfo=None), moment.time(), timedelta(1),
    )  # fmt: skip
    return tuple(kind.to_wire(kind.freeze(key)) for key in keys)


DECODERS: dict[str, Decoder] = {
    "entry": Decoder(_files("v1/commit*") + _files("v1/fence*"), lambda data: decode_entry(data, NAME)),
    "job": Decoder(_files("v1/job*"), lambda data: decode_record(data, JobRecord, NAME)),
    "snapshot": Decoder(_files("v1/snapshot*"), lambda data: decode_record(data, SnapshotDescriptor, NAME)),
    "pin": Decoder(_files("v1/pin*"), lambda data: decode_record(data, Pin, NAME)),
    "savepoint": Decoder(_files("v1/savepoint*"), lambda data: decode_record(data, Savepoint, NAME)),
    "pack": Decoder(_files("v1/pack*"), lambda data: open_pack(data, NAME)),
    "segment": Decoder(_files("segment-*"), _segments),
    "image": Decoder(_files("operator-state-*"), _image),
    "standby": Decoder(_files("standby-*"), lambda data: decode_standby(data, NAME)),
    "request": Decoder(_files("request-*"), lambda data: decode_request(data, NAME)),
    "member": Decoder(_files("member-*"), lambda data: decode_heartbeat(data, NAME)),
    "encrypted object": Decoder(_files("encrypted-*"), _sealed),
    "value": Decoder(_values(), _value),
    "key": Decoder(_dynamic_keys(), lambda data: DynamicKeyType().thaw(data)),
    "end of a value": Decoder(_dynamic_keys(), lambda data: end_of(data, 0)),
    "rows of a savepoint": Decoder(_files("state-rows-v1/*"), _parquet),
    "owner of an output": Decoder(_files("output-owner-*"), lambda data: decode_marker(data, OutputOwner, NAME)),
    "commit of an output": Decoder(_files("output-commit-*"), lambda data: decode_marker(data, OutputCommit, NAME)),
    "sources of a query": Decoder(_files("query-sources-*"), lambda data: decode_sources(data, NAME)),
    "note of a sink": Decoder(_files("sink-note-*"), lambda data: decode_note(data, NAME)),
    "topics of Kafka": Decoder(_files("kafka-topics-*"), lambda data: decode_topics(data, NAME)),
    "commit in Kafka": Decoder(_files("kafka-commit-*"), lambda data: decode_commit(data, NAME)),
    "Spark's offsets": Decoder(
        (b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n{"logOffset":1}',),
        lambda data: parse_offsets(data, NAME, 1),
    ),
    "Spark's log of files": Decoder(
        (b'v1\n{"path":"file:///in/0.json","timestamp":1795785316509,"batchId":0}',),
        lambda data: file_lines(data, 0, NAME),
    ),
    "Spark's log of output": Decoder(
        (
            b'v1\n{"path":"file:///out/p","size":1,"isDir":false,"modificationTime":1,"blockReplication":1,"blockSize":1}',
        ),
        lambda data: spark_file_log.decode_entry(data, NAME),
    ),
    "Spark's metadata": Decoder((b'{"id":"5b2c0d5e"}',), lambda data: query_id_of(data, NAME)),
}


def mutated(data: bytes, rng: Random) -> bytes:
    """Other bytes; those of a frame have right checksums, most times."""
    if not data.startswith(MAGIC) or len(data) < PREFIX_BYTES or rng.random() < 0.05:
        return other_bytes(data, rng)
    try:
        first = data[: frame_length(data, NAME)]
    except CorruptDataError:
        return other_bytes(data, rng)
    header_length = int.from_bytes(data[12:16], "big")
    header, blob = first[PREFIX_BYTES : PREFIX_BYTES + header_length], first[PREFIX_BYTES + header_length :]
    match rng.randrange(4):
        case 0:
            header = other_bytes(header, rng)
        case 1 | 2:
            header = _other_json(header, rng)
        case _:
            blob = other_bytes(blob, rng)
    version = rng.choice((1, 1, 1, int.from_bytes(data[10:12], "big")))
    return frame(data[6:10], version, header, blob) + data[len(first) :]


def other_bytes(data: bytes, rng: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(changed) + 1)
        match rng.randrange(4):
            case 0 if changed:
                changed[at % len(changed)] = rng.randrange(256)
            case 1 if changed:
                changed[at % len(changed)] ^= 1 << rng.randrange(8)
            case 2:
                chunk = rng.choice(_CHUNKS)
                changed[at : at + rng.choice((0, len(chunk)))] = chunk
            case _:
                del changed[at : at + rng.choice((1, 4, 16, len(changed)))]
    return bytes(changed)


def _other_json(header: bytes, rng: Random) -> bytes:
    """The header with another value at one place, or without it."""
    try:
        value: Any = json.loads(header)
    except ValueError:
        return header
    whole = [value]
    place: Any = whole
    key: Any = 0
    while isinstance(place[key], (dict, list)) and place[key] and rng.random() < 0.9:
        place = place[key]
        key = rng.choice(list(place)) if isinstance(place, dict) else rng.randrange(len(place))
    if rng.random() < 0.1 and isinstance(place, dict):
        del place[key]
    else:
        place[key] = rng.choice(_LEAVES)
    return json.dumps(whole[0]).encode()
