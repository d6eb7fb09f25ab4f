"""Counters of the driver for its jobs, in Prometheus's form."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.stores.manual_clock import ManualClock
from tests.workers.checkpoint_figures import checkpoint, commit, statistics
from varvite.spark_integration.driver.monitoring.gauges import operator_gauges
from varvite.spark_integration.driver.monitoring.metrics import JobMetrics
from varvite.storage.format.records import Link, Tile

JOB = "flights"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def metrics(clock: ManualClock) -> JobMetrics:
    made = JobMetrics(clock)
    made.started(JOB, 3)
    return made


def values(metrics: JobMetrics, name: str) -> dict[str, float]:
    """Label values but the job's, joined → value, of one sample name; read back as Prometheus reads it."""
    families = text_string_to_metric_families(generate_latest(metrics.registry).decode())
    return {
        ",".join(value for label, value in sample.labels.items() if label != "job"): sample.value
        for family in families
        for sample in family.samples
        if sample.name == name
    }


def test_flinks_metrics_of_uploads_are_summed_over_the_summaries(metrics: JobMetrics) -> None:
    for _ in range(2):
        metrics.acknowledged(JOB, checkpoint())
    assert values(metrics, "varvite_number_of_upload_requests_total") == {"first": 6, "second": 0}
    assert values(metrics, "varvite_number_of_upload_failures_total") == {"first": 2, "second": 0}
    assert values(metrics, "varvite_attempts_per_upload_sum") == {"first": 4}
    assert values(metrics, "varvite_attempts_per_upload_count") == {"first": 2}, "a failed upload has no last attempt"
    assert values(metrics, "varvite_total_attempts_per_upload_sum") == {"first": 12}
    assert values(metrics, "varvite_upload_latencies_seconds_sum") == {"first": pytest.approx(6.4)}
    assert values(metrics, "varvite_upload_sizes_bytes_sum") == {"first": 1_000}
    assert values(metrics, "varvite_upload_batch_sizes_sum") == {"": 2}, "one partition of each entry"
    assert values(metrics, "varvite_upload_queue_size") == {"first": 2, "second": 0}
    assert values(metrics, "varvite_upload_in_flight_bytes") == {"first": 700, "second": 0}


def test_flinks_metrics_of_log_and_base(metrics: JobMetrics) -> None:
    metrics.acknowledged(JOB, checkpoint())
    assert values(metrics, "varvite_last_full_size_of_non_materialization_bytes") == {"first": 640, "second": 0}
    assert values(metrics, "varvite_last_inc_size_of_non_materialization_bytes") == {"first": 540, "second": 0}
    assert values(metrics, "varvite_last_full_size_of_materialization_bytes") == {"first": 3_000, "second": 60}
    assert values(metrics, "varvite_last_inc_size_of_materialization_bytes") == {"first": 2_400, "second": 0}
    assert values(metrics, "varvite_log_batches") == {"first": 2, "second": 0}
    assert values(metrics, "varvite_base_seq") == {"first": 5, "second": 0}


def test_a_base_whose_size_is_not_known_is_not_shown_as_empty(metrics: JobMetrics) -> None:
    metrics.acknowledged(JOB, checkpoint(base_sizes={}))
    assert values(metrics, "varvite_last_full_size_of_materialization_bytes") == {"second": 60}


def test_times_of_a_batch_and_of_its_workers(metrics: JobMetrics) -> None:
    metrics.acknowledged(JOB, checkpoint())
    assert values(metrics, "varvite_acknowledge_seconds_sum") == {"": 0.004}
    assert values(metrics, "varvite_batch_seconds_sum") == {"": 0.11}
    assert values(metrics, "varvite_batch_attempts_total") == {"": 2}
    assert values(metrics, "varvite_worker_phase_seconds_total") == {
        "first,process": pytest.approx(0.061), "first,restore": pytest.approx(0.002),
        "second,process": pytest.approx(0.03), "second,restore": pytest.approx(0.001),
    }  # fmt: skip
    assert values(metrics, "varvite_slowest_worker_seconds")["first,process"] == 0.031


def test_restores_are_told_from_ways_that_read_nothing(metrics: JobMetrics) -> None:
    metrics.acknowledged(JOB, checkpoint())
    assert values(metrics, "varvite_restored_partitions_total") == {
        "restored,first": 1, "confirmed,first": 1, "confirmed,second": 1,
    }  # fmt: skip
    assert values(metrics, "varvite_restore_seconds_count") == {"first": 1}
    assert values(metrics, "varvite_restored_log_segments_total") == {"first": 4, "second": 0}
    assert values(metrics, "varvite_restored_log_bytes_total") == {"first": 640, "second": 0}


def test_a_size_is_shown_only_if_every_partition_knows_it() -> None:
    first, second = operator_gauges(checkpoint()).values()
    assert (first.rows, first.state_bytes) == (10, None)
    assert (second.rows, second.state_bytes) == (None, None)


def test_adopted_snapshots_are_counted_once(metrics: JobMetrics) -> None:
    one = checkpoint()
    for _ in range(2):
        metrics.acknowledged(JOB, one)
    assert values(metrics, "varvite_adopted_snapshots_total") == {}, "what a run begins with it has not adopted"
    newer = Tile(operator="first", low=0, high=4, at=Link(8, "eight"), snapshot=3)
    for _ in range(2):
        metrics.acknowledged(JOB, checkpoint(tiles=(newer, *one.view.tiles[1:])))
    assert values(metrics, "varvite_adopted_snapshots_total") == {"first": 1}


def test_the_newest_checkpoint_is_shown_with_its_age(metrics: JobMetrics, clock: ManualClock) -> None:
    assert values(metrics, "varvite_checkpoint_age_seconds") == {}
    metrics.acknowledged(JOB, checkpoint())
    clock.advance(5)
    metrics.gauges.batch_began(JOB)
    clock.advance(2)
    shown = {name: values(metrics, f"varvite_{name}")[""] for name in (
        "checkpoint_seq", "checkpoint_batch", "retained_from_seq", "checkpoint_age_seconds", "watermark_ms", "epoch",
        "progress_in_chain",
        "batch_running_seconds", "checkpoints_total",
    )}  # fmt: skip
    assert shown == {
        "checkpoint_seq": 9, "checkpoint_batch": 7, "retained_from_seq": 3, "checkpoint_age_seconds": 7,
        "progress_in_chain": 0,
        "watermark_ms": 1234, "epoch": 3, "batch_running_seconds": 2, "checkpoints_total": 1,
    }  # fmt: skip
    metrics.gauges.batch_ended(JOB)
    assert values(metrics, "varvite_batch_running_seconds") == {"": 0}


def test_what_the_job_retains_is_not_what_its_retained_checkpoints_need(metrics: JobMetrics) -> None:
    """`keep_from` may be far below, as long as an old pack is named."""
    metrics.acknowledged(JOB, replace(checkpoint(), commit=commit(retained_from=7)))
    assert values(metrics, "varvite_retained_from_seq") == {"": 7}


def test_a_job_that_has_ended_leaves_counters_and_no_gauges(metrics: JobMetrics) -> None:
    metrics.acknowledged(JOB, checkpoint())
    metrics.ended(JOB, 2)
    assert values(metrics, "varvite_epoch") == {"": 3}, "the end of an older run is nothing to the newer one"
    metrics.ended(JOB, 3)
    assert values(metrics, "varvite_epoch") == {}
    assert values(metrics, "varvite_log_batches") == {}
    assert values(metrics, "varvite_checkpoints_total") == {"": 1}


def test_a_job_without_operators_has_metrics_too(metrics: JobMetrics) -> None:
    bare = checkpoint(commit=commit(operators=(), parts=(), watermark_ms=None), summaries=(), base_sizes={})
    metrics.acknowledged(JOB, replace(bare, statistics=statistics(rows_in=0)))
    assert values(metrics, "varvite_checkpoints_total") == {"": 1}
    assert values(metrics, "varvite_watermark_ms") == {}
