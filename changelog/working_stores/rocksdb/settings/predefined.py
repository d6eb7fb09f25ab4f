"""`PredefinedOptions`: RocksDB settings for kinds of disks, with PyFlink's names and values."""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_MIB: Final = 1 << 20


class PredefinedOptions(Enum):
    """Settings of RocksDB for a kind of disk; an option that is set explicitly (`state.backend.rocksdb.*`) wins.

    Level compaction with dynamic level sizes, which two of Flink's sets choose, is always used by varvite.
    """

    DEFAULT = 0
    """The defaults of the options."""
    SPINNING_DISK_OPTIMIZED = 1
    """For spinning disks: four background threads, all files open."""
    SPINNING_DISK_OPTIMIZED_HIGH_MEM = 2
    """For spinning disks and much memory: large blocks, memtables and files besides. The block cache and the memtables
    have these sizes only if `state.backend.rocksdb.memory.managed` is false; else they share the budget."""
    FLASH_SSD_OPTIMIZED = 3
    """For flash: four background threads, all files open."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """Fields of `RocksDBOptions` that this set changes."""
        return _SETTINGS[self]


_FILES: Final = {"background_jobs": 4, "max_open_files": -1}
_SETTINGS: Final[Mapping[PredefinedOptions, Mapping[str, Any]]] = MappingProxyType(
    {
        PredefinedOptions.DEFAULT: {},
        PredefinedOptions.SPINNING_DISK_OPTIMIZED: _FILES,
        PredefinedOptions.SPINNING_DISK_OPTIMIZED_HIGH_MEM: {
            **_FILES,
            "block_cache_size_bytes": 256 * _MIB,
            "block_size_bytes": 128 << 10,
            "level_base_size_bytes": 1 << 30,
            "target_file_size_bytes": 256 * _MIB,
            "write_buffer_size_bytes": 64 * _MIB,
            "write_buffer_count": 4,
            "write_buffers_to_merge": 3,
        },
        PredefinedOptions.FLASH_SSD_OPTIMIZED: _FILES,
    }
)
