"""Divides what is limited per executor over its state workers, in equal parts. Pure.

Their number is not known beforehand: the driver divides by the largest number that the application's configuration
allows for, if partitions spread evenly. After a loss an executor may have more of them for a while.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

PYTHON_MEMORY: Final = "spark.executor.pyspark.memory"
"""Spark's setting; by default there is no limit."""
_LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[\s*(\d+)")


def expected_executors(conf: Callable[[str, str], str | None]) -> int:
    """Number of executors that the application has for certain, by its configuration; at least 1.

    Args:
        conf: Looks up a key of Spark's configuration, with a default.
    """
    master = conf("spark.master", "") or ""
    cluster = _LOCAL_CLUSTER.match(master)
    if cluster:
        return max(1, int(cluster.group(1)))
    if master.startswith("local"):
        return 1
    dynamic = (conf("spark.dynamicAllocation.enabled", "false") or "").lower() == "true"
    key = "spark.dynamicAllocation.minExecutors" if dynamic else "spark.executor.instances"
    return max(1, int(conf(key, "1") or 1))


def workers_per_executor(parallelism: int, executors: int) -> int:
    """State workers of a job that one executor has, at most, if they spread evenly; at least 1."""
    return max(1, -(-parallelism // executors))


def memory_warning(conf: Callable[[str, str], str | None]) -> str | None:
    """A warning about a limit that state workers inherit from Spark's Python workers; None if there is no limit.

    PySpark limits the address space of the process, and an unprivileged process cannot raise that limit again.
    """
    limit = conf(PYTHON_MEMORY, "")
    if not limit:
        return None
    return (
        f"{PYTHON_MEMORY}={limit} limits the address space of each state worker as well, and one that reaches it dies: "
        "leave it unset, and plan their memory into spark.executor.memoryOverhead (docs/operate/cluster.md)"
    )
