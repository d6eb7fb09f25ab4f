"""A job without Spark: one keyed backend that can commit, drop, crash and restore in every way that varvite has."""

from __future__ import annotations

import shutil
import zlib
from typing import TYPE_CHECKING, Any, Literal

from tests.storage_switches import MATERIALIZE_EVERY
from tests.stores.working_stores import OPERATOR, open_snapshot, open_store
from varvite.changelog.api.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from varvite.changelog.chain.tiles import KeyGroupFloor
from varvite.changelog.keyed.backend import KeyedStateBackend
from varvite.changelog.schema.ttl import record_of
from varvite.changelog.segments.batch import BatchTime
from varvite.changelog.segments.replay import FlooredSegment, replay
from varvite.changelog.segments.segment import SegmentHeader, decode_segment, encode_segment
from varvite.changelog.types.factory import as_type
from varvite.changelog.types.key_wire import key_writer
from varvite.changelog.types.stamped import STAMP
from varvite.storage.format.records import ORIGIN, Link
from varvite.testing.contracts.working_store import contents

if TYPE_CHECKING:
    from pathlib import Path

    from varvite.changelog.types.contract import TypeInformation
    from varvite.storage.format.records import StateSchema

MAX_PARALLELISM = 8

Changelog = Literal["on", "off"]


class Row:
    """The current row, as far as state asks for it."""

    element_timestamp: int | None = None


class KeyedJob:
    """State of one operator with all key groups.

    Args:
        kind: hashmap or rocksdb.
        changelog: on: a commit encodes a segment, and a restore replays the segments over the last snapshot; off: a
            commit writes a snapshot, and a restore opens it.
        directory: For everything on disk.
        key_type: Type of the keys.
    """

    def __init__(self, kind: str, changelog: Changelog, directory: Path, key_type: Any = "string") -> None:
        self.kind = kind
        self.changelog = changelog
        self.now = BatchTime(0)
        self.row = Row()
        """The row that is being processed."""
        self.cleans_up = True
        """True if every commit is followed by a cleanup of what has expired."""
        self.materializes = False
        """True if every other commit is followed by a materialization."""
        self.key_type: TypeInformation = as_type(key_type)
        self._directory = directory
        self._directories = 0
        self._seq = 0
        self._snapshot: tuple[Path, Link] | None = None
        self._segments: list[bytes] = []
        self._parts: list[bytes] = []
        """Of the batch that is pending."""
        self._states: tuple[StateSchema, ...] = ()
        self._open(open_store(kind, self._new_directory(), self.key_type.type_string(), 0, MAX_PARALLELISM))

    def move_time(self, time_ms: int, watermark_ms: int | None = None) -> None:
        """Sets the time."""
        self.now = BatchTime(time_ms, watermark_ms)
        self.backend.begin_batch(self.now)

    def at(self, key: Any, descriptor: StateDescriptor) -> Any:
        """The handle of a state, with this key as the current one."""
        self.set_key(key)
        return self.handle(descriptor)

    def set_key(self, key: Any) -> None:
        """Make a key, which may be None, the current one; its key group is a hash of its bytes."""
        stored = None if key is None else self.key_type.freeze(key)
        self.backend.set_current_key(zlib.crc32(key_writer(self.key_type)(stored)) % MAX_PARALLELISM, stored)

    def handle(self, descriptor: StateDescriptor) -> Any:
        """A handle of any kind of state."""
        get: dict[type[StateDescriptor], Any] = {
            ValueStateDescriptor: self.backend.get_state,
            ListStateDescriptor: self.backend.get_list_state,
            MapStateDescriptor: self.backend.get_map_state,
            ReducingStateDescriptor: self.backend.get_reducing_state,
            AggregatingStateDescriptor: self.backend.get_aggregating_state,
        }
        return get[type(descriptor)](descriptor)

    def cut(self) -> None:
        """Let what has changed since the last cut leave as a part of the batch, which goes on."""
        self._parts.append(encode_segment(self._header(self._seq + 1), self.backend.cut()))

    def commit(self) -> None:
        """End the batch: its changes become durable, and are folded."""
        version = _link(self._seq + 1)
        changes = self.backend.changes()
        if self.changelog == "on":
            self._segments += [*self._parts, encode_segment(self._header(version.seq), changes)]
            self.backend.work_ahead()
            self.backend.prepare(version.seq)
        self.backend.fold(version)
        self._parts.clear()
        self._seq = version.seq
        if self.cleans_up:
            self.backend.clean_up()
        self._states = self.backend.schemas
        if self.changelog == "off" or (self.materializes and self._seq % MATERIALIZE_EVERY == 0):
            self.materialize()

    def redeploy(self) -> None:
        """Go on with new code over the same store; what was not committed is lost."""
        self._open(self.backend.store)
        self._parts.clear()

    def drop(self) -> None:
        """End the batch as if it never was."""
        self.backend.drop()
        self._parts.clear()

    def materialize(self) -> None:
        """Write a snapshot of the confirmed state, and forget the segments that it holds."""
        self.materialize_at(self.now.time_ms)

    def materialize_at(self, time_ms: int) -> None:
        """The same when the confirmed state's time is not that of the current batch."""
        snapshot = self._new_directory()
        self.backend.store.write_snapshot(snapshot, BatchTime(time_ms))
        self._snapshot = snapshot, self.backend.store.version
        self._segments.clear()

    def crash(self, kind: str | None = None) -> None:
        """Lose all that is in memory and restore what was committed, with another backend if one is given.

        What is restored is what the store held: replaying the parts of the batches in order gives what folding did.
        """
        self._open(self.backend.store)  # forgets what was declared in a batch that never was
        held = self._contents(self.backend.store)
        self.backend.store.close()
        self._parts.clear()
        self.kind = kind or self.kind
        if self._snapshot is None:
            store = open_store(self.kind, self._new_directory(), self.key_type.type_string(), 0, MAX_PARALLELISM)
        else:
            copy = self._new_directory()
            shutil.copytree(self._snapshot[0], copy)
            store = open_snapshot(self.kind, copy)
        assert store.version == (self._snapshot[1] if self._snapshot else ORIGIN)
        floors = (KeyGroupFloor(0, MAX_PARALLELISM, store.version.seq),)
        segments = [FlooredSegment(decode_segment(data, "segment"), floors) for data in self._segments]
        replay(store, segments, _link(self._seq), low=0, high=MAX_PARALLELISM)
        self._open(store)
        assert self._contents(store) == held

    def close(self) -> None:
        """Release the store."""
        self.backend.store.close()

    def _open(self, store: Any) -> None:
        self.backend = KeyedStateBackend(store, self.key_type, OPERATOR, self._states)
        self.backend.row = self.row
        self.backend.begin_batch(self.now)

    def _contents(self, store: Any) -> dict[str, dict[Any, Any]]:
        """Cells that are not empty, without what has expired, which may have been cleaned up or not."""
        found = contents(store, self.key_type.type_string())
        for schema in store.schemas:
            record = record_of(schema)
            if record is not None:
                found[schema.name] = _live(found[schema.name], record.expired_up_to(self.now))
        return {name: cells for name, cells in found.items() if cells}

    def _new_directory(self) -> Path:
        self._directories += 1
        return self._directory / f"{self._directories}"

    def _header(self, seq: int) -> SegmentHeader:
        return SegmentHeader(
            job_id="job", operator=OPERATOR, partition=0, low=0, high=MAX_PARALLELISM, seq=seq, tag=f"token-{seq}",
            part=len(self._parts), key_type=self.key_type.type_string(),
        )  # fmt: skip


def _live(cells: dict[Any, Any], expired_up_to_ms: int) -> dict[Any, Any]:
    """The stamped wire forms, or lists of them, with a later stamp."""

    def is_live(wire: bytes) -> bool:
        return STAMP.unpack_from(wire)[0] > expired_up_to_ms

    kept = {
        place: [wire for wire in cell if is_live(wire)] if isinstance(cell, list) else cell
        for place, cell in cells.items()
    }
    return {place: cell for place, cell in kept.items() if (cell if isinstance(cell, list) else is_live(cell))}


def _link(seq: int) -> Link:
    """The commit of a seq."""
    return Link(seq, f"token-{seq}") if seq else ORIGIN
