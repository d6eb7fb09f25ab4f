"""A checkpoint of a job of two operators, as the driver's metrics see it."""

from __future__ import annotations

from typing import Any, Final

from tests.workers.summaries import grouped, summary
from varvite.changelog.chain.view import LineView
from varvite.changelog.working_stores.contract import StoreSize
from varvite.spark_integration.driver.monitoring.gauges import JobCheckpoint
from varvite.spark_integration.driver.monitoring.statistics import CheckpointStatistics
from varvite.spark_integration.driver.snapshot_watch import BaseSize
from varvite.spark_integration.messages.summary import Summary
from varvite.spark_integration.messages.worker_figures import LogRead, UploadFigures
from varvite.storage.format.layout import SnapshotName
from varvite.storage.format.records import (
    ORIGIN,
    BlobSlice,
    Commit,
    Link,
    ObjectSlice,
    OperatorLayout,
    PartitionCommit,
    SegmentRef,
    SnapshotFile,
    Tile,
)
from varvite.storage.transfer.upload import UploadOutcome

AT: Final = Link(9, "nine")
UPLOADS: Final = UploadFigures(
    3, 1, 2, 700, (UploadOutcome(500, True, 2, 2, 0.2), UploadOutcome(200, False, 0, 4, 3.0))
)


def statistics(**changed: Any) -> CheckpointStatistics:
    fields = {
        "batch": 7, "seq": 9, "rows_in": 30, "rows_out": 12, "mutations": 6, "ack_ms": 4.0, "operators_ms": 80.0,
        "sink_ms": 20.0, "batch_ms": 110.0, "entry_bytes": 900, "uploaded_bytes": 700, "objects_written": 3,
        "attempts": 2, "log_commits": 2,
    }  # fmt: skip
    return CheckpointStatistics(**{**fields, **changed})


def of_partition(operator: str, partition: int, **changed: Any) -> Summary:
    fields = {
        "operator": operator, "partition": partition, "low": 4 * partition, "high": 4 * partition + 4, "tag": "0" * 32,
        "slot": 9, "rows_in": 10, "rows_out": 4, "mutations": 2, "restored": "confirmed",
        "timings_ms": {"restore": 1.0, "process": 30.0 + partition}, "state_size": StoreSize(5, None),
    }  # fmt: skip
    return summary(**{**fields, **changed})


def commit(**changed: Any) -> Commit:
    fields = {
        "seq": 9, "token": "nine", "job_id": "id", "epoch": 1, "parent": Link(8, "eight"), "keep_from": 3, "batch": 7,
        "query_id": "q", "source_hash": "", "time_ms": 1, "watermark_ms": 1234, "max_parallelism": 8, "needs_from": 3,
        "full": Link(8, "eight"), "path": (),
        "operators": tuple(
            OperatorLayout(uid=uid, parallelism=2, key_type="1:int", changelog=True, backend="rocksdb")
            for uid in ("first", "second")
        ),
        "parts": (
            PartitionCommit(operator="first", partition=0, low=0, high=4, tag="a", inline=BlobSlice(0, 40, 0)),
            PartitionCommit(operator="first", partition=1, low=4, high=8, tag="b"),
        ),
    }  # fmt: skip
    return Commit(**{**fields, **changed})


def checkpoint(*, tiles: tuple[Tile, ...] | None = None, **changed: Any) -> JobCheckpoint:
    """`first` has a snapshot for each half and a log; `second` has nothing but its empty base."""
    tiles = tiles or (
        Tile(operator="first", low=0, high=4, at=Link(5, "five"), snapshot=1),
        Tile(operator="first", low=4, high=8, at=Link(6, "six"), snapshot=2),
        Tile(operator="second", low=0, high=8, at=ORIGIN, files=(SnapshotFile("1.sst", "x", 60, 0),)),
    )
    segments = (
        SegmentRef("first", 0, 8, 7, 7, ObjectSlice("chain/7", 0, 100, 0)),
        SegmentRef("first", 0, 4, 9, 9, ObjectSlice("chain/9", 0, 40, 0)),
        SegmentRef("first", 4, 8, 9, 9, ObjectSlice("seg/9", 0, 500, 0)),
    )
    fields = {
        "statistics": statistics(),
        "summaries": grouped([
            of_partition("first", 0, uploads=UPLOADS, restored="restored", log_read=LogRead(4, 640)),
            of_partition("first", 1),
            of_partition("second", 0, state_size=None),
        ]),
        "commit": commit(),
        "view": LineView(max_parallelism=8, base=AT, full=Link(8, "eight"), tiles=tiles, segments=segments),
        "base_sizes": {
            SnapshotName("first", 0, 4, 1): BaseSize(1_000, 400),
            SnapshotName("first", 4, 8, 2): BaseSize(2_000, 2_000),
        },
    }  # fmt: skip
    return JobCheckpoint(**{**fields, **changed})
