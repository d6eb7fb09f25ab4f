"""Durations and sizes as text."""

from __future__ import annotations

import pytest

from varvite.storage.errors import InvalidRequestError
from varvite.storage.units import (
    format_duration_ms,
    format_size_bytes,
    option_duration,
    option_size,
    parse_duration_ms,
    parse_size_bytes,
)


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [("10 min", 600_000), ("30s", 30_000), ("500 ms", 500), ("2 h", 7_200_000), ("1d", 86_400_000), (" 250 ", 250)],
)
def test_durations_are_read_as_flink_reads_them(text: str, expected_ms: int) -> None:
    assert parse_duration_ms(text) == expected_ms


@pytest.mark.parametrize(("text", "size_bytes"), [("64 mb", 64 << 20), ("1g", 1 << 30), ("4096", 4096), ("2KiB", 2048)])
def test_sizes_are_read_as_flink_reads_them(text: str, size_bytes: int) -> None:
    assert parse_size_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["", "ten min", "-1 s", "1.5 h", "10 parsecs", "min"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="write it like"):
        parse_duration_ms(text)


def test_durations_and_sizes_for_people() -> None:
    assert [format_duration_ms(ms) for ms in (12, 1_500, 600_000)] == ["12 ms", "1.5 s", "10.0 min"]
    assert [format_size_bytes(b) for b in (12, 2048, 3 << 20, 5 << 40)] == ["12 B", "2.0 KiB", "3.0 MiB", "5.0 TiB"]


@pytest.mark.parametrize("amount", [0, 1, 999, 1_000, 90_000, 600_000, 86_400_000, 1 << 10, 512 << 20, 3 << 40])
def test_what_an_option_is_told_to_be_is_what_it_parses_to(amount: int) -> None:
    assert parse_duration_ms(option_duration(amount)) == amount
    assert parse_size_bytes(option_size(amount)) == amount
