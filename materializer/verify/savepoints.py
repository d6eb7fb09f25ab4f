"""Checking that a savepoint is complete and whole: a part of `varvite verify`.

Invariants that are checked: I7 (what a savepoint names is there), I8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from varvite.changelog.chain.reader import ChainReader
from varvite.changelog.operator_state.image_source import read_images
from varvite.changelog.restore.files import check_file
from varvite.changelog.restore.restore import tile_files
from varvite.changelog.segments.segment import decode_segments
from varvite.storage.errors import CorruptDataError, IncompatibleError, MissingObjectError
from varvite.storage.format import layout
from varvite.storage.format.records import SnapshotFile
from varvite.storage.transfer.slice_reader import read_slice

if TYPE_CHECKING:
    from collections.abc import Collection

    from varvite.storage.format.records import ObjectSlice, Savepoint
    from varvite.storage.object_stores.contract import ObjectStore


class Damage(NamedTuple):
    """What is wrong with a savepoint."""

    object_name: str
    problem: str


def damage_of(store: ObjectStore, savepoint: Savepoint) -> Damage | None:
    """Check a canonical savepoint that is at a location of its own; None if it is whole.

    Storage errors that may pass (`RetryableError`) are raised.
    """
    try:
        check_savepoint(ChainReader(store, savepoint.commit.job_id), savepoint, ())
    except (CorruptDataError, IncompatibleError, MissingObjectError) as error:
        named = error.context.get("object_name", layout.savepoint(savepoint.name))
        return Damage(str(named), error.message)
    return None


def check_savepoint(chain: ChainReader, savepoint: Savepoint, checked: Collection[ObjectSlice | str]) -> None:
    """Read everything that the savepoint needs.

    Args:
        chain: Of the job that it is in.
        savepoint: Which one.
        checked: Slices, and names of whole files, that were read already.

    Raises `VarviteError` that names the first object that is gone or damaged.
    """
    store = chain.store
    images = savepoint.images
    own = (*savepoint.files, *savepoint.tables)
    files = tuple(SnapshotFile("file", one.name, one.size_bytes, one.crc32) for one in own)
    if savepoint.format == "native":
        view = chain.load_line(savepoint.commit.link, savepoint.commit.max_parallelism).view
        for ref in view.segments:
            if ref.data not in checked:
                decode_segments(read_slice(store, ref.data), ref.data.name)
        images = view.images
        files = tuple(file for tile in view.tiles for file in tile_files(store, tile))
    read_images(store, images)
    for file in files:
        if file.name not in checked:
            check_file(store, file)
