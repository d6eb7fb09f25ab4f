"""Spark stops measuring Arrow batches only while rows are known to be small."""

from __future__ import annotations

import pytest

from varvite.spark_integration.driver.arrow_batch_limit import SMALL_BATCH_BYTES, may_skip_measuring

ROWS = 10_000


@pytest.mark.parametrize(
    ("row_bytes_max", "rows_per_batch", "skips"),
    [
        (None, ROWS, False),
        (40, ROWS, True),
        (SMALL_BATCH_BYTES // ROWS, ROWS, True),
        (SMALL_BATCH_BYTES // ROWS + 1, ROWS, False),
        (40, 0, False),
        (40, -1, False),
        (1 << 20, 64, True),
    ],
)
def test_measuring_is_left_out_only_for_small_rows(row_bytes_max: int | None, rows_per_batch: int, skips: bool) -> None:
    assert may_skip_measuring(row_bytes_max, rows_per_batch) is skips
