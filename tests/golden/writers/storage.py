"""The values behind the golden files of the storage layer.

`python -m tests.golden.writers.storage` writes missing files.

A file that exists is never replaced: bytes on disk are for ever. A new format version gets files of its own.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import msgspec

from varvite.changelog.commit.pack import Pack, PackHeader, plan_pack
from varvite.changelog.retention.savepoints import bare
from varvite.storage.format import layout
from varvite.storage.format.frame import frame
from varvite.storage.format.records import (
    BlobSlice,
    Commit,
    Entry,
    Fence,
    ImageRef,
    InputPosition,
    JobEncryption,
    JobRecord,
    JobStorage,
    Link,
    LogLocation,
    ObjectSlice,
    OperatorLayout,
    PartitionCommit,
    Pin,
    Savepoint,
    SegmentRef,
    SnapshotDescriptor,
    SnapshotFile,
    SnapshotFloor,
    SourceFile,
    StateFile,
    StateSchema,
    StateSource,
    TableFile,
    Tile,
    ValueVersion,
    encode_entry,
    encode_record,
)

DATA = Path(__file__).parents[1] / "data" / "v1"
JOB_ID = "0123456789abcdef0123456789abcdef"
OPERATOR = "per-plane/ä"


def token(number: int) -> str:
    return f"{number:032x}"


SCHEMA = StateSchema(
    name="destinations",
    kind="map",
    value_type="bigint",
    map_key_type="string",
    ttl={"ttl_ms": 60_000, "update": "on_create_and_write"},
    version=2,
)
LAYOUT = OperatorLayout(
    uid=OPERATOR,
    parallelism=2,
    key_type="string",
    changelog=True,
    backend="rocksdb",
    states=(SCHEMA, StateSchema(name="count", kind="value", value_type="bigint")),
)
FLOORS = (SnapshotFloor(OPERATOR, 0, 64, 3),)
FILE = SnapshotFile("000012.sst", layout.snapshot_file(OPERATOR, 0, 64, 3, "u1", "000012.sst"), 4096, 0xDEADBEEF)
DIRECT = SnapshotFile("000001.sst", layout.segment(5, OPERATOR, 1, token(9), 0), 10, 1)
INLINE = b"first inline segment"
UPLOADED = ObjectSlice(layout.segment(8, OPERATOR, 1, token(81), 0), 0, 5_000_000, 123_456_789)
EMPTY_FENCE = Fence(seq=1, token=token(1), job_id=JOB_ID, parent=Link(0, ""), keep_from=0, time_ms=1_700_000_000_000)
FENCE = Fence(
    seq=7,
    token=token(7),
    job_id=JOB_ID,
    parent=Link(6, token(6)),
    keep_from=4,
    floors=FLOORS,
    time_ms=1_700_000_000_007,
    commit=Link(6, token(6)),
    restore=5,
)
COMMIT = Commit(
    seq=8,
    token=token(8),
    job_id=JOB_ID,
    epoch=7,
    parent=Link(6, token(6)),
    keep_from=4,
    floors=FLOORS,
    batch=5,
    query_id="6a1f0a4e-5f0c-4a0e-9b57-0f6f6f6f6f6f",
    source_hash="ab" * 32,
    time_ms=1_700_000_000_008,
    watermark_ms=1_699_999_999_000,
    max_parallelism=128,
    operators=(LAYOUT,),
    needs_from=4,
    parts=(
        PartitionCommit(
            operator=OPERATOR,
            partition=0,
            low=0,
            high=64,
            tag=token(80),
            mutations=3,
            inline=BlobSlice(0, len(INLINE), zlib.crc32(INLINE)),
        ),
        PartitionCommit(
            operator=OPERATOR, partition=1, low=64, high=128, tag=token(81), mutations=9, uploaded=(UPLOADED,)
        ),
    ),
    tiles=(Tile(operator=OPERATOR, low=0, high=64, at=Link(5, token(5)), snapshot=3),),
    full=Link(4, token(4)),
    path=(Link(5, token(5)), Link(6, token(6))),
)
RETAINED_COMMIT = msgspec.structs.replace(COMMIT, retained_from=6)
EVOLVED = StateSchema(
    name="orders",
    kind="value",
    value_type="1:row<total:long,currency:string>",
    version=2,
    defaults={"currency": b"\x03CHF"},
    earlier=(
        ValueVersion(value_type="1:row<total:int>"),
        ValueVersion(value_type="1:row<total:long>", defaults={"total": b"\x00"}),
    ),
)
TIMERS = StateSchema(name="timers", kind="timers", value_type="1:long", namespace_type="1:string")
EVOLVED_COMMIT = msgspec.structs.replace(
    COMMIT,
    watermark_before_ms=1_699_999_998_000,
    operators=(msgspec.structs.replace(LAYOUT, states=(EVOLVED, TIMERS)),),
)
FULL_COMMIT = Commit(
    seq=9,
    token=token(9),
    job_id=JOB_ID,
    epoch=7,
    parent=Link(8, token(8)),
    keep_from=4,
    floors=FLOORS,
    batch=6,
    query_id="6a1f0a4e-5f0c-4a0e-9b57-0f6f6f6f6f6f",
    source_hash="cd" * 32,
    time_ms=1_700_000_000_009,
    max_parallelism=128,
    operators=(LAYOUT,),
    needs_from=5,
    parts=(
        PartitionCommit(operator=OPERATOR, partition=0, low=0, high=64, tag=token(90)),
        PartitionCommit(operator=OPERATOR, partition=1, low=64, high=128, tag=token(91)),
    ),
    tiles=(
        Tile(operator=OPERATOR, low=0, high=64, at=Link(5, token(5)), snapshot=3),
        Tile(operator=OPERATOR, low=64, high=128, at=Link(5, token(5)), files=(DIRECT,)),
    ),
    full=Link(9, token(9)),
    log=(
        SegmentRef(OPERATOR, 0, 64, 6, 8, ObjectSlice(layout.pack(9, token(95)), 120, 60, 7)),
        SegmentRef(OPERATOR, 64, 128, 8, 8, UPLOADED),
    ),
    line=(Link(5, token(5)), Link(6, token(6)), Link(8, token(8))),
)
IMAGE = b"an image of both partitions"
IMAGE_PLACE = BlobSlice(len(INLINE), len(IMAGE), zlib.crc32(IMAGE))
IMAGES_COMMIT = msgspec.structs.replace(
    COMMIT,
    parts=(
        msgspec.structs.replace(COMMIT.parts[0], image=IMAGE_PLACE),
        msgspec.structs.replace(COMMIT.parts[1], image=IMAGE_PLACE),
    ),
)
IMAGES_FULL_COMMIT = msgspec.structs.replace(
    FULL_COMMIT,
    parts=(
        msgspec.structs.replace(
            FULL_COMMIT.parts[0],
            image_uploaded=ObjectSlice(layout.image(9, OPERATOR, 0, token(90)), 0, 7_000_000, 123_456),
        ),
        FULL_COMMIT.parts[1],
    ),
    images=(ImageRef(OPERATOR, 1, 2, 8, ObjectSlice(layout.pack(9, token(95)), 180, len(IMAGE), zlib.crc32(IMAGE))),),
)
JOB = JobRecord(
    job_id=JOB_ID, token=token(99), name="flights", max_parallelism=128, created_ms=1_700_000_000_000
)  # fmt: skip
ENCRYPTED_JOB = msgspec.structs.replace(
    JOB, storage=JobStorage(encryption=JobEncryption(key_id="key-of-2026", check="0123456789abcdef"))
)
JOB_WITH_LOG = msgspec.structs.replace(
    JOB, storage=JobStorage(log=LogLocation(type="filesystem", base_path="s3://fast/varve-log"))
)
SNAPSHOT = SnapshotDescriptor(
    status="published",
    job_id=JOB_ID,
    token=token(50),
    uid="u1",
    operator=OPERATOR,
    low=0,
    high=64,
    number=3,
    at=Link(5, token(5)),
    base=Link(0, ""),
    files=(FILE,),
    states=LAYOUT.states,
    mutations=1000,
    created_ms=1_700_000_000_050,
)
ABORTED = SnapshotDescriptor(
    status="aborted",
    job_id=JOB_ID,
    token=token(51),
    uid=token(51),
    operator=OPERATOR,
    low=64,
    high=128,
    number=1,
    created_ms=1_700_000_000_051,
)
CHOSEN_FENCE = Fence(
    seq=10,
    token=token(10),
    job_id=JOB_ID,
    parent=Link(9, token(9)),
    keep_from=5,
    floors=FLOORS,
    time_ms=1_700_000_000_010,
    commit=Link(9, token(9)),
    restore=8,
    chosen_ahead=True,
)
NAMED_FENCE = Fence(
    seq=11,
    token=token(11),
    job_id=JOB_ID,
    parent=Link(10, token(10)),
    keep_from=5,
    time_ms=1_700_000_000_011,
    commit=Link(9, token(9)),
    by="'flights.py' on host one, process 12",
)
STARTED_JOB = JobRecord(
    job_id=token(100),
    token=token(101),
    name="flights-2",
    max_parallelism=128,
    created_ms=1_700_000_000_020,
    begins_after=9,
)
CLONED_JOB = JobRecord(
    job_id=token(102),
    token=token(103),
    name="flights-3",
    max_parallelism=128,
    created_ms=1_700_000_000_021,
    begins_after=9,
    cloned_from="flights",
)
IMPORTED_FILE = SnapshotFile("000012.sst", layout.segment(11, "imported", 0, token(111), 0), 4096, 0xDEADBEEF)
IMPORT = Commit(
    seq=11,
    token=token(110),
    job_id=token(100),
    epoch=10,
    parent=Link(0, ""),
    keep_from=0,
    batch=6,
    query_id="6a1f0a4e-5f0c-4a0e-9b57-0f6f6f6f6f6f",
    source_hash="cd" * 32,
    time_ms=1_700_000_000_009,
    max_parallelism=128,
    operators=(LAYOUT,),
    needs_from=11,
    parts=(),
    tiles=(
        Tile(operator=OPERATOR, low=0, high=64, at=Link(5, token(5)), files=(IMPORTED_FILE,)),
        Tile(operator=OPERATOR, low=64, high=128, at=Link(5, token(5))),
    ),
    full=Link(11, token(110)),
    log=(SegmentRef(OPERATOR, 0, 64, 6, 8, ObjectSlice(layout.pack(11, token(112)), 120, 60, 7)),),
    line=(Link(5, token(5)), Link(6, token(6)), Link(8, token(8)), Link(9, token(9))),
    source=StateSource(JOB_ID, Link(9, token(9))),
)
POSITION_COMMIT = msgspec.structs.replace(
    COMMIT,
    position=InputPosition(
        offsets='v1\n{"batchWatermarkMs":0,"batchTimestampMs":1700000000008,"conf":{}}\n52',
        watermark_ms=1_699_999_999_000,
        files=(SourceFile("sources/0/0", b'v1\n{"value":"1700000000000"}'),),
        is_in_spark_log=True,
    ),
)
NATIVE = Savepoint(
    token=token(120),
    name="before-upgrade",
    format="native",
    job="flights",
    commit=bare(FULL_COMMIT),
    objects=(layout.chain(9), layout.pack(9, token(95)), UPLOADED.name, layout.snapshot(OPERATOR, 0, 64, 3), FILE.name),
    holder="varve savepoint",
    created_ms=1_700_000_000_030,
)
CANONICAL = Savepoint(
    token=token(121),
    name="copy",
    format="canonical",
    job="flights",
    commit=bare(FULL_COMMIT),
    files=(
        StateFile(
            OPERATOR,
            "count",
            0,
            64,
            layout.savepoint_file(token(121), OPERATOR, "count", 0, 64),
            3,
            1000,
            0xCAFEBABE,
        ),
    ),
    holder="varve savepoint",
    created_ms=1_700_000_000_031,
)
CANONICAL_WITH_TABLES = msgspec.structs.replace(
    CANONICAL,
    token=token(122),
    files=(),
    images=(ImageRef(OPERATOR, 0, 1, 9, ObjectSlice(layout.savepoint_image(token(122), 0), 0, len(IMAGE), 7)),),
    tables=(
        TableFile(
            OPERATOR,
            "rules",
            "broadcast",
            layout.savepoint_table(token(122), OPERATOR, "rules", "broadcast"),
            4,
            2000,
            0xCAFEBABE,
        ),
    ),
    created_ms=1_700_000_000_032,
)
PIN = Pin(token=token(60), holder="savepoint before-upgrade", needs_from=5, commit=FULL_COMMIT.link, created_ms=1)


def golden_pack() -> Pack:
    """Two runs of one operator; the second range has a gap of one batch."""
    data = {
        SegmentRef(OPERATOR, low, high, seq, seq, ObjectSlice(layout.chain(seq), 40, len(text), zlib.crc32(text))): text
        for low, high, seq, text in (
            (0, 64, 5, b"five"),
            (64, 128, 5, b"FIVE"),
            (0, 64, 6, b"six"),
            (64, 128, 8, b"VIII"),
        )
    }
    return plan_pack(tuple(data), data, PackHeader(job_id=JOB_ID, token=token(70), slot=9))


def golden_pack_of_images() -> Pack:
    """A segment, and an image that two partitions share."""
    segment = SegmentRef(OPERATOR, 0, 64, 5, 5, ObjectSlice(layout.chain(5), 40, 4, zlib.crc32(b"five")))
    place = ObjectSlice(layout.chain(8), 400, len(IMAGE), zlib.crc32(IMAGE))
    images = {ImageRef(OPERATOR, partition, 2, 8, place): IMAGE for partition in range(2)}
    header = PackHeader(job_id=JOB_ID, token=token(71), slot=9)
    return plan_pack((segment,), {segment: b"five"}, header, images)


ENTRIES: dict[str, tuple[Entry, bytes]] = {
    "fence-first.bin": (EMPTY_FENCE, b""),
    "fence.bin": (FENCE, b""),
    "commit.bin": (COMMIT, INLINE),
    "commit-full.bin": (FULL_COMMIT, b""),
    "commit-images.bin": (IMAGES_COMMIT, INLINE + IMAGE),
    "commit-images-full.bin": (IMAGES_FULL_COMMIT, b""),
    "commit-import.bin": (IMPORT, b""),
    "fence-chosen.bin": (CHOSEN_FENCE, b""),
    "fence-named.bin": (NAMED_FENCE, b""),
    "commit-position.bin": (POSITION_COMMIT, INLINE),
    "commit-retained.bin": (RETAINED_COMMIT, INLINE),
    "commit-evolved.bin": (EVOLVED_COMMIT, INLINE),
    "fence-retained.bin": (msgspec.structs.replace(FENCE, retained_from=6), b""),
}
RECORDS: dict[str, JobRecord | SnapshotDescriptor | Pin | Savepoint] = {
    "job.bin": JOB,
    "snapshot.bin": SNAPSHOT,
    "snapshot-aborted.bin": ABORTED,
    "snapshot-later.bin": msgspec.structs.replace(SNAPSHOT, number=4, base=Link(4, token(4))),
    "pin.bin": PIN,
    "pin-checked.bin": msgspec.structs.replace(PIN, is_checked=True),
    "job-started.bin": STARTED_JOB,
    "job-clone.bin": CLONED_JOB,
    "job-encrypted.bin": ENCRYPTED_JOB,
    "job-log.bin": JOB_WITH_LOG,
    "savepoint-native.bin": NATIVE,
    "savepoint-canonical.bin": CANONICAL,
    "savepoint-tables.bin": CANONICAL_WITH_TABLES,
}
FRAME = (b"TEST", 3, b'{"a":1}', b"\x00\x01blob")


def encoded() -> dict[str, bytes]:
    """Every golden file as today's code writes it."""
    files = {name: encode_entry(*value) for name, value in ENTRIES.items()}
    files |= {name: encode_record(value) for name, value in RECORDS.items()}
    packs = {"pack.bin": golden_pack().body, "pack-images.bin": golden_pack_of_images().body}
    return files | packs | {"frame.bin": frame(*FRAME)}


if __name__ == "__main__":
    DATA.mkdir(parents=True, exist_ok=True)
    for file_name, body in encoded().items():
        if not (DATA / file_name).exists():
            (DATA / file_name).write_bytes(body)
