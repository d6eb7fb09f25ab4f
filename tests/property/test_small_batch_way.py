"""The choice of a batch's way keeps what the driver may hold within its limits, whatever is known of the batch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from varvite.spark_integration.driver.answer_size import REST_BATCHES
from varvite.spark_integration.driver.small_batches.way import (
    ANSWER_RATIO_MAX,
    FIRST_ROWS_MAX,
    BatchSize,
    PastBatches,
    SmallBatchLimits,
    Way,
    choose,
)

COUNTS = st.integers(0, 1 << 40)
SIZES = st.integers(1, 1 << 40)
LIMITS = st.builds(SmallBatchLimits, st.integers(0, 1 << 30), st.integers(1, 1 << 40))
KNOWN = st.builds(BatchSize, rows_max=st.none() | COUNTS, size_bytes=st.none() | COUNTS)
PAST = st.builds(PastBatches, rows=st.none() | COUNTS, row_bytes=st.none() | SIZES, rest=st.integers(0, 3))


@given(LIMITS, KNOWN, PAST, st.none() | SIZES)
def test_the_driver_reads_no_more_rows_than_the_limits_allow(
    limits: SmallBatchLimits, size: BatchSize, past: PastBatches, row_bytes: int | None
) -> None:
    choice = choose(limits, size, past, row_bytes)
    if choice.way is Way.SPARK:
        return
    assert limits.rows_max > 0
    assert past.rest == 0
    assert choice.rows_max <= limits.rows_max
    if size.is_empty:
        assert choice.rows_max == 0
        return
    assert choice.rows_max > 0
    mean_bytes = past.row_bytes or row_bytes
    if mean_bytes is not None:
        assert choice.rows_max * mean_bytes <= limits.size_max_bytes
    elif size.size_bytes is None:
        assert choice.rows_max <= FIRST_ROWS_MAX
    assert size.size_bytes is None or size.size_bytes <= limits.size_max_bytes
    expected = past.rows if size.rows_max is None else size.rows_max
    assert expected is None or expected <= choice.rows_max


@given(LIMITS, KNOWN, PAST, st.none() | SIZES)
def test_no_batch_is_small_with_a_limit_of_0(
    limits: SmallBatchLimits, size: BatchSize, past: PastBatches, row_bytes: int | None
) -> None:
    assert choose(SmallBatchLimits(0, limits.size_max_bytes), size, past, row_bytes).way is Way.SPARK


@given(st.integers(1, 1000), st.integers(1, 1000))
def test_a_batch_as_small_as_the_last_one_takes_the_drivers_way(rows: int, row_bytes: int) -> None:
    past = PastBatches().after(rows, row_bytes)
    choice = choose(SmallBatchLimits(1000, 1_000_000), BatchSize(), past, None)
    assert choice.way is Way.DRIVER
    assert choice.rows_max >= rows


@given(st.integers(1001, 1 << 62))
def test_a_batch_as_large_as_the_last_one_takes_sparks_way(rows: int) -> None:
    assert choose(SmallBatchLimits(1000, 1_000_000), BatchSize(), PastBatches().after(rows, 1), None).way is Way.SPARK


@given(PAST, st.lists(st.tuples(COUNTS, st.none() | SIZES), min_size=REST_BATCHES, max_size=REST_BATCHES))
def test_a_job_rests_after_a_large_answer_and_no_longer(
    past: PastBatches, batches: list[tuple[int, int | None]]
) -> None:
    past = past.after_large_answer()
    for rows, row_bytes in batches:
        assert choose(SmallBatchLimits(1 << 30, 1 << 30), BatchSize(), past, 1).way is Way.SPARK
        past = past.after(rows, row_bytes)
    assert past.rest == 0


@given(LIMITS)
def test_an_answer_may_be_larger_than_the_input(limits: SmallBatchLimits) -> None:
    assert limits.answer_max_bytes == limits.size_max_bytes * ANSWER_RATIO_MAX
