"""The benchmark of windows, with one case of it."""

from __future__ import annotations

from benchmarks.windows import log_bytes
from varvite.changelog.types.factory import Types
from varvite.spark_integration.operators.windows.contents import ListedContents


def test_the_log_is_no_larger_than_what_changed() -> None:
    """About the same, with overlapping windows; a copy for each window would be several times as large."""
    logged, changed = log_bytes(ListedContents(Types.BINARY()), 4, numbers=False)
    assert changed < logged < 1.5 * changed
