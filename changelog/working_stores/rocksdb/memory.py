"""The memory that all RocksDB stores of one process share.

A state worker has a budget, whatever the number of its operators. `plan_memory` divides it. `SharedMemory` holds the
objects that rocksdict can share: one block cache, and a write buffer manager that charges all memtables to it. The rest
is for the decoded values of recent batches, in equal parts for the value-like states.

Invariant: I10. As in Flink, memtables may go above their limit by a half, for a batch goes into one memtable as a
whole; the division leaves room for that. Blocks that are in use are held beyond a full cache, so the budget is kept
closely, not exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol
from weakref import WeakSet

from rocksdict import Cache, WriteBufferManager

from varvite.storage.errors import InvalidRequestError

WORKER_MEMORY_MIN_BYTES: Final = 4 << 20
"""Below this, memtables would be flushed all the time."""
RECENT_VALUES_PART: Final = 4
"""One of this number of parts is for decoded values of recent batches."""


class LimitedCache(Protocol):
    """A cache of decoded values (`RecentValues`)."""

    def limit(self, limit_bytes: int) -> None:
        """Set the limit."""
        ...


@dataclass(frozen=True)
class MemoryPlan:
    """The division of the memory of one process, in bytes."""

    block_cache_bytes: int
    """Capacity of the block cache, memtables included."""
    write_buffers_bytes: int
    """Limit of all memtables together; they may exceed it by a half."""
    recent_values_bytes: int
    """Decoded values, of all value-like states together."""


def plan_memory(size_bytes: int, write_buffer_ratio: float) -> MemoryPlan:
    """Divide the memory of one process.

    Args:
        size_bytes: All of it; at least `WORKER_MEMORY_MIN_BYTES`.
        write_buffer_ratio: The memtables' part of RocksDB's memory; above 0 and below 1.

    Raises:
        InvalidRequestError: one of them is out of range.
    """
    if size_bytes < WORKER_MEMORY_MIN_BYTES:
        raise InvalidRequestError(
            f"{size_bytes} bytes are too little for the RocksDB stores of a state worker; it needs at least "
            f"{WORKER_MEMORY_MIN_BYTES}: raise state.backend.rocksdb.memory.fixed-per-tm, or lower the parallelism"
        )
    if not 0 < write_buffer_ratio < 1:
        raise InvalidRequestError(f"write_buffer_ratio is {write_buffer_ratio}; use a number between 0 and 1")
    recent = size_bytes // RECENT_VALUES_PART
    rocksdb = size_bytes - recent
    # Flink's division: cache + half of the memtables' limit, by which they may exceed it, make the whole.
    write_buffers = int(rocksdb * write_buffer_ratio * 2 / 3)
    return MemoryPlan(rocksdb - write_buffers // 2, write_buffers, recent)


class SharedMemory:
    """The memory that the RocksDB stores of one process share; used by one thread at a time."""

    def __init__(self, size_bytes: int, write_buffer_ratio: float, stores: int) -> None:
        """Divide the memory.

        Args:
            size_bytes: As in `plan_memory`.
            write_buffer_ratio: As in `plan_memory`.
            stores: The number of stores that share it; at least 1.

        Raises:
            InvalidRequestError: as `plan_memory`.
        """
        self.plan = plan_memory(size_bytes, write_buffer_ratio)
        self._stores = stores
        self.cache = Cache(self.plan.block_cache_bytes)
        self.write_buffers = WriteBufferManager.new_write_buffer_manager_with_cache(
            self.plan.write_buffers_bytes, False, self.cache
        )
        self._recent: WeakSet[LimitedCache] = WeakSet()

    def write_buffer_size_bytes(self, count: int) -> int:
        """Size of one of a store's `count` memtables: those of all stores together stay within the limit.

        The write buffer manager alone does not see to it: it flushes only the database that is being written.
        """
        return max(1 << 16, self.plan.write_buffers_bytes // (count * self._stores))

    def share_with(self, cache: LimitedCache) -> None:
        """Give a cache of decoded values its part, which the others lose; a cache that is discarded is forgotten."""
        self._recent.add(cache)
        for member in list(self._recent):
            member.limit(self.plan.recent_values_bytes // len(self._recent))
