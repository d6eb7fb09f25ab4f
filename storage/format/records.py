"""The records of the chain and its companions, frozen, and their encoding.

A commit's `parent` is always the commit it was executed on (its *base*), never a fence; a fence's `parent` is the
entry that was the head when the fence was written. So the line of a commit has only commits that its state is made of.
The protocol is in docs/internals/commit-protocol.md, the formats are in docs/reference/formats/.

Invariants: I2 (a commit names one tag per partition), I8 (every record is framed and verified). Each encoded record
contains its writer's token verbatim, so that `varvite.storage.transfer.claim` can find it.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import msgspec

from varvite.storage.format.frame import decode_json, frame, unframe

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSION: Final = 1
ENTRY_VERSION: Final = 2
"""The version of chain entries. Version 2 has images of non-keyed state; one without images is written as version 1."""
JOB_VERSION: Final = 2
"""The version of a `JobRecord` whose chain does not begin at 1: an older varvite would begin it there."""
JOB_STORAGE_VERSION: Final = 3
"""The version of a `JobRecord` with `storage`: an older varvite knows no encryption and no other place of the log."""
KEY_HASH: Final = "pmod(xxhash64(keys, seed 42), max_parallelism)"


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of all records."""


# `gc=False`: they are many, and none can be part of a cycle, so the cycle collector need not visit them.
class Link(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One entry of the chain: its seq and its writer's token. `Link(0, "")` is the empty beginning."""

    seq: int
    token: str


ORIGIN: Final = Link(0, "")


class ObjectSlice(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Bytes `[offset, offset + length)` of an object, with their CRC-32."""

    name: str
    offset: int
    length: int
    crc32: int


class BlobSlice(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Bytes `[offset, offset + length)` of the entry's own blob, with their CRC-32."""

    offset: int
    length: int
    crc32: int


class ValueVersion(Record, frozen=True, kw_only=True, gc=False):
    """An earlier version of a state's value schema."""

    value_type: str
    defaults: dict[str, bytes] | None = None
    """As in `StateSchema`, for the step that led to this version."""


class StateSchema(Record, frozen=True, kw_only=True, gc=False):
    """One keyed state of an operator, self-describing: all that replay and materialization need to know."""

    name: str
    kind: str
    """value, list, map, reducing, aggregating or timers."""
    value_type: str
    """Type string (`varvite.changelog.types.factory`) of the value, element, map value or accumulator; of a timer's
    time.
    """
    map_key_type: str | None = None
    namespace_type: str | None = None
    ttl: dict[str, Any] | None = None
    """The record of `varvite.changelog.schema.ttl` about a state that has or had TTL."""
    version: int = 0
    """Counts the changes of the value schema; stored with every value, modulo 128."""
    defaults: dict[str, bytes] | None = None
    """Values of the fields that this version added, for older stored values: path → wire form. Others are null."""
    earlier: tuple[ValueVersion, ...] = ()
    """The versions before this one, oldest first, that stored values may still have. Empty after a migration function:
    it wrote the whole state again."""


class OperatorLayout(Record, frozen=True, kw_only=True):
    """The layout of an operator's state at a commit."""

    uid: str
    parallelism: int
    key_type: str
    """Type string of the key."""
    changelog: bool
    backend: str
    """hashmap, rocksdb, or the name of a user's factory: for information only, as all read the same snapshots."""
    states: tuple[StateSchema, ...] = ()


class SnapshotFile(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One file of a RocksDB snapshot: its name in the RocksDB directory and the object that holds it."""

    file: str
    name: str
    size_bytes: int
    crc32: int


class Tile(Record, frozen=True, kw_only=True, gc=False):
    """The base of key groups `[low, high)` of an operator: their state after commit `at`.

    `at == ORIGIN` with neither snapshot nor files is the empty state. `snapshot` numbers a published descriptor;
    `files` are named directly (changelog off).
    """

    operator: str
    low: int
    high: int
    at: Link = ORIGIN
    snapshot: int | None = None
    files: tuple[SnapshotFile, ...] = ()


class SegmentRef(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Segments of one operator's key groups `[low, high)`, seqs `seq_first` to `seq_last` (inclusive), in order."""

    operator: str
    low: int
    high: int
    seq_first: int
    seq_last: int
    data: ObjectSlice


class ImageRef(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The whole non-keyed state of one partition of an operator, as commit `seq` wrote it."""

    operator: str
    partition: int
    parallelism: int
    """The operator's parallelism at that commit."""
    seq: int
    data: ObjectSlice


class PartitionCommit(Record, frozen=True, kw_only=True, gc=False):
    """The changes of the winning attempt of one (operator, partition) in the batch (I2).

    Without inline and uploaded slices the partition's state did not change. The uploaded parts precede the inline one.
    """

    operator: str
    partition: int
    low: int
    high: int
    tag: str
    mutations: int = 0
    inline: BlobSlice | None = None
    uploaded: tuple[ObjectSlice, ...] = ()
    image: BlobSlice | None = None
    """The partition's whole non-keyed state, if the batch changed it and it is small."""
    image_uploaded: ObjectSlice | None = None
    """The same, if it is large."""


class SnapshotFloor(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Highest snapshot number that was ever adopted for this range; only higher ones may be adopted (I7)."""

    operator: str
    low: int
    high: int
    number: int


RANGE_OF: Final = attrgetter("operator", "low", "high")
"""The range of a floor or a snapshot; a C function, because it is mapped over thousands of them."""


class StateSource(msgspec.Struct, frozen=True, array_like=True):
    """The commit, of this job or another, that a commit's state was copied from."""

    job_id: str
    commit: Link


class SourceFile(msgspec.Struct, frozen=True, array_like=True):
    """A file that a source has written once, below Spark's checkpoint location."""

    name: str
    """Relative to the location: `sources/<source>/0`."""
    data: bytes


class InputPosition(Record, frozen=True, kw_only=True):
    """The end of a batch's input, as Spark's checkpoint location says it: a location is made from it, and is a cache.

    Only of inputs whose offsets say all: not of sources that keep lists of what they have read.
    """

    offsets: str
    """Spark's `offsets/<batch>`."""
    watermark_ms: int = 0
    """Spark's watermark after the batch, milliseconds; 0: it has none."""
    files: tuple[SourceFile, ...] = ()
    is_in_spark_log: bool = False
    """Spark has written its logs in the batch, one after the other: `commits/<batch>` says that the sink is done."""


class Fence(Record, frozen=True, kw_only=True, tag_field="kind", tag="fence"):
    """A driver run takes the chain over; `seq` is the run's epoch."""

    seq: int
    token: str
    job_id: str
    parent: Link
    keep_from: int
    retained_from: int = 0
    """As in `Commit`."""
    floors: tuple[SnapshotFloor, ...] = ()
    time_ms: int
    commit: Link = ORIGIN
    """The newest commit on the fence's line, `ORIGIN` if none: a start after many fences need not follow them."""
    restore: int | None = None
    """Seq of the commit that the operator explicitly chose to start a new query from."""
    chosen_ahead: bool = False
    """`restore` was chosen for whichever run comes next (`varvite restore`): it holds until there is a new commit."""
    by: str = ""
    """The process, for people; empty: it did not say."""

    @property
    def epoch(self) -> int:
        return self.seq

    @property
    def link(self) -> Link:
        return Link(self.seq, self.token)


class Commit(Record, frozen=True, kw_only=True, tag_field="kind", tag="commit"):
    """A checkpoint: names, or carries in its blob, everything needed to rebuild the state after its batch."""

    seq: int
    token: str
    job_id: str
    epoch: int
    parent: Link
    """The commit this batch was executed on; `ORIGIN` for the first."""
    keep_from: int
    """Lowest slot of any object that a retained commit needs."""
    retained_from: int = 0
    """The seq of the oldest retained commit; 0: unknown. Snapshots that only older commits name may be gone."""
    floors: tuple[SnapshotFloor, ...] = ()
    batch: int
    query_id: str
    source_hash: str
    """sha256, hex, of the end offsets in Spark's `offsets/<batch>`."""
    time_ms: int
    watermark_ms: int | None = None
    """The watermark of the following batch."""
    watermark_before_ms: int | None = None
    """The watermark at the beginning of this batch; by Spark's rule, rows behind it are late in the following batch."""
    max_parallelism: int
    operators: tuple[OperatorLayout, ...]
    needs_from: int
    """Lowest slot of any chain entry, segment or pack that a restore of this commit reads."""
    parts: tuple[PartitionCommit, ...]
    tiles: tuple[Tile, ...] = ()
    """The tiles that this commit changed; in a full entry all tiles."""
    full: Link
    """The newest full entry on the line, this one included."""
    path: tuple[Link, ...] = ()
    """Commits of the line after `full` and before this one, in order; empty in a full entry."""
    log: tuple[SegmentRef, ...] = ()
    """Full entry: every segment of the line before this entry that is newer than its tile. Else empty."""
    images: tuple[ImageRef, ...] = ()
    """Full entry: every image of non-keyed state of the line before this entry that is still current. Else empty."""
    line: tuple[Link, ...] = ()
    """Full entry: the commits of the line from the oldest tile's `at` to the parent, in order, but at most the newest
    `line_view.LINE_MAX`. Else empty."""
    position: InputPosition | None = None
    """The end of the batch's input, if the offsets of its sources say all; None: only Spark's location says it."""
    source: StateSource | None = None
    """Set if no batch was executed and the state is a copy of this commit's. Such a commit is full and has no parts and
    no parent; `tiles` and `log` are at seqs of the source, and batch, query and times are the source's."""

    @property
    def link(self) -> Link:
        return Link(self.seq, self.token)

    @property
    def is_full(self) -> bool:
        return self.full.seq == self.seq


Entry = Fence | Commit


class JobEncryption(Record, frozen=True, kw_only=True):
    """All objects of the job but `job.json` are encrypted (`varvite.storage.object_stores.encrypted.sealed_object`)."""

    key_id: str
    """The key at the job's creation; each object names its own."""
    check: str
    """The check value of that key, hexadecimal."""


class LogLocation(Record, frozen=True, kw_only=True):
    """The location of the job's log data (`varvite.storage.job.log_store`), if it is not beside the chain."""

    type: str
    """`filesystem`, or `module:qualified.name` of a factory of log stores."""
    base_path: str | None = None
    """For `filesystem`: the URL of the parent of the log's directory, which is named by the job's id."""


class JobStorage(Record, frozen=True, kw_only=True):
    """Encryption and log location of the job, where they differ from the default; never changes for a job."""

    encryption: JobEncryption | None = None
    log: LogLocation | None = None


class JobRecord(Record, frozen=True, kw_only=True):
    """`job.json`: the facts about a job that never change."""

    job_id: str
    token: str
    name: str
    max_parallelism: int
    key_hash: str = KEY_HASH
    created_ms: int
    begins_after: int = 0
    """The chain's seqs are above this one. A job that is started from another's state continues its numbers, so that
    tiles, segments and elements of lists keep theirs."""
    cloned_from: str | None = None
    """Name of the job in the same storage whose objects this one's first entry names."""
    storage: JobStorage | None = None


class SnapshotDescriptor(Record, frozen=True, kw_only=True):
    """A published snapshot, or the mark that its number was abandoned (`status == "aborted"`, no files)."""

    status: Literal["published", "aborted"]
    job_id: str
    token: str
    uid: str
    operator: str
    low: int
    high: int
    number: int
    at: Link = ORIGIN
    """The commit whose state the snapshot is."""
    base: Link = ORIGIN
    """`at` of the tile that the snapshot was built on."""
    files: tuple[SnapshotFile, ...] = ()
    states: tuple[StateSchema, ...] = ()
    mutations: int = 0
    created_ms: int


class Pin(Record, frozen=True, kw_only=True):
    """Keeps everything from `needs_from` on (I7)."""

    token: str
    holder: str
    needs_from: int
    commit: Link
    created_ms: int
    is_checked: bool = False
    """True: after writing the pin its owner verified that the commit is complete, so others may rely on it. False:
    unknown."""


class StateFile(msgspec.Struct, frozen=True, array_like=True):
    """The rows of one state of an operator's key groups `[low, high)`, as a Parquet file."""

    operator: str
    state: str
    low: int
    high: int
    name: str
    rows: int
    size_bytes: int
    crc32: int


class TableFile(msgspec.Struct, frozen=True, array_like=True):
    """The rows of one non-keyed state of an operator, in all its partitions, as a Parquet file."""

    operator: str
    state: str
    kind: str
    """`operator-list`, `operator-union-list`, `broadcast`, `raw-operator` or `raw-keyed`."""
    name: str
    rows: int
    size_bytes: int
    crc32: int


class Savepoint(Record, frozen=True, kw_only=True):
    """A checkpoint under a name, complete in itself: native names all of its objects, canonical has files.

    While it exists no collector deletes an object that it names (I7).
    """

    token: str
    """Also names the directory of the files."""
    name: str
    format: Literal["native", "canonical"]
    job: str
    key_hash: str = KEY_HASH
    commit: Commit
    """The checkpoint, without parts, tiles and references, which only readers of the objects need."""
    objects: tuple[str, ...] = ()
    """Native: the names of all objects that a restore reads, in order."""
    files: tuple[StateFile, ...] = ()
    """Canonical: all rows of all states; a state without rows has no file."""
    images: tuple[ImageRef, ...] = ()
    """Canonical: the non-keyed state, each image in a file."""
    tables: tuple[TableFile, ...] = ()
    """Canonical: the non-keyed state once more, for other tools; a state without rows has no file."""
    holder: str
    """The owner and the purpose, for people."""
    created_ms: int


R = TypeVar("R", JobRecord, SnapshotDescriptor, Pin, Savepoint)
_ENTRY_KIND: Final = b"CHEN"
_KINDS: Final[dict[type[Any], bytes]] = {
    JobRecord: b"JOBR",
    SnapshotDescriptor: b"SNAP",
    Pin: b"PINR",
    Savepoint: b"SAVE",
}
_NEWEST: Final = {b"JOBR": JOB_STORAGE_VERSION}


def encode_log(log: Sequence[SegmentRef]) -> bytes:
    """Encode the log of a full entry ahead of the entry, for `encode_entry`; b"" for an empty log."""
    return msgspec.json.encode(log) if log else b""


def encode_entry(entry: Entry, blob: bytes = b"", encoded_log: bytes = b"") -> bytes:
    """A chain entry as an object body; `blob` has the inline segments, `encoded_log` is from `encode_log`."""
    header = msgspec.structs.replace(entry, log=msgspec.Raw(encoded_log)) if encoded_log else entry
    return frame(_ENTRY_KIND, _entry_version(entry), msgspec.json.encode(header), blob)


def decode_entry(data: bytes | memoryview, name: str) -> tuple[Entry, memoryview]:
    """The entry and its blob. Raises `CorruptDataError`, `IncompatibleError`."""
    opened = unframe(_ENTRY_KIND, ENTRY_VERSION, data, name)
    return decode_json(opened.header, Entry, "the record", name), opened.blob


def encode_record(record: JobRecord | SnapshotDescriptor | Pin | Savepoint) -> bytes:
    """Any other record as an object body."""
    version = _job_version(record) if isinstance(record, JobRecord) else VERSION
    return frame(_KINDS[type(record)], version, msgspec.json.encode(record))


def decode_record(data: bytes | memoryview, record_type: type[R], name: str) -> R:
    """A record of this type. Raises `CorruptDataError`, `IncompatibleError`."""
    kind = _KINDS[record_type]
    opened = unframe(kind, _NEWEST.get(kind, VERSION), data, name)
    return decode_json(opened.header, record_type, "the record", name)


def _job_version(record: JobRecord) -> int:
    if record.storage is not None:
        return JOB_STORAGE_VERSION
    return JOB_VERSION if record.begins_after > 0 else VERSION


def _entry_version(entry: Entry) -> int:
    if not isinstance(entry, Commit):
        return VERSION
    has_images = bool(entry.images) or any(p.image is not None or p.image_uploaded is not None for p in entry.parts)
    return ENTRY_VERSION if has_images else VERSION
