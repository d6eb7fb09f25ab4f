"""Storage switches that a seed draws for a test: the same for the same seed and test, and now this and now that
otherwise.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.storage_switches import FIXED, SEED_VARIABLE, StorageSwitches, seed_of


def test_the_seed_is_what_is_said_or_fixed_under_ci_or_any() -> None:
    assert seed_of({SEED_VARIABLE: "7", "CI": "true"}) == "7"
    assert seed_of({"CI": "true"}) == seed_of({"CI": "true"})
    assert len({seed_of({}) for _ in range(20)}) > 1


def test_a_seed_and_a_test_say_everything() -> None:
    drawn = [StorageSwitches.drawn(seed, f"test_{i}") for seed in "01" for i in range(50)]
    assert drawn == [StorageSwitches.drawn(seed, f"test_{i}") for seed in "01" for i in range(50)]
    assert len(set(drawn)) == 8
    assert drawn[:50] != drawn[50:]


def test_a_word_says_it_for_all_tests() -> None:
    found = [StorageSwitches.drawn(word, "test") for word in ("on", "off", "materialized")]
    assert [(one.changelog, one.materializes) for one in found] == [(True, False), (False, False), (True, True)]
    assert found[2].options() == {"changelog": True, "materialize_every": 2}


@pytest.mark.fixed_storage
@pytest.mark.spark_tasks
def test_a_marked_test_has_no_switches(storage_switches: StorageSwitches) -> None:
    assert storage_switches == replace(FIXED, small_batches=False)
