"""The checkpoint of a partition with the changelog off: a snapshot of its whole state.

It is uploaded before the batch is acknowledged.

Invariants: I1 (every file is durable when the summary names it), I7 (only files that the base's tile names are reused;
old ones are uploaded anew, so that they do not hold the chain back).
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

from varvite.changelog.commit.batch_result import files_to_rewrite
from varvite.changelog.restore.files import describe_snapshot
from varvite.changelog.segments.batch import BatchTime
from varvite.storage.fail_point import fail_point
from varvite.storage.format import layout
from varvite.storage.format.records import SnapshotFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from pathlib import Path

    from varvite.changelog.restore.files import FileChecksums, LocalFile
    from varvite.changelog.working_stores.contract import WorkingStore
    from varvite.spark_integration.messages.protocol import TaskRequest
    from varvite.storage.format.records import Tile
    from varvite.storage.transfer.upload import Uploader

FILE_AGE_MAX: Final = 1000
"""Commits after which a file that is still part of the state is uploaded anew."""


class CheckpointSnapshot:
    """Writes and uploads the snapshots of one partition."""

    def __init__(self, uploader: Callable[[], Uploader], checksums: FileChecksums) -> None:
        """`uploader` makes one for each snapshot."""
        self._uploader = uploader
        self._checksums = checksums

    def write(
        self, state: WorkingStore, directory: Path, task: TaskRequest, base: Tile | None
    ) -> tuple[SnapshotFile, ...]:
        """Snapshot `state`, whose version is the batch's; files go through a directory beside `directory`.

        Args:
            state: The folded state.
            directory: Of the working store, where it has one.
            task: The attempt.
            base: The tile of the base, whose files need not be uploaded again; None if there is none.
        """
        scratch = directory.with_name(f"{directory.name}.checkpoint")
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.parent.mkdir(parents=True, exist_ok=True)
        try:
            state.write_snapshot(scratch, BatchTime(task.batch.time_ms, task.batch.watermark_ms))
            return self._upload(describe_snapshot(scratch, self._checksums), task, base)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _upload(self, local: tuple[LocalFile, ...], task: TaskRequest, base: Tile | None) -> tuple[SnapshotFile, ...]:
        batch = task.batch
        slot, operator = batch.slot, batch.operator.operator
        old = set(files_to_rewrite(base, slot, FILE_AGE_MAX)) if base else set[str]()
        reusable = {(f.file, f.size_bytes, f.crc32): f for f in base.files if f.file not in old} if base else {}
        files: list[SnapshotFile] = []
        fail_point("worker.before_segment_upload")
        with self._uploader() as uploader:
            uploads: list[Future[None]] = []
            for index, file in enumerate(local):
                uploaded = reusable.get((file.file, file.size_bytes, file.crc32))
                if uploaded is None:
                    name = layout.segment(slot, operator, task.partition, task.tag, index)
                    uploads.append(uploader.submit_file(name, file.path))
                    uploaded = SnapshotFile(file.file, name, file.size_bytes, file.crc32)
                files.append(uploaded)
            for upload in uploads:
                upload.result()
        fail_point("worker.after_segment_upload")
        return tuple(files)
