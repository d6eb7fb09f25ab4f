"""Packs made in the background, between two commits, so that a full entry costs the acknowledgement nothing.

A pack belongs to one slot. Its upload begins right after the commit before, and the commit at its slot takes it if it
is durable by then. A late pack is garbage, which the collector deletes (I7); if its PUT has not begun by then, it is
cancelled. While a late pack is still being uploaded no other is begun, which would share the storage with it.

After `MISSES_MAX` commits without a pack one commit waits for its pack, so that full entries do come (I10). A late pack
is then given up, because it may hang; so is a pack whose wait has timed out. At most `HELD_MAX` packs that were given
up or are late are in memory.

An entry must be full even without a pack if the path has reached its limit. Such an entry always waits for its pack: it
would name each segment in place, which with many partitions is more than an entry may hold.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Mapping
from concurrent.futures import wait
from typing import TYPE_CHECKING, Final, NamedTuple

from varvite.changelog.chain.images import images_to_copy
from varvite.changelog.commit.pack import Pack, PackHeader, is_packable, plan_pack
from varvite.storage.attempt_threads import AttemptThreads
from varvite.storage.errors import CorruptDataError, MayHaveHappenedError, VarviteError
from varvite.storage.format import layout
from varvite.storage.format.records import SegmentRef
from varvite.storage.transfer.slice_reader import read_slices

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from varvite.changelog.chain.view import StoredCommit
    from varvite.changelog.commit.state import ChainState, CommitPolicy
    from varvite.storage.clock import TokenSource
    from varvite.storage.format.records import ImageRef, ObjectSlice
    from varvite.storage.object_stores.contract import ObjectStore

_log: Final = logging.getLogger(__name__)
MISSES_MAX: Final = 3
"""Commits in a row whose packs are late before one waits for its own. After a wait, however it ends, the count begins
anew."""
WAIT_S: Final = 60.0
"""Timeout of a commit's wait for its pack. Without a pack no entry is full, up to the policy's `path_max`."""
HELD_MAX: Final = 4
"""Limit of packs in memory at the same time, each held by a call of the storage that may hang."""
CLOSE_S: Final = 10.0
"""Timeout of the wait, at the end of a run, for a pack that no entry will name."""


class _Upload(NamedTuple):
    """A pack that is being made."""

    slot: int
    future: Future[Pack | None]
    """The result is None if the pack was late before its PUT."""
    late: threading.Event
    """Set when no entry will name it any more."""


class PackUpload:
    """Makes the packs of one driver run. `start` and `take` come from one thread."""

    def __init__(self, store: ObjectStore, tokens: TokenSource, policy: CommitPolicy) -> None:
        self._store = store
        self._tokens = tokens
        self._policy = policy
        self._threads = AttemptThreads(1, "varvite-pack")
        self._blobs: dict[str, tuple[int, bytes]] = {}
        """By chain entry of this run that a pack may need: the blob's place, and the blob. Entries are only ever
        added."""
        self.failure: VarviteError | None = None
        """The reason why the last pack that was due is missing; None once a pack was taken."""
        self._upload: _Upload | None = None
        """For the next slot."""
        self._late: _Upload | None = None
        """The previous upload, if it was late and may still be running."""
        self._misses = 0

    def remember(self, stored: StoredCommit, body: bytes) -> None:
        """Keep the inline bytes of a commit that was just put, so that a pack need not read them back.

        Bytes kept before a full entry are in its pack; if it had none, the next pack reads them back. The next pack
        also reads back what is not kept because `pack_bytes` are kept already: packs may fail (I10).
        """
        if stored.commit.is_full:
            self._blobs = {}  # a thread that still makes a late pack has the old dict
        kept_bytes = sum([len(blob) for _, blob in self._blobs.values()])
        if len(body) > stored.blob_offset and kept_bytes < self._policy.pack_bytes:
            self._blobs[layout.chain(stored.commit.seq)] = stored.blob_offset, body[stored.blob_offset :]

    def start(self, state: ChainState) -> None:
        """Begin to make and upload the next entry's pack, if that entry should be full."""
        if not state.is_full_due(self._policy):
            return
        if not state.packable_bytes and not state.view.images:
            return
        if not self._may_begin(state):
            self._misses += 1
            return
        header, late = PackHeader(job_id=state.job_id, token=self._tokens.token(), slot=state.slot), threading.Event()
        future = self._threads.submit(lambda: self._make(state, header, late))
        self._upload = _Upload(state.slot, future, late)

    def take(self, state: ChainState) -> Pack | None:
        """Take the pack for the state's slot if it is durable; `chain/<slot>` must name it."""
        upload, self._upload = self._upload, None
        if upload is None:
            return None
        slot, is_ready = state.slot, upload.future.done()
        may_wait = self._misses >= MISSES_MAX or state.must_be_full(self._policy)
        if upload.slot != slot or not (is_ready or may_wait):
            self._misses += 1
            self.failure = MayHaveHappenedError(f"the pack for slot {upload.slot} was not stored in time")
            upload.late.set()
            self._late = None if upload.future.cancel() else upload
            return None
        if not is_ready:
            self._misses = 0
        try:
            pack = upload.future.result(WAIT_S)
        except TimeoutError:
            upload.late.set()
            self._threads.give_up(upload.future)
            self.failure = MayHaveHappenedError(f"the pack for slot {slot} was not stored within {WAIT_S:g} s")
            _log.warning("%s, a later entry will be full", self.failure)
            return None
        except VarviteError as error:
            self.failure = _without_frames(error)
            _log.warning("the pack for slot %d could not be made, a later entry will be full: %s", slot, error)
            return None
        self._misses, self.failure = 0, None
        self._blobs = {}  # should this commit fail, the next pack reads them back
        return pack

    def settle(self, timeout_s: float | None = None) -> None:
        """Wait until the pack for the next slot, if there is one, is stored or has failed; None: without a timeout."""
        if self._upload is not None:
            wait([self._upload.future], timeout_s)

    def close(self) -> None:
        """Wait for the pack that is being made, up to `CLOSE_S`, and end the thread."""
        self.settle(CLOSE_S)
        if self._upload is not None:
            self._upload.late.set()
        self._threads.close()

    def _may_begin(self, state: ChainState) -> bool:
        """Tell whether another pack may be made now. If one must be made, a late upload that still runs is given up."""
        if self._late is not None and self._late.future.done():
            error = None if self._late.future.cancelled() else self._late.future.exception()
            self.failure = _without_frames(error) if isinstance(error, VarviteError) else self.failure
            self._late = None
        if self._late is None:
            return self._threads.lost < HELD_MAX
        must_begin = self._misses >= MISSES_MAX or state.must_be_full(self._policy)
        if not must_begin or self._threads.lost + 1 >= HELD_MAX:
            return False
        self._threads.give_up(self._late.future)
        self._late = None
        return True

    def _make(self, state: ChainState, header: PackHeader, late: threading.Event) -> Pack | None:
        view, packable = state.view, state.packable()
        images = images_to_copy(view.images)
        try:
            held = self._read(packable, images)
        except CorruptDataError as error:
            packable = tuple(ref for ref in packable if is_packable(ref))
            held = self._read(packable, images)
            _log.warning("a pack is not joined with the next one, because it is damaged: %s", error)
        pack = plan_pack(view.segments, held, header, {image: held.at(image.data) for image in images})
        if late.is_set():
            return None
        self._store.put(pack.name, pack.body)
        return pack._replace(body=b"")  # no longer needed, and it may be large

    def _read(self, packable: tuple[SegmentRef, ...], images: tuple[ImageRef, ...]) -> _HeldBytes:
        """The bytes of these segments and images."""
        blobs = self._blobs  # a commit may begin another dict meanwhile
        held = _HeldBytes(packable, blobs)
        missing = dict.fromkeys([ref.data for ref in (*packable, *images) if ref.data.name not in blobs])
        for read in read_slices(self._store, list(missing)):
            held.read[read.slice] = bytes(read.data)
        return held


def _without_frames(error: VarviteError) -> VarviteError:
    """Clear the frames of the error's tracebacks, which hold the bytes of a pack, and return it."""
    cause: BaseException | None = error
    while cause is not None:
        traceback.clear_frames(cause.__traceback__)
        cause = cause.__cause__ or cause.__context__
    return error


class _HeldBytes(Mapping["SegmentRef", bytes]):
    """The bytes of segments that are to be packed, copied lazily out of the blobs in memory."""

    def __init__(self, segments: tuple[SegmentRef, ...], blobs: dict[str, tuple[int, bytes]]) -> None:
        self._segments = segments
        self._names = {segment.data.name for segment in segments}
        self._blobs = blobs
        self.read: dict[ObjectSlice, bytes] = {}

    def at(self, place: ObjectSlice) -> bytes:
        """The bytes there."""
        held = self._blobs.get(place.name)
        if held is None:
            return self.read[place]
        begin, blob = held
        return blob[place.offset - begin : place.offset - begin + place.length]

    def __getitem__(self, ref: SegmentRef) -> bytes:
        return self.at(ref.data)

    def __contains__(self, ref: object) -> bool:
        return isinstance(ref, SegmentRef) and ref.data.name in self._names

    def __iter__(self) -> Iterator[SegmentRef]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)
