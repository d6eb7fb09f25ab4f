"""Meaning of the RocksDB backend's options together."""

from __future__ import annotations

from typing import Any

import pytest

from varvite.changelog.working_stores.rocksdb.settings.options import RocksDBOptions
from varvite.changelog.working_stores.rocksdb.settings.predefined import PredefinedOptions
from varvite.materializer.options.table import OPTIONS
from varvite.spark_integration.options.rocksdb_config import (
    SIZES_OF_A_STORE,
    MemoryBudget,
    memory_budget,
    rocksdb_options,
)
from varvite.storage.errors import InvalidRequestError
from varvite.storage.options.table import OptionLevel

PREFIX = "state.backend.rocksdb."
MIB = 1 << 20


def levels(*given: dict[str, Any]) -> list[OptionLevel]:
    """Strongest first; keys without their common beginning."""
    return [OPTIONS.read("level", {PREFIX + key: value for key, value in one.items()}) for one in given]


def test_without_settings_the_stores_have_the_defaults_and_share_a_budget() -> None:
    assert rocksdb_options(levels({})) == RocksDBOptions()
    assert memory_budget(levels({})) == MemoryBudget(
        per_executor_bytes=512 * MIB, per_worker_bytes=None, write_buffer_ratio=0.5
    )


def test_every_predefined_set_is_one_that_rocksdb_takes() -> None:
    for predefined in PredefinedOptions:
        got = rocksdb_options(levels({"predefined-options": predefined.name}))
        assert {field: getattr(got, field) for field in predefined.settings} == dict(predefined.settings)


@pytest.mark.parametrize("given", ["flash-ssd-optimized", "FLASH_SSD_OPTIMIZED", PredefinedOptions.FLASH_SSD_OPTIMIZED])
def test_a_predefined_set_is_named_in_several_ways(given: Any) -> None:
    assert rocksdb_options(levels({"predefined-options": given})).max_open_files == -1


def test_an_option_wins_over_a_predefined_set_of_a_stronger_level() -> None:
    got = rocksdb_options(levels({"predefined-options": "SPINNING_DISK_OPTIMIZED_HIGH_MEM"}, {"thread.num": 7}))
    assert (got.background_jobs, got.block_size_bytes, got.write_buffers_to_merge) == (7, 128 << 10, 3)


def test_options_that_do_not_fit_a_predefined_set_are_an_error() -> None:
    with pytest.raises(InvalidRequestError, match="write_buffers_to_merge"):
        rocksdb_options(levels({"predefined-options": "SPINNING_DISK_OPTIMIZED_HIGH_MEM", "writebuffer.count": 3}))


@pytest.mark.parametrize("key", [key.removeprefix(PREFIX) for key in SIZES_OF_A_STORE])
def test_a_size_of_each_store_switches_the_budget_off_unless_it_is_asked_for(key: str) -> None:
    assert memory_budget(levels({key: "1 mb"})) is None
    for asked in ({"memory.managed": True}, {"memory.fixed-per-tm": "1 gb"}, {"memory.fixed-per-slot": "64 mb"}):
        with pytest.raises(InvalidRequestError, match="contradict") as caught:
            memory_budget(levels(asked, {key: "1 mb"}))
        assert key in caught.value.message


def test_a_predefined_set_with_sizes_leaves_the_budget_on() -> None:
    assert memory_budget(levels({"predefined-options": "SPINNING_DISK_OPTIMIZED_HIGH_MEM"})) is not None


def test_the_budget_can_be_switched_off_but_a_fixed_size_counts_as_in_flink() -> None:
    assert memory_budget(levels({"memory.managed": "false"})) is None
    budget = memory_budget(levels({"memory.managed": "false", "memory.fixed-per-slot": "64 mb"}))
    assert budget is not None
    assert budget.worker_bytes(parallelism=100, executors=1) == 64 * MIB


@pytest.mark.parametrize(
    ("parallelism", "executors", "expected"), [(1, 1, 512), (4, 1, 128), (4, 4, 512), (5, 4, 256), (2, 8, 512)]
)
def test_the_workers_of_an_executor_share_its_budget(parallelism: int, executors: int, expected: int) -> None:
    budget = MemoryBudget(per_executor_bytes=512 * MIB, per_worker_bytes=None, write_buffer_ratio=0.5)
    assert budget.worker_bytes(parallelism, executors) == expected * MIB


def test_the_default_is_enough_for_the_default_number_of_key_groups() -> None:
    budget = memory_budget(levels({}))
    assert budget is not None
    assert budget.worker_bytes(parallelism=128, executors=1) == 4 * MIB


def test_a_budget_that_is_too_small_says_what_is_needed() -> None:
    budget = MemoryBudget(per_executor_bytes=64 * MIB, per_worker_bytes=None, write_buffer_ratio=0.5)
    with pytest.raises(InvalidRequestError, match="at least 80 mb"):
        budget.worker_bytes(parallelism=40, executors=2)
