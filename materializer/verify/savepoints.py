"""Checks that a savepoint is complete and undamaged: a part of `varvite verify`.

Checked invariants: I7 (every object that a savepoint names exists), I8.
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
    """The first damaged object of a savepoint."""

    object_name: str
    problem: str


def damage_of(store: ObjectStore, savepoint: Savepoint) -> Damage | None:
    """Check a canonical savepoint at a location of its own; None if it is undamaged.

    Transient storage errors (`RetryableError`) are raised.
    """
    try:
        check_savepoint(ChainReader(store, savepoint.commit.job_id), savepoint, ())
    except (CorruptDataError, IncompatibleError, MissingObjectError) as error:
        name = error.context.get("object_name", layout.savepoint(savepoint.name))
        return Damage(str(name), error.message)
    return None


def check_savepoint(chain: ChainReader, savepoint: Savepoint, checked: Collection[ObjectSlice | str]) -> None:
    """Read everything that the savepoint needs.

    Args:
        chain: The chain of its job.
        savepoint: The savepoint.
        checked: Slices, and names of whole files, that were read already.

    Raises `VarviteError` that names the first object that is missing or damaged.
    """
    store = chain.store
    images = savepoint.images
    parquet_files = (*savepoint.files, *savepoint.tables)
    files = tuple(SnapshotFile("file", file.name, file.size_bytes, file.crc32) for file in parquet_files)
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
