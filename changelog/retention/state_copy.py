"""Copies the state of a commit into the objects of one slot of another job, or of the same one; or shares it.

Files of tiles and uploaded log objects are copied whole and verified. Segments inside of chain entries, and images of
non-keyed state, are packed.

Invariants: I1 (everything is durable when `copy_state` returns), I7 (every name is of the slot), I8, I10 (one file per
thread on disk, at most `PACK_BYTES_MAX` of a pack, but for one batch, in memory).
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING, BinaryIO, Final

import msgspec

from varvite.changelog.chain.reader import in_parallel
from varvite.changelog.commit.import_plan import CopiedState
from varvite.changelog.commit.pack import (
    Pack,
    PackHeader,
    is_packable,
    plan_pack,
    replace_packed,
    replace_packed_images,
)
from varvite.changelog.retention.snapshots import SnapshotReader
from varvite.storage.errors import CorruptDataError
from varvite.storage.format import layout
from varvite.storage.format.records import ObjectSlice, SegmentRef, SnapshotFile, Tile
from varvite.storage.transfer.slice_reader import read_slices
from varvite.storage.transfer.upload import Uploader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from varvite.changelog.chain.view import LineView
    from varvite.storage.clock import Clock, TokenSource
    from varvite.storage.format.records import ImageRef
    from varvite.storage.object_stores.contract import ObjectStore

PACK_BYTES_MAX: Final = 64 << 20
_CHUNK_BYTES: Final = 1 << 20


class StateCopy:
    """Copies one state.

    Args:
        source: Rooted at the source's job.
        source_job_id: Its id.
        target: Rooted at the job that gets the state.
        target_job_id: Its id.
        slot: Of the import.
        scratch: An empty directory.
        clock: For uploads.
        tokens: For names.
    """

    def __init__(
        self,
        source: ObjectStore,
        source_job_id: str,
        *,
        target: ObjectStore,
        target_job_id: str,
        slot: int,
        scratch: Path,
        clock: Clock,
        tokens: TokenSource,
    ) -> None:
        self._source = source
        self._snapshots = SnapshotReader(source, source_job_id)
        self._target = target
        self._target_job_id = target_job_id
        self._slot = slot
        self._scratch = scratch
        self._clock = clock
        self._tokens = tokens
        self._tag = tokens.token()

    def copy(self, view: LineView) -> CopiedState:
        """Copy the state of the view's commit into objects of the slot.

        Raises:
            MissingObjectError, CorruptDataError: an object of the source is gone or damaged; nothing refers to the
                objects that were copied until then.
        """
        files = {tile: files_of(tile, self._snapshots) for tile in view.tiles}
        uploaded = [ref for ref in view.segments if not is_packable(ref)]
        named = self._copy_objects([f for tile in view.tiles for f in files[tile]], uploaded)
        tiles = tuple(_named(tile, files[tile], named.__getitem__) for tile in view.tiles)
        moved = tuple(ref if is_packable(ref) else _moved(ref, named[ref.data.name]) for ref in view.segments)
        return CopiedState(tiles, self._pack(moved), view.line, self.copy_images(view.images))

    def copy_images(self, images: tuple[ImageRef, ...]) -> tuple[ImageRef, ...]:
        """Copy the images into packs of the slot. Errors as `copy`."""
        left = list(dict.fromkeys(ref.data for ref in images))
        while left:
            count = _count_of(left, PACK_BYTES_MAX)
            data = {read.slice: bytes(read.data) for read in read_slices(self._source, left[:count])}
            header = PackHeader(job_id=self._target_job_id, token=self._tokens.token(), slot=self._slot)
            pack = plan_pack((), {}, header, {ref: data[ref.data] for ref in images if ref.data in data})
            self._put(pack)
            images = replace_packed_images(images, pack)
            left = left[count:]
        return images

    def _copy_objects(self, files: Sequence[SnapshotFile], refs: Sequence[SegmentRef]) -> dict[str, str]:
        """Copy these objects, which are then durable, and return old name → new name."""
        slices: dict[str, set[ObjectSlice]] = defaultdict(set)
        for file in files:
            slices[file.name].add(ObjectSlice(file.name, 0, file.size_bytes, file.crc32))
        for ref in refs:
            slices[ref.data.name].add(ref.data)
        whole = {file.name: file.size_bytes for file in files}
        names = {
            old: layout.segment(self._slot, "imported", 0, self._tag, index) for index, old in enumerate(sorted(slices))
        }
        with Uploader(self._target, self._clock) as uploader:

            def copy(old: str) -> None:
                path = self._scratch / names[old].rsplit("/", 1)[-1]
                self._source.get_file(old, path)
                try:
                    check_file(path, slices[old], whole.get(old), old)
                    uploader.submit_file(names[old], path).result()
                finally:
                    path.unlink()

            in_parallel(copy, list(names))
        return names

    def _pack(self, segments: tuple[SegmentRef, ...]) -> tuple[SegmentRef, ...]:
        """Copy the segments inside of chain entries into packs of the slot, and return all segments."""
        while oldest := _first_of(segments, PACK_BYTES_MAX):
            slices = read_slices(self._source, (ref.data for ref in oldest))
            data = {ref: bytes(read.data) for ref, read in zip(oldest, slices, strict=True)}
            header = PackHeader(job_id=self._target_job_id, token=self._tokens.token(), slot=self._slot)
            pack = plan_pack(segments, data, header)
            self._put(pack)
            segments = replace_packed(segments, pack)
        return segments

    def _put(self, pack: Pack) -> None:
        with Uploader(self._target, self._clock) as uploader:
            uploader.submit_bytes(pack.name, pack.body).result()


def _count_of(places: Sequence[ObjectSlice], bytes_max: int) -> int:
    """Number of the first slices that have at most so many bytes together; at least one."""
    sums = accumulate(place.length for place in places)
    return max(1, sum(size_bytes <= bytes_max for size_bytes in sums))


def share_state(view: LineView, source_job: str, snapshots: SnapshotReader) -> CopiedState:
    """Name the state of the view's commit as a clone of `source_job` does; nothing is copied."""

    def name_of(name: str) -> str:
        return layout.shared(source_job, name)

    tiles = tuple(_named(tile, files_of(tile, snapshots), name_of) for tile in view.tiles)
    images = tuple(msgspec.structs.replace(ref, data=_renamed(ref.data, name_of(ref.data.name))) for ref in view.images)
    return CopiedState(tiles, tuple(_moved(ref, name_of(ref.data.name)) for ref in view.segments), view.line, images)


def files_of(tile: Tile, snapshots: SnapshotReader) -> tuple[SnapshotFile, ...]:
    """The files of a tile, also those that a snapshot lists. Raises `CorruptDataError`, `MissingObjectError`."""
    if tile.snapshot is None:
        return tile.files
    name = layout.SnapshotName(tile.operator, tile.low, tile.high, tile.snapshot)
    descriptor = snapshots.read(name)
    if descriptor.status != "published" or descriptor.at != tile.at:
        raise CorruptDataError(
            f"the snapshot is of commit {descriptor.at.seq} and {descriptor.status}, the checkpoint expects commit "
            f"{tile.at.seq}; choose another checkpoint",
            object_name=layout.snapshot(*name),
        )
    return descriptor.files


def _named(tile: Tile, files: Sequence[SnapshotFile], name_of: Callable[[str], str]) -> Tile:
    """The tile with files under other names."""
    named = tuple(SnapshotFile(f.file, name_of(f.name), f.size_bytes, f.crc32) for f in files)
    return Tile(operator=tile.operator, low=tile.low, high=tile.high, at=tile.at, files=named)


def check_file(path: Path, slices: Iterable[ObjectSlice], size_bytes: int | None, name: str) -> None:
    """Raise `CorruptDataError` unless the fetched file has these slices, and this size if one is given."""
    with path.open("rb") as file:
        fits = size_bytes is None or path.stat().st_size == size_bytes
        fits = fits and all(_crc32(file, place) == place.crc32 for place in slices)
    if not fits:
        raise CorruptDataError(
            "the object is not what the checkpoint says; choose another checkpoint, or see "
            "`varvite verify JOB --repair`",
            object_name=name,
        )


def _crc32(file: BinaryIO, place: ObjectSlice) -> int | None:
    """The CRC-32 of a slice; None if the file ends before."""
    file.seek(place.offset)
    crc, left = 0, place.length
    while left:
        chunk = file.read(min(left, _CHUNK_BYTES))
        if not chunk:
            return None
        crc = zlib.crc32(chunk, crc)
        left -= len(chunk)
    return crc


def _moved(ref: SegmentRef, name: str) -> SegmentRef:
    return SegmentRef(ref.operator, ref.low, ref.high, ref.seq_first, ref.seq_last, _renamed(ref.data, name))


def _renamed(place: ObjectSlice, name: str) -> ObjectSlice:
    return ObjectSlice(name, place.offset, place.length, place.crc32)


def _first_of(segments: Sequence[SegmentRef], bytes_max: int) -> list[SegmentRef]:
    """The oldest segments inside of chain entries, of whole commits, up to about so many bytes; at least one commit."""
    oldest: list[SegmentRef] = []
    size_bytes = 0
    for ref in sorted((r for r in segments if is_packable(r)), key=lambda r: r.seq_first):
        if oldest and size_bytes >= bytes_max and ref.seq_first != oldest[-1].seq_first:
            break
        oldest.append(ref)
        size_bytes += ref.data.length
    return oldest
