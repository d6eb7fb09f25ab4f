"""What the chain and its companions say: frozen records, and their encoding (design 7a).

A commit's `parent` is always the commit it was executed on (its *base*), never a fence; a fence's `parent` is the
entry that was the head when the fence was written. So the line of a commit holds just what its state is made of.

Invariants: I2 (a commit names one tag per partition), I8 (every record is framed and verified). Each encoded record
contains its writer's token verbatim, which is what `varvite.storage.transfer.claim` looks for.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import msgspec

from varvite.storage.errors import CorruptDataError
from varvite.storage.format.frame import frame, unframe

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSION: Final = 1
ENTRY_VERSION: Final = 2
"""Of chain entries. Version 2 has images of non-keyed state; an entry without images is written as version 1."""
JOB_VERSION: Final = 2
"""Of a `JobRecord` whose chain does not begin at 1: an older varvite would begin it there."""
JOB_STORAGE_VERSION: Final = 3
"""Of a `JobRecord` with `storage`: an older varvite would read what is encrypted, and write what is not."""
KEY_HASH: Final = "pmod(xxhash64(keys, seed 42), max_parallelism)"


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of all records."""


# `gc=False`: they are many, and none can be part of a cycle, so the collector of cycles need not look at them.
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
    """As in `StateSchema`: of the step that led to this version."""


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
    """What `varvite.changelog.schema.ttl` keeps of a state that has or had TTL."""
    version: int = 0
    """Counts the changes of the value schema; stored with every value, modulo 128."""
    defaults: dict[str, bytes] | None = None
    """What fields that this version added have in older values: path → wire form; a field that is not here has null."""
    earlier: tuple[ValueVersion, ...] = ()
    """The versions right before this one, oldest first, that stored values may still be of. A version that a migration
    function made begins anew: the whole state was written again with it, and nothing is earlier."""


class OperatorLayout(Record, frozen=True, kw_only=True):
    """How an operator's state was laid out at a commit."""

    uid: str
    parallelism: int
    key_type: str
    """Type string of the key."""
    changelog: bool
    backend: str
    """hashmap, rocksdb, or the name of a user's factory: only informative, all read the same snapshots."""
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
    """The operator's then."""
    seq: int
    data: ObjectSlice


class PartitionCommit(Record, frozen=True, kw_only=True, gc=False):
    """What the winning attempt of one (operator, partition) changed in the batch (I2).

    No inline and no uploaded slices: the partition's state did not change. The uploaded parts precede the inline one.
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
"""Of a floor or a snapshot; one call for thousands of them is `map`'s."""


class StateSource(msgspec.Struct, frozen=True, array_like=True):
    """The commit whose state a commit was made from, of this job or another."""

    job_id: str
    commit: Link


class Fence(Record, frozen=True, kw_only=True, tag_field="kind", tag="fence"):
    """A driver run takes the chain over; `seq` is the run's epoch."""

    seq: int
    token: str
    job_id: str
    parent: Link
    keep_from: int
    retained_from: int = 0
    """As a commit's."""
    floors: tuple[SnapshotFloor, ...] = ()
    time_ms: int
    commit: Link = ORIGIN
    """Newest commit on the fence's line, so that a start after many fences need not walk them; `ORIGIN` if none."""
    restore: int | None = None
    """Seq of the commit that the operator explicitly chose to start a new query from."""
    chosen_ahead: bool = False
    """`restore` was chosen for whichever run comes next (`varvite restore`): it holds until there is a new commit."""

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
    """Seq of the oldest retained commit: of what only older ones name the snapshots may be gone. 0: not known."""
    floors: tuple[SnapshotFloor, ...] = ()
    batch: int
    query_id: str
    source_hash: str
    """sha256, hex, of the end offsets in Spark's `offsets/<batch>`."""
    time_ms: int
    watermark_ms: int | None = None
    """Of the batch that follows."""
    watermark_before_ms: int | None = None
    """The one that this batch began with; rows behind it are late for the batch that follows, by Spark's rule."""
    max_parallelism: int
    operators: tuple[OperatorLayout, ...]
    needs_from: int
    """Lowest slot of any chain entry, segment or pack that a restore of this commit reads."""
    parts: tuple[PartitionCommit, ...]
    tiles: tuple[Tile, ...] = ()
    """Tiles that this commit changed; all of them when this entry is full."""
    full: Link
    """Newest full entry on the line, this one included."""
    path: tuple[Link, ...] = ()
    """Commits of the line after `full` and before this one, in order; empty in a full entry."""
    log: tuple[SegmentRef, ...] = ()
    """Full entry: every segment of the line before this entry that is newer than its tile. Else empty."""
    images: tuple[ImageRef, ...] = ()
    """Full entry: every image of non-keyed state of the line before this entry that still counts. Else empty."""
    line: tuple[Link, ...] = ()
    """Full entry: the commits of the line from the oldest tile's `at` to the parent, in order, but at most the newest
    `line_view.LINE_MAX`. Else empty."""
    source: StateSource | None = None
    """No batch was executed: the state is that of this commit, copied. Such a commit is full, has no parts and no
    parent; `tiles` and `log` are at seqs of the source, and batch, query and times are the source's."""

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
    """The key when the job was made; each object names its own."""
    check: str
    """Check value of that key, hexadecimal."""


class LogLocation(Record, frozen=True, kw_only=True):
    """Where the job's log data is (`varvite.storage.job.log_store`), if it is not beside the chain."""

    type: str
    """`filesystem`, or `module:qualified.name` of a factory of log stores."""
    base_path: str | None = None
    """Of `filesystem`: the URL below which it is, under the job's id."""


class JobStorage(Record, frozen=True, kw_only=True):
    """How the job's objects are stored, where that is not in the plain way; never changes for a job."""

    encryption: JobEncryption | None = None
    log: LogLocation | None = None


class JobRecord(Record, frozen=True, kw_only=True):
    """`job.json`: what never changes for a job."""

    job_id: str
    token: str
    name: str
    max_parallelism: int
    key_hash: str = KEY_HASH
    created_ms: int
    begins_after: int = 0
    """Seqs of the chain are above this one. A job that is started from another's state goes on with its numbers, so
    that tiles, segments and elements of lists keep theirs."""
    cloned_from: str | None = None
    """Name of the job in the same storage whose objects this one's first entry names."""
    storage: JobStorage | None = None


class SnapshotDescriptor(Record, frozen=True, kw_only=True):
    """A published snapshot, or the mark that this number was given up (`status == "aborted"`, no files)."""

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
    """Its owner has found the commit complete after the pin was written: others may rely on it. Not all say so."""


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
    """A checkpoint under a name, complete in itself: native names all objects that it is made of, canonical has files.

    While it exists no collector deletes an object that it names (I7).
    """

    token: str
    """Also names the directory of the files."""
    name: str
    format: Literal["native", "canonical"]
    job: str
    key_hash: str = KEY_HASH
    commit: Commit
    """The checkpoint, without parts, tiles and references, which are for who reads the objects."""
    objects: tuple[str, ...] = ()
    """Native: the names of all objects that a restore reads, in order."""
    files: tuple[StateFile, ...] = ()
    """Canonical: all rows of all states; a state without rows has no file."""
    images: tuple[ImageRef, ...] = ()
    """Canonical: the non-keyed state, each image in a file."""
    tables: tuple[TableFile, ...] = ()
    """Canonical: the non-keyed state once more, for other tools; a state without rows has no file."""
    holder: str
    """For people: who needs it, and why."""
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
    """The log of a full entry ahead of the rest of it, for `encode_entry`; an empty one is left out there, as here."""
    return msgspec.json.encode(log) if log else b""


def encode_entry(entry: Entry, blob: bytes = b"", encoded_log: bytes = b"") -> bytes:
    """A chain entry as an object body; `blob` holds the inline segments, `encoded_log` is that of the entry's log."""
    written = msgspec.structs.replace(entry, log=msgspec.Raw(encoded_log)) if encoded_log else entry
    return frame(_ENTRY_KIND, _entry_version(entry), msgspec.json.encode(written), blob)


def decode_entry(data: bytes | memoryview, name: str) -> tuple[Entry, memoryview]:
    """The entry and its blob. Raises `CorruptDataError`, `IncompatibleError`."""
    opened = unframe(_ENTRY_KIND, ENTRY_VERSION, data, name)
    return _decode(opened.header, Entry, name), opened.blob


def encode_record(record: JobRecord | SnapshotDescriptor | Pin | Savepoint) -> bytes:
    """Any other record as an object body."""
    version = _job_version(record) if isinstance(record, JobRecord) else VERSION
    return frame(_KINDS[type(record)], version, msgspec.json.encode(record))


def decode_record(data: bytes | memoryview, record_type: type[R], name: str) -> R:
    """A record of that type. Raises `CorruptDataError`, `IncompatibleError`."""
    kind = _KINDS[record_type]
    opened = unframe(kind, _NEWEST.get(kind, VERSION), data, name)
    return _decode(opened.header, record_type, name)


def _job_version(record: JobRecord) -> int:
    if record.storage is not None:
        return JOB_STORAGE_VERSION
    return JOB_VERSION if record.begins_after > 0 else VERSION


def _entry_version(entry: Entry) -> int:
    if not isinstance(entry, Commit):
        return VERSION
    has_images = bool(entry.images) or any(p.image is not None or p.image_uploaded is not None for p in entry.parts)
    return ENTRY_VERSION if has_images else VERSION


def _decode(header: bytes, record_type: Any, name: str) -> Any:
    try:
        return msgspec.json.decode(header, type=record_type)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise CorruptDataError(f"the record does not parse: {error}", object_name=name) from error
