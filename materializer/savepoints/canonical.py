"""Writes a canonical savepoint: all rows of all states of a checkpoint as Parquet files, and a manifest.

Images of non-keyed state are copied unchanged, because an import reads them; their rows are written as Parquet besides.

The job may run meanwhile: a hold keeps the objects that the copy reads. Files that a crash leaves have no savepoint of
their token once the hold is deleted, and a collector finds them.

Invariants: I1 (the manifest is written when every file is durable), I7 (the hold has the savepoint's token before the
first file is written, and is deleted after the manifest is written).
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import msgspec

from varvite.changelog.chain.tiles import key_range
from varvite.changelog.retention.savepoints import create_native, own_files, publish_savepoint, release_savepoint
from varvite.materializer.savepoints.operator_tables import write_tables
from varvite.materializer.savepoints.state_files import write_range
from varvite.storage.errors import InvalidRequestError
from varvite.storage.format import layout
from varvite.storage.format.records import ObjectSlice
from varvite.storage.transfer.slice_reader import read_slice
from varvite.storage.transfer.upload import Uploader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from varvite.changelog.chain.reader import ChainReader
    from varvite.changelog.chain.view import LineView
    from varvite.materializer.savepoints.state_files import F, WrittenFile
    from varvite.storage.clock import Clock, TokenSource
    from varvite.storage.format.records import Commit, ImageRef, Savepoint, StateFile, TableFile
    from varvite.storage.object_stores.contract import ObjectStore


class CanonicalSavepoints:
    """Writes canonical savepoints of one job.

    Args:
        reader: Reader of the job's chain.
        job: Name of the job, for people.
        target: Store to write to: the job's own, or any other.
        scratch: An empty directory.
        clock: For uploads and the creation time.
        tokens: For the savepoints' tokens.
    """

    def __init__(
        self, reader: ChainReader, job: str, target: ObjectStore, scratch: Path, *, clock: Clock, tokens: TokenSource
    ) -> None:
        self._reader = reader
        self._job = job
        self._target = target
        self._scratch = scratch
        self._clock = clock
        self._tokens = tokens

    def create(
        self, commit: Commit, name: str, holder: str, on_range: Callable[[int, int], None] = lambda _number, _all: None
    ) -> Savepoint:
        """Copy the state of a commit.

        Args:
            commit: The commit.
            name: Name of the savepoint, checked by the caller.
            holder: The savepoint's holder, for people.
            on_range: Called after each range of key groups with the number of finished ranges and of all.

        Raises:
            InvalidRequestError: there is a savepoint of that name.
            VarviteError: the state cannot be read, or the target cannot be written.
        """
        hold = create_native(
            self._reader,
            commit,
            layout.hold_name(self._tokens.token()),
            job=self._job,
            holder=f"savepoint {name}",
            clock=self._clock,
            tokens=self._tokens,
        )
        try:
            copied = self._write(msgspec.structs.replace(hold, format="canonical", objects=()), commit, on_range)
            now_ms = self._clock.now_ms()
            savepoint = msgspec.structs.replace(copied, name=name, holder=holder, created_ms=now_ms)
            self._publish(savepoint)
        finally:
            release_savepoint(self._reader.store, hold)
        return savepoint

    def _publish(self, savepoint: Savepoint) -> None:
        try:
            publish_savepoint(self._target, savepoint, self._clock)
        except InvalidRequestError:
            self._target.delete(own_files(savepoint))
            raise

    def _write(self, savepoint: Savepoint, commit: Commit, on_range: Callable[[int, int], None]) -> Savepoint:
        """Write the savepoint's files; they are durable when this returns."""
        view = self._reader.load_line(commit.link, commit.max_parallelism).view
        ranges = [
            (operator, range(*key_range(partition, operator.parallelism, commit.max_parallelism)))
            for operator in commit.operators
            for partition in range(operator.parallelism)
        ]
        state_files: list[StateFile] = []
        with Uploader(self._target, self._clock) as uploader:
            for number, (operator, key_groups) in enumerate(ranges, 1):
                scratch = self._scratch / f"{number}"
                scratch.mkdir()
                token, store = savepoint.token, self._reader.store
                files = write_range(view, operator, key_groups, token, store, scratch) if key_groups else ()
                state_files += _upload(files, uploader)
                shutil.rmtree(scratch)
                on_range(number, len(ranges))
            images = self._write_images(view.images, savepoint.token, uploader)
            tables = tuple(self._write_tables(view, commit, savepoint.token, uploader))
        return msgspec.structs.replace(savepoint, files=tuple(state_files), images=images, tables=tables)

    def _write_tables(self, view: LineView, commit: Commit, token: str, uploader: Uploader) -> Iterator[TableFile]:
        for operator in commit.operators:
            images = view.images_for(operator.uid)
            tables = write_tables(operator.uid, images, token, self._reader.store, self._scratch)
            yield from _upload(tables, uploader)

    def _write_images(self, images: tuple[ImageRef, ...], token: str, uploader: Uploader) -> tuple[ImageRef, ...]:
        copies: dict[ObjectSlice, ObjectSlice] = {}
        for index, place in enumerate(dict.fromkeys(image.data for image in images)):
            name = layout.savepoint_image(token, index)
            uploader.submit_bytes(name, read_slice(self._reader.store, place)).result()
            copies[place] = ObjectSlice(name, 0, place.length, place.crc32)
        return tuple(msgspec.structs.replace(image, data=copies[image.data]) for image in images)


def _upload(files: Iterable[WrittenFile[F]], uploader: Uploader) -> Iterator[F]:
    """Upload files one by one; yields each record once its file is durable. Only then is the next file written."""
    for file in files:
        uploader.submit_file(file.record.name, file.path).result()
        yield file.record
