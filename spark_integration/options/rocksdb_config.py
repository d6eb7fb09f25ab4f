"""Combines the options of the RocksDB state backend: the stores' settings, and the memory that they share. Pure.

Precedence of a setting: its own option, at the strongest level that has it; then `predefined-options`; then its
default. The memory budget is on unless another option switches it off (`memory_budget`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from varvite.changelog.working_stores.rocksdb.memory import WORKER_MEMORY_MIN_BYTES
from varvite.changelog.working_stores.rocksdb.settings.memory_options import (
    MANAGED,
    PER_EXECUTOR,
    PER_WORKER,
    PREDEFINED,
    WRITE_BUFFER_RATIO,
)
from varvite.changelog.working_stores.rocksdb.settings.options import RocksDBOptions
from varvite.spark_integration.options.executor_share import workers_per_executor
from varvite.storage.errors import InvalidRequestError
from varvite.storage.options.declaration import options_of
from varvite.storage.options.table import value_of, values_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varvite.storage.options.table import OptionLevel

_log: Final = logging.getLogger(__name__)
SIZES_OF_A_STORE: Final = tuple(
    options_of(RocksDBOptions)[name].key
    for name in ("block_cache_size_bytes", "write_buffer_size_bytes", "recent_values_size_bytes")
)
"""Keys of the options that set the memory of each store."""


@dataclass(frozen=True, kw_only=True)
class MemoryBudget:
    """Limits of the memory of RocksDB stores."""

    per_executor_bytes: int = PER_EXECUTOR.field()
    per_worker_bytes: int | None = PER_WORKER.field()
    """None: an equal part of the executor's."""
    write_buffer_ratio: float = WRITE_BUFFER_RATIO.field()

    def worker_bytes(self, parallelism: int, executors: int) -> int:
        """Memory of one state worker, if the workers spread evenly over the executors.

        Raises:
            InvalidRequestError: It is too little for a RocksDB.
        """
        if self.per_worker_bytes is not None:
            return self.per_worker_bytes
        workers = workers_per_executor(parallelism, executors)
        if self.per_executor_bytes // workers < WORKER_MEMORY_MIN_BYTES:
            needed = PER_EXECUTOR.type.show(workers * WORKER_MEMORY_MIN_BYTES)
            raise InvalidRequestError(
                f"{PER_EXECUTOR.key} is {PER_EXECUTOR.type.show(self.per_executor_bytes)}, but the {workers} state "
                f"workers of an executor need at least {needed}: raise it, or lower the parallelism of {parallelism}"
            )
        return self.per_executor_bytes // workers


def rocksdb_options(levels: Sequence[OptionLevel]) -> RocksDBOptions:
    """The settings of each store. Raises `InvalidRequestError` if they contradict each other."""
    predefined = value_of(PREDEFINED, levels)
    settings = dict(predefined.settings) if predefined else {}
    return RocksDBOptions(**settings | values_for(RocksDBOptions, levels))


def memory_budget(levels: Sequence[OptionLevel]) -> MemoryBudget | None:
    """The memory that the stores share; None: each has memory of its own.

    As in Flink a fixed size counts whatever `memory.managed` says. A size of each store switches the budget off,
    unless the budget is set explicitly.

    Raises:
        InvalidRequestError: Both the budget and a size of each store are set explicitly.
    """
    fixed = [option.key for option in (PER_EXECUTOR, PER_WORKER) if _is_set(option.key, levels)]
    managed = bool(value_of(MANAGED, levels))
    if not managed and not fixed:
        return None
    sizes = [key for key in SIZES_OF_A_STORE if _is_set(key, levels)]
    explicit = fixed or ([MANAGED.key] if _is_set(MANAGED.key, levels) else [])
    if sizes and explicit:
        raise InvalidRequestError(
            f"{', '.join(explicit)} and {', '.join(sizes)} contradict each other: the first is about the memory that "
            "all stores share, the second about that of each store; remove the one or the other"
        )
    if sizes:
        _log.info("each RocksDB store has memory of its own, because %s is set", ", ".join(sizes))
        return None
    return MemoryBudget(**values_for(MemoryBudget, levels))


def _is_set(key: str, levels: Sequence[OptionLevel]) -> bool:
    return any(key in level.values for level in levels)
