"""Number of state workers of an executor, as far as the application's configuration says."""

from __future__ import annotations

import pytest

from tests.unit.spark_integration.options.test_job_options import config
from varvite.spark_integration.options.executor_share import expected_executors, memory_warning, workers_per_executor


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        ({}, 1),
        ({"spark.master": "local[8]", "spark.executor.instances": "9"}, 1),
        ({"spark.master": "local-cluster[3, 1, 1024]"}, 3),
        ({"spark.master": "yarn"}, 1),
        ({"spark.master": "yarn", "spark.executor.instances": "6"}, 6),
        ({"spark.master": "yarn", "spark.executor.instances": "6", "spark.dynamicAllocation.enabled": "true"}, 1),
        ({"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.minExecutors": "2"}, 2),
        ({"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.minExecutors": "0"}, 1),
    ],
)
def test_executors_are_counted_only_if_they_are_certain(conf: dict[str, str], expected: int) -> None:
    assert expected_executors(conf.get) == expected


@pytest.mark.parametrize(
    ("parallelism", "executors", "workers"), [(1, 1, 1), (8, 1, 8), (8, 3, 3), (9, 3, 3), (10, 3, 4), (1, 5, 1)]
)
def test_workers_spread_evenly(parallelism: int, executors: int, workers: int) -> None:
    assert workers_per_executor(parallelism, executors) == workers


def test_what_is_in_flight_is_divided_over_the_workers_of_an_executor() -> None:
    """And nothing else of the limits is; the driver has all of it."""
    limits = config({"state.changelog.dstl.dfs.upload.max-in-flight": "90 mb", "parallelism.default": 7})
    assert limits.upload_policy.in_flight_bytes == 90 << 20
    shared = limits.worker_uploads(parallelism=7, executors=3)
    assert shared.in_flight_bytes == 30 << 20
    assert (shared.uploads, shared.deadline_s) == (limits.upload_policy.uploads, limits.upload_policy.deadline_s)
    assert limits.worker_uploads(parallelism=1 << 30, executors=1).in_flight_bytes == 1


def test_a_limit_of_pythons_memory_is_warned_of() -> None:
    """State workers inherit it, and RocksDB ends the process that reaches it."""
    assert memory_warning({}.get) is None
    found = memory_warning({"spark.executor.pyspark.memory": "2g"}.get)
    assert found is not None
    assert "spark.executor.pyspark.memory=2g" in found
    assert "spark.executor.memoryOverhead" in found
