"""Counters of the materializer, in Prometheus's form."""

from __future__ import annotations

import msgspec
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from varvite.materializer.monitoring.events import (
    Adopted,
    Collected,
    Failed,
    FoldFigures,
    JobFailed,
    LogSize,
    Materialized,
    Skip,
)
from varvite.materializer.monitoring.metrics import MaterializerMetrics
from varvite.materializer.monitoring.range_status import JobStatus, RangeStatus
from varvite.materializer.ranges import LogLength, RangeKey
from varvite.storage.transfer.upload import UploadOutcome

KEY = RangeKey("id", "per-plane", 0, 64)
OTHER = RangeKey("id", "per-plane", 64, 128)
LABELS = ("flights", "0-63", "per-plane")
"""Job, key groups, operator: labels are written in order of their names."""
EVENT = {"job": "flights", "time_ms": 0}
OF_RANGE = {**EVENT, "operator": "per-plane", "low": 0, "high": 64}
NOTHING = LogSize(batches=0, segments=0, bytes=0)


def status(key: RangeKey = KEY, **changed: object) -> RangeStatus:
    fields = {
        "key": key, "base_seq": 5, "base_bytes": 1_000, "log": LogLength(3, 2, 100), "newest_bytes": 40,
        "log_age_ms": 7_000, "recovery_ms": 1_500,
    }  # fmt: skip
    return RangeStatus(**{**fields, **changed})  # type: ignore[arg-type]


def job(*ranges: RangeStatus, **changed: object) -> JobStatus:
    return JobStatus(**{"job": "flights", "seq": 9, "batch": 7, "retained_from": 3, "ranges": ranges, **changed})  # type: ignore[arg-type]


def values(metrics: MaterializerMetrics, name: str) -> dict[tuple[str, ...], float]:
    """Label values → value, of one sample name; the exposition is read back as Prometheus reads it."""
    families = text_string_to_metric_families(generate_latest(metrics.registry).decode())
    return {tuple(s.labels.values()): s.value for f in families for s in f.samples if s.name == name}


def value(metrics: MaterializerMetrics, name: str) -> float:
    [found] = values(metrics, name).values()
    return found


def materialized(**changed: object) -> Materialized:
    fields = {
        **OF_RANGE, "trigger": "interval", "snapshot": 1, "base_seq": 0, "at_seq": 5, "at_batch": 4, "batches": 5,
        "mutations": 9, "uploaded_files": 2, "uploaded_bytes": 300, "reused_files": 1, "reused_bytes": 700,
        "log_before": NOTHING, "log_after": NOTHING, "duration_ms": 85,
    }  # fmt: skip
    return msgspec.convert({**fields, **changed}, Materialized)


def test_flinks_metrics_of_materializations() -> None:
    metrics = MaterializerMetrics()
    metrics.show(job(status()))
    assert value(metrics, "varvite_last_duration_of_materialization_ms") == -1
    assert value(metrics, "varvite_last_full_size_of_materialization_bytes") == 1_000, "what the base has"
    assert values(metrics, "varvite_last_inc_size_of_materialization_bytes") == {}
    metrics.started("flights", KEY)
    metrics.report(materialized())
    metrics.started("flights", KEY)
    failed = {"error": "x", "error_type": "X", "object_name": None, "failures": 1, "failing": False, "retry_ms": 1}
    metrics.report(Failed(**OF_RANGE, **failed))  # type: ignore[arg-type]
    labels = LABELS
    assert values(metrics, "varvite_started_materialization_total") == {labels: 2}
    assert values(metrics, "varvite_completed_materialization_total") == {labels: 1}
    assert values(metrics, "varvite_failed_materialization_total") == {labels: 1}
    assert values(metrics, "varvite_last_duration_of_materialization_ms") == {labels: 85}
    assert values(metrics, "varvite_last_full_size_of_materialization_bytes") == {labels: 1_000}
    assert values(metrics, "varvite_last_inc_size_of_materialization_bytes") == {labels: 300}
    assert values(metrics, "varvite_last_full_size_of_non_materialization_bytes") == {labels: 100}
    assert values(metrics, "varvite_last_inc_size_of_non_materialization_bytes") == {labels: 40}


def test_flinks_metrics_of_uploads() -> None:
    metrics = MaterializerMetrics()
    for size in (100, 5_000, 70_000):
        metrics.queued(size)
    assert value(metrics, "varvite_upload_queue_size") == 3
    assert value(metrics, "varvite_upload_in_flight_bytes") == 75_100
    metrics.ended(UploadOutcome(100, True, 1, 1, 0.02))
    metrics.ended(UploadOutcome(5_000, True, 2, 3, 0.3))
    metrics.ended(UploadOutcome(70_000, False, 0, 4, 9.0))
    assert value(metrics, "varvite_upload_queue_size") == value(metrics, "varvite_upload_in_flight_bytes") == 0
    assert value(metrics, "varvite_number_of_upload_requests_total") == 3
    assert value(metrics, "varvite_number_of_upload_failures_total") == 1
    assert value(metrics, "varvite_attempts_per_upload_sum") == 3
    assert value(metrics, "varvite_total_attempts_per_upload_sum") == 8
    assert value(metrics, "varvite_upload_sizes_bytes_sum") == 5_100
    assert value(metrics, "varvite_upload_latencies_seconds_count") == 3


def test_what_flink_lacks() -> None:
    metrics = MaterializerMetrics()
    metrics.show(job(status(failures=4, failing=True, overdue="900 log batches")))
    metrics.skipped("flights", KEY, Skip.AWAITING_ADOPTION)
    metrics.replaying("flights", KEY, 0.25)
    metrics.folded("flights", KEY, FoldFigures(False, 9, 100, 0.1, 0, 0.0))
    metrics.folded("flights", KEY, FoldFigures(True, 1, 50, 0.1, 1_000, 0.1))
    metrics.report(Adopted(**OF_RANGE, snapshot=1, at_seq=5, log=NOTHING))  # type: ignore[arg-type]
    metrics.report(Collected(**EVENT, deleted=6, entries=3, segments=2, snapshot_files=1, cut=3, duration_ms=1))  # type: ignore[arg-type]
    trouble = {"step": "heartbeat", "error": "x", "error_type": "X", "object_name": None, "failures": 1, "retry_ms": 1}
    metrics.report(JobFailed(**EVENT, **trouble))  # type: ignore[arg-type]
    assert values(metrics, "varvite_skipped_materialization_total") == {(*LABELS, "awaiting_adoption"): 1}
    assert value(metrics, "varvite_replay_progress_ratio") == 0.25
    metrics.replaying("flights", KEY, None)
    assert values(metrics, "varvite_replay_progress_ratio") == {}
    assert [value(metrics, f"varvite_local_copy_{kind}_total") for kind in ("hits", "misses")] == [1, 1]
    assert [value(metrics, f"varvite_replayed_{kind}_total") for kind in ("mutations", "bytes")] == [10, 150]
    gauges = ("log_batches", "log_segments", "log_age_seconds", "estimated_recovery_seconds", "consecutive_failures")
    assert [value(metrics, f"varvite_{name}") for name in gauges] == [3, 2, 7, 1.5, 4]
    assert value(metrics, "varvite_failing") == value(metrics, "varvite_overdue") == 1
    assert value(metrics, "varvite_adopted_snapshots_total") == 1
    assert values(metrics, "varvite_collected_objects_total") == {
        ("flights", "entries"): 3, ("flights", "segments"): 2, ("flights", "snapshot_files"): 1
    }  # fmt: skip
    assert values(metrics, "varvite_job_failures_total") == {("flights", "heartbeat"): 1}
    assert [value(metrics, f"varvite_{name}") for name in ("checkpoint_seq", "checkpoint_batch")] == [9, 7]


def test_a_range_that_is_gone_leaves_no_gauge() -> None:
    metrics = MaterializerMetrics()
    metrics.show(job(status(), status(OTHER)))
    metrics.report(materialized())
    assert len(values(metrics, "varvite_log_batches")) == 2
    metrics.show(job(status(OTHER)))
    for name in ("varvite_log_batches", "varvite_last_duration_of_materialization_ms"):
        assert list(values(metrics, name)) == [("flights", "64-127", "per-plane")]
    metrics.show(job(status(), status(OTHER)))
    assert values(metrics, "varvite_last_duration_of_materialization_ms")[LABELS] == -1


def test_a_base_whose_size_is_not_known_is_not_shown_as_empty() -> None:
    metrics = MaterializerMetrics()
    metrics.show(job(status(base_bytes=None)))
    assert values(metrics, "varvite_base_bytes") == {}
    assert values(metrics, "varvite_last_full_size_of_materialization_bytes") == {}


@pytest.mark.parametrize(("trouble", "expected"), [("", 1.0), ("no answer", 0.0)])
def test_a_job_that_cannot_be_followed_is_seen(trouble: str, expected: float) -> None:
    metrics = MaterializerMetrics()
    metrics.show(job(trouble=trouble))
    assert value(metrics, "varvite_job_followed") == expected
