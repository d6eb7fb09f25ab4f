"""What the options of the RocksDB state backend mean together: the stores' settings, and the memory they share; pure.

Precedence of a setting: its own option, at the strongest level that has it; then `predefined-options`; then its
default. The memory budget is on unless something says otherwise: see `memory_budget`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from varvite.changelog.working_stores.rocksdb.memory import WORKER_MEMORY_MIN_BYTES
from varvite.changelog.working_stores.rocksdb.options import RocksDBOptions
from varvite.spark_integration.options.executor_share import workers_per_executor
from varvite.spark_integration.options.rocksdb_options import (
    MANAGED,
    PER_EXECUTOR,
    PER_WORKER,
    PREDEFINED,
    ROCKSDB_OPTIONS,
    WRITE_BUFFER_RATIO,
)
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varvite.spark_integration.options.levels import OptionLevel
    from varvite.spark_integration.options.types import ConfigOption

_log: Final = logging.getLogger(__name__)
SIZES_OF_A_STORE: Final = tuple(
    option.key
    for option in ROCKSDB_OPTIONS
    if option.field in ("block_cache_size_bytes", "write_buffer_size_bytes", "recent_values_size_bytes")
)
"""Options that say the memory of each store."""


@dataclass(frozen=True, kw_only=True)
class MemoryBudget:
    """The memory of RocksDB stores."""

    per_executor_bytes: int
    """All state workers of the job on one executor."""
    per_worker_bytes: int | None
    """One state worker, instead; None: an equal part of the executor's."""
    write_buffer_ratio: float
    """Part of RocksDB's own memory for memtables."""

    def worker_bytes(self, parallelism: int, executors: int) -> int:
        """Memory of one state worker, if the workers spread evenly over the executors.

        Raises:
            InvalidRequestError: it is too little for a RocksDB.
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
    predefined = _value(PREDEFINED, levels)
    fields = {o.field: o.default for o in ROCKSDB_OPTIONS} | dict(predefined.settings if predefined else {})
    fields |= {o.field: _value(o, levels) for o in ROCKSDB_OPTIONS if _is_set(o.key, levels)}
    return RocksDBOptions(**fields)


def memory_budget(levels: Sequence[OptionLevel]) -> MemoryBudget | None:
    """What the stores share; None: each has the memory that its own sizes say.

    As in Flink a fixed size counts whatever `memory.managed` says. A size of each store switches the budget off if
    nothing asks for it.

    Raises:
        InvalidRequestError: The budget is asked for, and a size of each store as well.
    """
    fixed = [option.key for option in (PER_EXECUTOR, PER_WORKER) if _is_set(option.key, levels)]
    managed = bool(_value(MANAGED, levels))
    if not managed and not fixed:
        return None
    sizes = [key for key in SIZES_OF_A_STORE if _is_set(key, levels)]
    asked = fixed or ([MANAGED.key] if _is_set(MANAGED.key, levels) else [])
    if sizes and asked:
        raise InvalidRequestError(
            f"{', '.join(asked)} and {', '.join(sizes)} contradict each other: the first is about the memory that all "
            "stores share, the second about that of each store; remove the one or the other"
        )
    if sizes:
        _log.info("each RocksDB store has memory of its own, because %s is set", ", ".join(sizes))
        return None
    return MemoryBudget(
        per_executor_bytes=_value(PER_EXECUTOR, levels),
        per_worker_bytes=_value(PER_WORKER, levels),
        write_buffer_ratio=_value(WRITE_BUFFER_RATIO, levels),
    )


def _is_set(key: str, levels: Sequence[OptionLevel]) -> bool:
    return any(key in level.values for level in levels)


def _value(option: ConfigOption, levels: Sequence[OptionLevel]) -> Any:
    return next((level.values[option.key] for level in levels if option.key in level.values), option.default)
