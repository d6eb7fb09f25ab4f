"""Into how many parts a range is folded."""

from __future__ import annotations

import pytest

from varvite.materializer.fold.parts import (
    BASE_FILES,
    FILE_BYTES_MIN,
    OPERATOR_PARTS,
    PART_BYTES_MIN,
    PART_STATE_BYTES_MIN,
    PARTS_MAX,
    file_bytes,
    fold_parts,
)

MIB = 1 << 20
ALL = range(128)


def count(key_groups: range = ALL, log_bytes: int = 50 * MIB, base_bytes: int = 1000 * MIB) -> int:
    return len(fold_parts(key_groups, len(ALL), log_bytes, base_bytes))


def test_a_large_range_is_folded_in_eight_parts() -> None:
    assert fold_parts(range(128), 128, 50 * MIB, 1000 * MIB)[:2] == (range(16), range(16, 32))
    assert count() == PARTS_MAX == 8


def test_the_parts_cover_the_range_once_and_fewer_parts_are_unions_of_more() -> None:
    key_groups = range(7, 101)
    edges = {}
    for ratio in (0.0005, 0.001, 0.002, 0.004):
        parts = fold_parts(key_groups, 128, int(ratio * 1000 * MIB), 1000 * MIB)
        assert [g for part in parts for g in part] == list(key_groups)
        edges[len(parts)] = {part.start for part in parts}
    assert set(edges) == {1, 2, 4, 8}
    assert edges[1] < edges[2] < edges[4] < edges[8]


def test_the_ranges_of_an_operator_have_a_limited_number_together() -> None:
    for ranges in (1, 2, 4, 8, 16, 32, 64, 128):
        assert ranges * count(range(128 // ranges)) <= max(OPERATOR_PARTS, ranges)
    assert count(range(128 // OPERATOR_PARTS)) == 1


@pytest.mark.parametrize("key_groups", [range(1), range(5, 6), range(2), range(3)])
def test_a_part_has_a_key_group_at_least(key_groups: range) -> None:
    parts = fold_parts(key_groups, len(key_groups), 1 << 40, 0)
    assert all(len(part) >= 1 for part in parts)
    assert [g for part in parts for g in part] == list(key_groups)


def test_little_log_is_not_worth_a_file_per_part() -> None:
    assert count(log_bytes=PART_BYTES_MIN - 1, base_bytes=MIB) == 1
    assert count(log_bytes=0, base_bytes=MIB) == 1
    assert count(log_bytes=4 * PART_BYTES_MIN, base_bytes=MIB) == 4


def test_a_small_state_is_not_divided() -> None:
    assert count(log_bytes=PART_STATE_BYTES_MIN, base_bytes=PART_STATE_BYTES_MIN - 1) == 1
    assert count(log_bytes=PART_STATE_BYTES_MIN, base_bytes=PART_STATE_BYTES_MIN) == 2
    assert count(log_bytes=0, base_bytes=0) == 1


def test_log_that_is_little_of_a_large_base_is_not_either() -> None:
    assert count(log_bytes=MIB // 2, base_bytes=1000 * MIB) == 1
    assert count(log_bytes=2 * MIB, base_bytes=1000 * MIB) == 4
    assert count(log_bytes=2 * MIB, base_bytes=0) == 8, "there is none yet"


def test_a_base_is_in_about_forty_files_from_the_first_fold_on() -> None:
    assert file_bytes(100 * MIB, 0, 64 * MIB) * BASE_FILES == 100 * MIB
    assert file_bytes(0, 100 * MIB, 64 * MIB) * BASE_FILES == 100 * MIB
    assert file_bytes(0, MIB, 64 * MIB) == FILE_BYTES_MIN
    assert file_bytes(10_000 * MIB, 0, 64 * MIB) == 64 * MIB
