"""The changelog of one attempt: parts that are uploaded while the function goes on, and the rest at its end.

A part is encoded on the worker's own thread, which has the interpreter's lock anyway, and uploaded by others; what is
in flight is bounded, and above the bound the function waits. Most attempts never cut: their one segment is the rest.

Invariants: I1 (`finish` returns when everything that it names is durable), I3 and I7 (names carry slot, tag and part:
what an attempt that does not win has uploaded is never referred to, and is collected), I10.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from varvite.changelog.segments.segment import encode_segment
from varvite.spark_integration.worker.state.part_decision import GrowingPart
from varvite.storage.fail_point import fail_point
from varvite.storage.format import layout
from varvite.storage.format.records import ObjectSlice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from varvite.changelog.keyed.backend import KeyedStateBackend
    from varvite.changelog.segments.changes import StateChanges
    from varvite.changelog.segments.segment import SegmentHeader
    from varvite.spark_integration.worker.state.part_decision import ChangeSizes
    from varvite.storage.transfer.upload import Uploader


class SegmentLimits(NamedTuple):
    """Sizes of encoded changes, bytes."""

    part_bytes: int
    """Changes that are estimated to reach this are cut and uploaded early."""
    inline_bytes_max: int
    """The rest goes inline up to and with this, else it is the last part uploaded."""


class Log(NamedTuple):
    """The encoded changes of an attempt, in the order in which they apply: the uploaded parts, then the inline one."""

    uploaded: tuple[ObjectSlice, ...]
    inline: bytes


class SegmentParts:
    """The parts of one attempt's segment. Used by one thread; ends with `finish` or with `abandon`.

    Args:
        header: Of all parts; `part` and `states` are filled in.
        backend: Whose changes.
        limits: Sizes.
        sizes: The sizes of changes, as far as they are measured.
        open_uploader: Makes the attempt's uploader, when the first part is uploaded.
    """

    def __init__(
        self,
        header: SegmentHeader,
        backend: KeyedStateBackend,
        limits: SegmentLimits,
        sizes: ChangeSizes,
        open_uploader: Callable[[], Uploader],
    ) -> None:
        self.sizes = sizes
        """The sizes of changes, as far as they are measured now."""
        self.mutations = 0
        """Rows of all parts so far."""
        self._header = header
        self._backend = backend
        self._limits = limits
        self._open_uploader = open_uploader
        self._uploader: Uploader | None = None
        self._uploads: list[tuple[ObjectSlice, Future[None]]] = []
        self._growing = GrowingPart(limits.part_bytes)

    def after_input(self, size_bytes: int) -> bool:
        """Note input that was processed, and cut a part if it is full; answers if one was cut.

        Raises:
            VarviteError: the upload of an earlier part failed.
            InvalidRequestError: a value does not fit its type.
        """
        self._growing = growing = self._growing.after_input(size_bytes)
        if not growing.is_count_due(self.sizes):
            return False
        if not growing.is_full(self._backend.count_rows(), self.sizes):
            self._growing = growing.after_count()
            return False
        for _, upload in self._uploads:
            if upload.done():
                upload.result()
        self._upload(self._encode(self._backend.cut()))
        self._growing = growing.after_cut()
        fail_point("worker.after_early_part")
        return True

    def finish(self) -> Log:
        """End the segment: on return everything but the inline part is durable. Raises as `after_input`."""
        try:
            rest, inline = self._backend.changes(), b""
            if rest:
                data = self._encode(rest)
                if len(data) <= self._limits.inline_bytes_max:
                    inline = data
                else:
                    self._upload(data)
            for _, upload in self._uploads:
                upload.result()
        except BaseException:
            self.abandon()
            raise
        if self._uploader is not None:
            self._uploader.close()
            fail_point("worker.after_segment_upload")
        return Log(tuple(uploaded for uploaded, _ in self._uploads), inline)

    def abandon(self) -> None:
        """Give up the uploads that are still running: nothing of this attempt will be confirmed."""
        if self._uploader is not None:
            self._uploader.abandon()

    def _encode(self, changes: Sequence[StateChanges]) -> bytes:
        """Encode the changes as the next part, and learn from their size."""
        header = msgspec.structs.replace(self._header, part=len(self._uploads))
        data, rows = encode_segment(header, changes), sum(map(len, changes))
        self.sizes = self.sizes.learnt(rows, len(data), self._growing.input_bytes)
        self.mutations += rows
        return data

    def _upload(self, data: bytes) -> None:
        """Upload a part under the attempt's own name; waits while too much is in flight."""
        fail_point("worker.before_segment_upload")
        if self._uploader is None:
            self._uploader = self._open_uploader()
        header, part = self._header, len(self._uploads)
        name = layout.segment(header.seq, header.operator, header.partition, header.tag, part)
        upload = self._uploader.submit_bytes(name, data)
        self._uploads.append((ObjectSlice(name, 0, len(data), zlib.crc32(data)), upload))
