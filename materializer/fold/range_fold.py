"""Materializing one range: fold, checkpoint, upload what is new, publish.

```
local copy --fold--> final commit --RocksDB checkpoint--> files --upload--> descriptor --claim--> published
```
An upload that is interrupted, fails, or loses the race for the number is garbage, which the collector finds.

Invariants: I1 (the descriptor is claimed only after every file that it names is durable), I7 (file names carry number
and uploader, files are shared only with the tile's own snapshot), I8 (size and CRC-32 of every file are in the
descriptor).
"""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from varvite.changelog.chain.reader import in_parallel
from varvite.changelog.commit.adopt_decision import TileSnapshot
from varvite.changelog.restore.files import FileChecksums, LocalFile, describe_snapshot
from varvite.changelog.retention.snapshots import Publication, SnapshotReader, list_snapshots, publish
from varvite.changelog.segments.batch import BatchTime
from varvite.materializer.fold.local_copy import Folded, open_folded_copy
from varvite.materializer.fold.log_index import LogIndex
from varvite.materializer.fold.policy import early_part
from varvite.materializer.fold.publication import Publish, UploadPlan, awaited_of, decide_publication, plan_upload
from varvite.materializer.monitoring.events import FoldFigures, LogSize, Materialized, Skip
from varvite.storage.errors import CorruptDataError, DidNotHappenError, MissingObjectError
from varvite.storage.fail_point import fail_point
from varvite.storage.format import layout
from varvite.storage.format.records import SnapshotDescriptor, SnapshotFile
from varvite.storage.object_stores.contract import is_reusable
from varvite.storage.transfer.upload import Uploader

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
    from varvite.materializer.fold.chain_view import CommitView
    from varvite.materializer.fold.context import FoldContext
    from varvite.materializer.fold.plan import RangeWork
    from varvite.materializer.fold.policy import Trigger
    from varvite.materializer.ranges import LogLength, RangeKey
    from varvite.materializer.resources.interruptible_store import InterruptibleStore
    from varvite.storage.format.layout import SnapshotName

COMPACT_BYTES_MIN: Final = 1 << 20
"""Smallest files that are compacted: smaller ones are not worth it, and a file that stays is not uploaded again."""
ROWS_END: Final = b"\xff" * 16
"""Above every row: those begin with a key group, which is below 0xffff."""


class Outcome(NamedTuple):
    """The result of materializing a range."""

    awaited: SnapshotDescriptor | None
    """The snapshot that the job may now adopt: this one, or another that existed already or won the number."""
    event: Materialized | None
    """None if nothing was published."""
    skip: Skip | None = None
    """The reason not to publish one, if there was one."""
    figures: FoldFigures | None = None
    """Figures of the fold, if there was one."""


class RangeMaterializer:
    """Materializes the ranges of one job; different ranges may be materialized by different threads."""

    def __init__(self, job: str, job_id: str, store: InterruptibleStore, context: FoldContext) -> None:
        """`store` is rooted at `<root>/<job>`."""
        self._job = job
        self._job_id = job_id
        self._store = store
        self._context = context
        self._checksums: dict[RangeKey, FileChecksums] = {}
        self._trusted: set[RangeKey] = set()
        """Ranges whose local copy this process has written or read through."""
        self._reusable: dict[RangeKey, frozenset[str]] = {}
        """Names of files that the next snapshot of the range may name."""

    def materialize(self, work: RangeWork, final: CommitView, trigger: Trigger) -> Outcome:
        """Publish a snapshot of the range at the final commit, unless there is no need.

        Raises:
            DidNotHappenError: the upload took so long that a collector aborted its number.
            CorruptDataError: the log, the base or a descriptor cannot be read; names the object.
            VarviteError: the storage failed.
        """
        started_ms = self._context.now_ms()
        numbers, snapshots = self._read_published(work)
        awaited = awaited_of(work.view, snapshots, self._names_of_tile(work)) if snapshots else None
        decision = decide_publication(work.view, numbers, awaited, self._context.config.log_batches)
        if isinstance(decision, Skip):
            return Outcome(awaited, None, decision)
        fold_store = self._store.with_crash_point("materializer.during_fold")
        now = BatchTime(final.commit.time_ms, final.commit.watermark_ms)
        metrics, key = self._context.metrics, work.key

        def show_progress(part: float) -> None:
            metrics.replaying(self._job, key, part)

        try:
            with open_folded_copy(work, final.view, now, fold_store, self._context, show_progress) as fold:
                if not fold.restored and key not in self._trusted:
                    read_all_rows(fold.store)
                self._trusted.add(key)
                figures = _figures(work, final, fold)
                descriptor, plan = self._upload(work, fold, decision)
        finally:
            metrics.replaying(self._job, key, None)
        fail_point("materializer.before_publish")
        publication = publish(self._store, descriptor, self._context.clock)
        fail_point("materializer.after_publish")
        if not publication.won:
            return Outcome(self._check_winner(descriptor, publication), None, figures=figures)
        event = self._event(work, final, fold, descriptor, plan, trigger=trigger, started_ms=started_ms)
        return Outcome(descriptor, event, figures=figures)

    def _check_winner(self, lost: SnapshotDescriptor, publication: Publication) -> SnapshotDescriptor | None:
        """The snapshot that has the number instead of `lost`. Raises `DidNotHappenError` if the upload was aborted."""
        winner = publication.other
        if winner is not None and winner.status == "aborted":
            raise DidNotHappenError(
                f"the upload of snapshot {lost.number} of key groups {lost.low}-{lost.high} took longer than the grace "
                "of unpublished uploads and was aborted; it is retried, or give a longer grace",
                job=self._job,
                operator=lost.operator,
            )
        return winner

    def _event(
        self,
        work: RangeWork,
        final: CommitView,
        fold: Folded,
        descriptor: SnapshotDescriptor,
        plan: UploadPlan,
        *,
        trigger: Trigger,
        started_ms: int,
    ) -> Materialized:
        return Materialized(
            job=self._job,
            time_ms=self._context.clock.now_ms(),
            operator=work.key.operator,
            low=work.key.low,
            high=work.key.high,
            trigger=str(trigger),
            snapshot=descriptor.number,
            base_seq=descriptor.base.seq,
            at_seq=descriptor.at.seq,
            at_batch=final.commit.batch,
            batches=sum(1 for link in final.view.line if link.seq > fold.since.seq),
            mutations=fold.mutations,
            uploaded_files=len(plan.missing),
            uploaded_bytes=sum(file.size_bytes for file in plan.missing),
            reused_files=len(plan.reused),
            reused_bytes=sum(file.size_bytes for file in plan.reused),
            log_before=log_size(work.log),
            log_after=log_size(_log_after(work, final, descriptor.at.seq)),
            duration_ms=self._context.now_ms() - started_ms,
        )

    def _read_published(self, work: RangeWork) -> tuple[list[int], list[SnapshotDescriptor]]:
        """Read the numbers of the range's snapshots, and the descriptors of those above the floor."""
        key, reader = work.key, SnapshotReader(self._store, self._job_id)
        listed = list_snapshots(self._store, key.operator)
        numbers = [n.number for n in listed if (n.low, n.high) == (key.low, key.high)]
        above = [n for n in listed if (n.low, n.high) == (key.low, key.high) and n.number > work.view.floor]
        damaged: list[SnapshotName] = []
        # A missing descriptor was collected since it was listed: the floor is above it now. A damaged one can never be
        # adopted, and the next one has a higher number.
        descriptors = reader.readable(above, damaged)
        if damaged:
            self._context.metrics.passed_over(self._job, key, len(damaged))
        return numbers, list(descriptors)

    def _upload(self, work: RangeWork, fold: Folded, decision: Publish) -> tuple[SnapshotDescriptor, UploadPlan]:
        """Checkpoint and upload; all files that the descriptor names are durable when this returns."""
        directory = self._context.workspace.scratch("snapshot", work.key)
        try:
            dead = (self._context.config.space_ratio - 1) * early_part(work.key, work.share)
            if fold.store.compact(1 + dead, COMPACT_BYTES_MIN):
                self._context.metrics.compacted(self._job, work.key)
            fold.store.write_snapshot(directory)
            checksums = self._checksums.setdefault(work.key, FileChecksums())
            local = describe_snapshot(directory, checksums)
            descriptor, plan = self._plan(work, fold, decision, local)
            self._upload_files(plan.missing, {file.file: file.path for file in local})
            self._reusable[work.key] = frozenset(file.name for file in descriptor.files)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        return descriptor, plan

    def _plan(
        self, work: RangeWork, fold: Folded, decision: Publish, local: Sequence[LocalFile]
    ) -> tuple[SnapshotDescriptor, UploadPlan]:
        key, uid = work.key, self._context.tokens.token()

        def object_name(file: LocalFile) -> str:
            return layout.snapshot_file(key.operator, key.low, key.high, decision.number, uid, file.file)

        files = tuple(SnapshotFile(f.file, object_name(f), f.size_bytes, f.crc32) for f in local)
        plan = plan_upload(files, self._files_of_tile(work))
        descriptor = SnapshotDescriptor(
            status="published",
            job_id=self._job_id,
            token=self._context.tokens.token(),
            uid=uid,
            operator=key.operator,
            low=key.low,
            high=key.high,
            number=decision.number,
            at=work.view.target,
            base=work.view.tile.at,
            files=tuple(sorted((*plan.reused, *plan.missing), key=lambda f: f.file)),
            states=fold.store.schemas,
            mutations=fold.mutations,
            created_ms=self._context.clock.now_ms(),
        )
        return descriptor, plan

    def _files_of_tile(self, work: RangeWork) -> tuple[SnapshotFile, ...]:
        """The files of the tile's snapshot that exist and, if encrypted, have the key for new objects.

        Others are uploaded anew, which repairs the base and lets earlier keys be retired.
        """
        descriptor = self._descriptor_of_tile(work)
        if descriptor is None:
            return ()
        prefixes = sorted({file.name.rsplit("/", 1)[0] + "/" for file in descriptor.files})
        stored = {(m.name, m.size_bytes) for prefix in prefixes for m in self._store.list(prefix)}
        existing = [file for file in descriptor.files if (file.name, file.size_bytes) in stored]
        checked = self._reusable.get(work.key, frozenset())
        unchecked = [file.name for file in existing if file.name not in checked]
        answers = in_parallel(partial(is_reusable, self._store), unchecked)
        reusable = checked.union(name for name, is_good in zip(unchecked, answers, strict=True) if is_good)
        return tuple(file for file in existing if file.name in reusable)

    def _names_of_tile(self, work: RangeWork) -> frozenset[str]:
        """The names in the descriptor of the tile's snapshot, whether the objects exist or not."""
        descriptor = self._descriptor_of_tile(work)
        return frozenset() if descriptor is None else frozenset(file.name for file in descriptor.files)

    def _descriptor_of_tile(self, work: RangeWork) -> SnapshotDescriptor | None:
        """Read the descriptor of the tile's snapshot; None if the tile has none, or it is missing or damaged."""
        tile = work.view.tile
        if tile.snapshot is None:
            return None
        try:
            reader = SnapshotReader(self._store, self._job_id)
            return reader.read(TileSnapshot(tile.operator, tile.low, tile.high, tile.snapshot))
        except (CorruptDataError, MissingObjectError):
            return None

    def _upload_files(self, files: Sequence[SnapshotFile], paths: dict[str, Path]) -> None:
        store = self._store.with_crash_point("materializer.during_upload")
        futures: list[Future[None]] = []
        with Uploader(store, self._context.clock, observer=self._context.metrics) as uploader:
            try:
                for file in files:
                    if self._context.bandwidth is not None:
                        self._context.bandwidth.take(file.size_bytes)
                    futures.append(uploader.submit_file(file.name, paths[file.file]))
                for future in futures:
                    future.result()
            except BaseException:
                for future in futures:
                    future.cancel()
                raise


def _log_after(work: RangeWork, final: CommitView, seq: int) -> LogLength:
    key = work.key
    return LogIndex(final.view).after(key.operator, key.low, key.high, seq)


def _figures(work: RangeWork, final: CommitView, fold: Folded) -> FoldFigures:
    return FoldFigures(
        restored=fold.restored,
        mutations=fold.mutations,
        log_bytes=_log_after(work, final, fold.since.seq).size_bytes,
        fold_s=fold.fold_s,
        base_bytes=(work.base_bytes or 0) if fold.restored else 0,
        fetch_s=fold.fetch_s,
    )


def read_all_rows(store: RocksDBStore) -> None:
    """Read every row, so that RocksDB checks every block. Raises `CorruptDataError` if the local disk damaged one.

    Called once for a copy that an earlier process left: a damaged copy must not become the base, because the log that
    could repair it is then truncated. Rows that this process writes are checked by RocksDB when it compacts them.
    """
    for _ in store.scan(b"", ROWS_END):
        pass


def log_size(log: LogLength) -> LogSize:
    """A log's length as events show it."""
    return LogSize(batches=log.batches, segments=log.segments, bytes=log.size_bytes)
