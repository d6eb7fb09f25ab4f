"""Percentiles of checkpoint figures, and what a checkpoint has written."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from tests.jobs.chain_job import results_of
from tests.stores.manual_clock import ManualClock
from tests.workers.checkpoint_figures import of_partition
from varvite.changelog.commit.base_decision import SparkProgress
from varvite.changelog.commit.batch_result import BatchFacts
from varvite.changelog.commit.run import JobRun
from varvite.changelog.commit.state import CommitPolicy
from varvite.spark_integration.driver.monitoring.statistics import BatchTimes, percentile, statistics_of
from varvite.spark_integration.messages.operator_summaries import OperatorSummaries
from varvite.storage.clock import SystemTokens
from varvite.storage.format import layout
from varvite.storage.format.records import OperatorLayout
from varvite.storage.object_stores.memory import MemoryStore


@pytest.mark.parametrize("percent", [1, 7, 28, 50, 57, 75, 95, 99, 100])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 20, 99, 100, 101, 1000])
def test_a_percentile_is_the_value_at_the_nearest_rank(percent: int, count: int) -> None:
    """Fractions such as 0.07 and 0.57 are not exact, but their ranks are."""
    values = [float(n) for n in range(count, 0, -1)]
    assert percentile(values, percent / 100) == math.ceil(Fraction(percent, 100) * count)


def test_the_median_of_two_is_the_smaller() -> None:
    """It was the larger one in the benchmarks."""
    assert percentile([2.0, 1.0], 0.5) == 1.0


def test_fractions_finer_than_a_thousandth_count() -> None:
    assert percentile([float(n) for n in range(1, 10_001)], 0.9999) == 9_999.0


def test_nothing_has_percentiles_of_zero() -> None:
    assert percentile([], 0.99) == 0.0


@pytest.mark.parametrize(("size_bytes", "objects"), [(40, 1), (60, 2)])
def test_what_the_driver_gathers_in_an_object_counts_as_written(size_bytes: int, objects: int) -> None:
    """10 MB in one object were 0 bytes beside the entry, and no object."""
    store = MemoryStore()
    run = JobRun.open(store, "job", 8, CommitPolicy(inline_max_bytes=100), ManualClock(), SystemTokens())
    run.take_over()
    run.choose_base(SparkProgress(0, "q", "0", None), None)
    data = [bytes(size_bytes)] * 2
    facts = BatchFacts(
        batch=0, query_id="q", source_hash="0", time_ms=1, watermark_ms=None, results=results_of(data),
        operators=(OperatorLayout(uid="op", parallelism=2, key_type="1:string", changelog=True, backend="hashmap"),),
    )  # fmt: skip
    acknowledged = run.commit(facts, SystemTokens().token())
    run.close()
    summaries = OperatorSummaries.of("op", [of_partition("op", p, inline=inline) for p, inline in enumerate(data)])
    times = BatchTimes(ack_ms=0, operators_ms=0, sink_ms=0, batch_ms=0)
    found = statistics_of(acknowledged, (summaries,), times, attempts=1, log_commits=1, moved_partitions=0)
    stored = [meta.size_bytes for meta in store.list(layout.SEGMENTS)]
    assert (found.uploaded_bytes, found.objects_written) == (sum(stored), objects)
    assert len(stored) == objects - 1
