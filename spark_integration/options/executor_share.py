"""What is limited per executor is divided over its state workers, in equal parts; pure.

Nobody knows beforehand how many there will be: the driver divides by the most that the application's configuration
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
    """How many executors the application has for certain, as its configuration says; at least 1.

    Args:
        conf: Answers a key of Spark's configuration, or the default that it is given.
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
    """What to say of a limit that state workers inherit from Spark's Python workers; None if there is none.

    PySpark limits the address space of the process, which a process that is not privileged cannot undo.
    """
    given = conf(PYTHON_MEMORY, "")
    if not given:
        return None
    return (
        f"{PYTHON_MEMORY}={given} limits the address space of each state worker as well, and one that reaches it dies: "
        "leave it unset, and plan their memory into spark.executor.memoryOverhead (docs/operate/cluster.md)"
    )
