"""The summary of an attempt that has ended: one row of the state worker's answer to the driver.

The driver decodes thousands of summaries per batch, so what each costs is the objects that it is made of. A summary has
only what is committed of its partition as objects of its own. Numbers are in a record of fixed width
(`AttemptFigures`), which the driver reads as columns, and what most partitions say alike (`WorkerNote`) is encoded by
itself and decoded once per batch (`operator_summaries`).

Invariants: I2 (one summary per attempt; the tags of those that are committed are the winners).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import msgspec

from varvite.changelog.commit.batch_result import PartitionResult
from varvite.spark_integration.messages.protocol import UserError
from varvite.spark_integration.messages.user_metrics import UserMetric
from varvite.spark_integration.messages.worker_figures import AttemptFigures, UploadFigures
from varvite.storage.format.inspection import inspected
from varvite.storage.format.records import StateSchema

if TYPE_CHECKING:
    from collections.abc import Sequence

JOINED_MEAN_BYTES_MAX: Final = 4 << 10
"""Summaries up to this mean size are decoded together, which copies them; larger ones one by one."""


class WorkerNote(msgspec.Struct, frozen=True, array_like=True):
    """The part of a summary that most partitions of an operator have in common."""

    states: tuple[StateSchema, ...] = ()
    """The operator's states."""
    restored: str = ""
    """The worker's way to the base: confirmed, current, caught-up, restored; for statistics."""
    executor: str = ""
    """Tells the executor that ran it from all others (`placement.executor_key`)."""
    broadcast_digest: str = ""
    """Hash of the broadcast rows that were read, in their order; the same everywhere. Empty if there are none."""
    warnings: tuple[str, ...] = ()
    """Sentences for the user about the function, which the driver's log says once."""


class Summary(PartitionResult, frozen=True, kw_only=True, gc=False, array_like=True):
    """The result of one attempt of one (operator, partition): what is committed of it, and more for the driver.

    The commit takes the winners' summaries as they are; making thousands of other objects of them would take
    milliseconds.
    """

    slot: int
    figures: bytes = AttemptFigures().packed()
    """`AttemptFigures`, packed."""
    note: bytes = b""
    """A `WorkerNote`, encoded; empty if it says nothing."""
    handed_over_bytes: int = 0
    """Length of the segment if the driver has got it directly, in the place of `inline`; 0 if not."""
    uploads: UploadFigures | None = None
    """The worker's uploads since its last summary, for metrics; None if there were none."""
    error: UserError | None = None
    """The error of the user's function; nothing is committed then."""
    accumulated: tuple[bytes, ...] = ()
    """The values that the attempt has added to accumulators of the user: each id and value, pickled."""
    metrics: tuple[UserMetric, ...] = ()
    """The metrics of the user's functions since the worker's last summary."""

    def attempt_figures(self) -> AttemptFigures:
        """The numbers of this one summary."""
        return AttemptFigures.unpacked(self.figures)

    def worker_note(self) -> WorkerNote:
        """The note of this one summary."""
        return decode_note(self.note)


_SUMMARY: Final = msgspec.msgpack.Decoder(inspected(Summary))
_SUMMARIES: Final = msgspec.msgpack.Decoder(inspected(list[Summary]))
_NOTE: Final = msgspec.msgpack.Decoder(inspected(WorkerNote))
_ENCODER: Final = msgspec.msgpack.Encoder()
_ARRAY_32: Final = struct.Struct(">BI")
"""MessagePack's header of an array: 0xdd and its length."""


def encode_summary(summary: Summary) -> bytes:
    """The summary as the answer's last row has it."""
    return _ENCODER.encode(summary)


def decode_summary(data: bytes | memoryview) -> Summary:
    """Decode one summary."""
    return _SUMMARY.decode(data)


def decode_summaries(encoded: Sequence[bytes | memoryview]) -> list[Summary]:
    """Decode all of them; small ones at once, which takes less than a call for each."""
    if sum(map(len, encoded)) > JOINED_MEAN_BYTES_MAX * len(encoded):
        return [_SUMMARY.decode(summary) for summary in encoded]
    return _SUMMARIES.decode(b"".join((_ARRAY_32.pack(0xDD, len(encoded)), *encoded)))


def encode_note(note: WorkerNote) -> bytes:
    """The note as a summary has it."""
    return _ENCODER.encode(note)


def decode_note(data: bytes) -> WorkerNote:
    """Decode a note."""
    return _NOTE.decode(data) if data else WorkerNote()
