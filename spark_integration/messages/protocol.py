"""The messages of driver, pump and state worker in one micro-batch.

Driver → pump: a `BatchRequest` in the task's closure. Pump → state worker, over a Unix socket: a `TaskRequest`, then
the function's bytes if the worker asks for them, then the input as an Arrow IPC stream. State worker → pump: a
`Ready`, then the answer as an Arrow IPC stream whose rows are the output rows (with the attempt's row tag) followed
by exactly one summary row (`varvite.spark_integration.messages.summary`). The pump passes that stream on to Spark.

Invariants: I2 (every output row carries the row tag of its attempt; one summary per attempt), I4 (`confirmed` says
which attempt won at the base, so that a worker may fold what it holds).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from varvite.changelog.chain.view_slices import ViewSlices
from varvite.changelog.restore.local import LocalRecovery
from varvite.changelog.working_stores.options import BackendSettings
from varvite.storage.format.inspection import inspected
from varvite.storage.format.records import JobStorage, Link, StateSchema
from varvite.storage.transfer.download import DownloadPolicy
from varvite.storage.transfer.upload import UploadPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence


TAG_COLUMN: Final = "__varvite_tag"
"""int64: row tag of the attempt that produced the row."""
SUMMARY_COLUMN: Final = "__varvite_summary"
"""binary: null in output rows; the encoded `summary.Summary` in the one summary row."""
KEY_GROUP_COLUMN: Final = "__varvite_key_group"
"""int32, input only: the row's key group."""
PARTITION_COLUMN: Final = "__varvite_partition"
"""int32, input only: the row's partition; dropped before the pump where Spark allows it."""
FAILURE_COLUMN: Final = "__varvite_failure"
"""string, in the rows of a job without operators: null but in the row with the error of a user's function."""
KEY_COLUMN: Final = "__varvite_key"
"""Any type, between a key function and the operator: the row's key."""
EVENT_TIME_COLUMN: Final = "__varvite_event_time"
"""int64, beside elements that are not rows: event time in milliseconds since the epoch."""


LOST_BLOCK: Final = "varvite: a cached output block was lost"
"""Spark's message of a job that has read a row of an attempt that is not the winner."""


def row_tag(tag: str) -> int:
    """The 63 bits of a 128-bit tag that every output row carries."""
    return int(tag[:16], 16) >> 1


def row_tags(tags: Sequence[str]) -> list[int]:
    """The row tags of thousands of tags, all of 32 hex digits; together they take half the time."""
    numbers: list[int] = (np.frombuffer(bytes.fromhex("".join(tags)), ">u8")[::2] >> 1).tolist()
    return numbers


def has_summary(answer: pa.RecordBatch) -> bool:
    """Does a batch of an answer end with the summary? It is the last row of the last one."""
    return answer.column(SUMMARY_COLUMN).null_count < answer.num_rows


class JobLocation(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a job's objects, and the way to reach them."""

    job: str
    """Directory name of the job under the storage root."""
    job_id: str
    storage_url: str
    storage_options: dict[str, Any]
    job_storage: JobStorage | None = None
    """The record in `job.json` of how the job's objects are stored."""
    key_provider: str | None = None
    """Provider of the keys of an encrypted job; keys themselves never travel."""


class StateSpec(JobLocation, frozen=True, kw_only=True):
    """The properties of an operator's working state that cannot change while it lives."""

    parallelism: int
    max_parallelism: int
    key_type: str
    """Type string of the key."""
    changelog: bool
    backend: str
    """hashmap or rocksdb, or `module:qualified.name` of a factory."""
    backend_options: BackendSettings
    local_recovery: LocalRecovery | None = None
    """The settings by which state is kept on the host for the next process; None: it goes with the executor."""
    generic_types: bool = True
    """State may hold pickled objects; else a state of such a type is refused."""


class OperatorRequest(StateSpec, frozen=True, kw_only=True):
    """The part of a request that does not change while the query runs."""

    operator: str
    """The operator's uid."""
    key_columns: tuple[str, ...]
    output_schema: bytes
    """Serialised Arrow schema of the user's output columns."""
    timestamp_column: str | None
    function_hash: str
    """sha256 of the pickled function."""
    task_name: str
    """The operator's name, for people."""
    job_parameters: dict[str, str]
    """The parameters that `RuntimeContext.get_job_parameter` answers."""
    upload: UploadPolicy
    """Limits of a state worker's uploads."""
    downloads: DownloadPolicy
    """Limits of a restore."""
    preemptive_persist_threshold_bytes: int
    """Changes of this size, encoded, are uploaded while the function goes on."""
    inline_bytes_max: int
    """Largest segment that travels inline; above it the worker uploads."""
    idle_timeout_s: float
    states: tuple[StateSchema, ...] = ()
    """The operator's states at the base of the run's first batch: all partitions count schema versions from there."""
    vectorized: bool = False
    """The function is a `VectorizedProcessFunction`."""
    broadcast: bool = False
    """The function is a `BroadcastFunction`."""
    has_watermark: bool = True
    """A watermark may come, in this batch or a later one."""
    follows: bool = False
    """Its input comes from another operator, before the watermark of the batch, as in Flink."""
    is_batch: bool = False
    """Flink's BATCH mode: elements come in order of event time, and at the end every timer is due."""
    inbox: str = ""
    """Directory where a worker on the driver's machine hands its segment over (`segment_inbox`); "" nowhere."""


def agree(spec: type[JobLocation], first: JobLocation, second: JobLocation) -> bool:
    """Are all fields of that part of two requests equal?"""
    return all(getattr(first, name) == getattr(second, name) for name in spec.__struct_fields__)


class BatchSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a batch: what is the same for all operators."""

    batch: int
    """Spark's number of the batch."""
    epoch: int
    run: str = ""
    """Token of the fence with which the driver's run took the chain over: it tells two runs of one epoch apart."""
    slot: int
    """Seq that the commit of this batch will have."""
    commit_token: str
    """Token that the commit will have; with the slot it is the version that the batch leads to."""
    attempt: int
    """Counts the driver's attempts at this slot, from 0."""
    base: Link
    """The commit that this batch is executed on; `ORIGIN` for the first."""
    time_ms: int
    watermark_ms: int | None
    late_watermark_ms: int | None = None
    """The watermark of the batch before. Spark's functions take for late what is at or behind it, as in Spark. Rows
    that come from another operator come at this watermark."""
    is_first: bool = False
    """The base is the one that the driver's run began with: non-keyed state is redistributed."""
    input_ends: bool = False
    """No element comes after those of this batch: once they are processed, every event-time timer is due."""


class BatchRequest(BatchSpec, frozen=True, kw_only=True):
    """The driver's request to every task of one operator in one attempt of a batch."""

    operator: OperatorRequest
    confirmed: tuple[str, ...]
    """By partition: the tag that won at `base` for this operator, "" if it had none."""
    has_images: bool = False
    """Some partition of the operator has non-keyed state at the base."""
    base_view: ViewSlices | None = None
    """The view of the base, in a run's first batch: then most tasks restore, and need not read the chain for it."""


class TaskRequest(msgspec.Struct, frozen=True, kw_only=True):
    """First message of a pump to a state worker."""

    batch: BatchRequest
    partition: int
    tag: str
    """32 hex digits, new for every task attempt."""
    task_attempt: int
    """Spark's task attempt id: the newest (epoch, slot, attempt, task attempt) pre-empts the others."""


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """The worker's answer to a `TaskRequest`."""

    needs_function: bool
    refused: str | None = None
    """The reason why the request is not executed (a late request of an older run); the task then fails."""
    pid: int = 0
    """Process id of the worker."""


class UserError(msgspec.Struct, frozen=True, kw_only=True):
    """An exception that the user's function raised."""

    exception_type: str
    message: str
    traceback: str
    key: str | None
    """repr of the current key."""
    pickled: bytes | None
    """The exception itself, if it can be pickled."""
    where: str = ""
    """The step of a chain of functions that raised it, and the element."""


def encode_message(message: Any) -> bytes:
    """One message as bytes."""
    return msgspec.msgpack.encode(message)


def decode_message(data: bytes | memoryview | Any, message_type: Any) -> Any:
    """The message of those bytes."""
    return msgspec.msgpack.decode(data, type=inspected(message_type))


def answer_schema(output_schema: pa.Schema) -> pa.Schema:
    """Arrow schema of an answer: the user's columns (nullable), the row tag and the summary."""
    fields = [pa.field(f.name, f.type) for f in output_schema]
    return pa.schema([*fields, pa.field(TAG_COLUMN, pa.int64()), pa.field(SUMMARY_COLUMN, pa.binary())])


class BroadcastValue(msgspec.Struct, frozen=True, kw_only=True):
    """One broadcast variable that the function refers to: a file, or (encrypted broadcasts) the pickled value."""

    broadcast_id: int
    path: str | None = None
    pickled: bytes | None = None


class FunctionPackage(msgspec.Struct, frozen=True, kw_only=True):
    """Pump → state worker: the function, if `Ready` needs it."""

    function: bytes
    broadcasts: tuple[BroadcastValue, ...] = ()
