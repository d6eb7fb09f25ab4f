"""Spark's checkpoint location as a directory of objects: reads its progress, and sets it back. Thin I/O.

It needs no Spark: the location is opened like a storage. Files are moved to `_varvite/set-back-<n>/`, not deleted.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from varvite.changelog.chain.reader import in_parallel
from varvite.materializer.restore.batch_input import ReadOnce, input_identity
from varvite.materializer.restore.decision import SparkLocation
from varvite.materializer.restore.spark_files import query_id_of
from varvite.storage.errors import MissingObjectError

if TYPE_CHECKING:
    from varvite.storage.object_stores.contract import ObjectStore

_LOGS: Final = ("offsets", "commits")
_BATCH: Final = re.compile(r"(?:offsets|commits)/\.?(\d+)(?:\.crc)?")
"""A file of a log, or the checksum that Hadoop keeps beside it on a local disk."""


def read_location(store: ObjectStore) -> SparkLocation:
    """Read the location's progress. Raises `CorruptDataError`, `IncompatibleError` if a file does not parse."""
    try:
        query_id = query_id_of(store.get("metadata"), "metadata")
    except MissingObjectError:
        query_id = None
    planned = _batches(store, "offsets")
    files = ReadOnce(_Files(store))
    identities = in_parallel(lambda n: input_identity(files, n), planned)
    return SparkLocation(
        query_id=query_id,
        hashes={n: identity for n, identity in zip(planned, identities, strict=True) if identity is not None},
        acknowledged=frozenset(_batches(store, "commits")),
    )


class _Files:
    """The location's files."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def read(self, name: str) -> bytes | None:
        try:
            return self._store.get(name)
        except MissingObjectError:
            return None

    def list_names(self, name: str) -> list[str]:
        return [meta.name.rpartition("/")[2] for meta in self._store.list(f"{name}/")]

    def url(self, name: str) -> str:
        return f"{self._store.url}/{name}"


def set_back(store: ObjectStore, batch: int, number: int) -> tuple[str, ...]:
    """Make Spark forget every batch above `batch`; its query must not run.

    Args:
        store: Rooted at the location.
        batch: The last batch that stays.
        number: Number in the name of the directory that the files are moved to.

    Returns:
        The names that were moved. A second call continues an interrupted one.
    """
    moved: list[str] = []
    # The newest first, offsets last: an interrupted call leaves a location that Spark can read.
    for log in reversed(_LOGS):
        names = [(n, name) for name, n in _files(store, log) if n > batch]
        for _, name in sorted(names, reverse=True):
            store.put(f"_varvite/set-back-{number}/{name}", store.get(name))
            store.delete([name])
            moved.append(name)
    return tuple(moved)


def _batches(store: ObjectStore, log: str) -> list[int]:
    return [n for name, n in _files(store, log) if not name.endswith(".crc")]


def _files(store: ObjectStore, log: str) -> list[tuple[str, int]]:
    """Name and batch of the files of a log, checksums included."""
    matches = (_BATCH.fullmatch(meta.name) for meta in store.list(f"{log}/"))
    return [(match[0], int(match[1])) for match in matches if match]
