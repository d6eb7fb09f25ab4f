"""The options of the RocksDB working store, and what they are in rocksdict.

Memory of one store is bounded by `write_buffer_size_bytes * write_buffer_count + block_cache_size_bytes` (index and
filter blocks live in the block cache), plus `recent_values_size_bytes` of decoded values per value-like state (I10).
With `memory`, all stores of a process share one budget, and these three sizes do not count.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rocksdict import BlockBasedIndexType, BlockBasedOptions, Cache, DBCompressionType, Options

from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from varvite.changelog.working_stores.rocksdb.memory import SharedMemory

_COMPRESSIONS: Final = ("none", "snappy", "lz4", "zstd")
_LOG_FILE_BYTES: Final = 1 << 20
_MEMTABLE_BLOOM_PART: Final = 0.05
"""Of a memtable: its own Bloom filter."""


@dataclass(frozen=True, kw_only=True)
class RocksDBOptions:
    """How a RocksDB working store uses memory, disk and threads; Flink's `state.backend.rocksdb.*` in brackets."""

    write_buffer_size_bytes: int = 64 << 20
    """A memtable is flushed when it has this size [writebuffer.size]."""
    write_buffer_count: int = 2
    """Memtables in memory, the one being flushed included [writebuffer.count]."""
    write_buffers_to_merge: int = 1
    """Full memtables that are flushed together, at least; below `write_buffer_count` [writebuffer.number-to-merge]."""
    block_cache_size_bytes: int = 64 << 20
    """Cache of uncompressed blocks [block.cache-size]."""
    block_size_bytes: int = 4 << 10
    """Uncompressed bytes per block [block.blocksize]."""
    bloom_filter_bits_per_key: int = 10
    """Bits per key of the Bloom filters; 0 for none [use-bloom-filter, bloom-filter.bits-per-key]."""
    max_open_files: int = 512
    """Open SST files; -1 for no limit [files.open]."""
    target_file_size_bytes: int = 64 << 20
    """Size of SST files that compaction and bulk load write [compaction.level.target-file-size-base]."""
    level_base_size_bytes: int = 256 << 20
    """Size of the first compacted level [compaction.level.max-size-level-base]."""
    background_jobs: int = 2
    """Threads that flush and compact [thread.num]."""
    compression: str = "lz4"
    """Of all levels: none, snappy, lz4 or zstd [compression.per.level]."""
    recent_values_size_bytes: int = 64 << 20
    """About the memory for decoded values of recent batches per value-like state, to save reads; 0 for none."""
    level0_files_extra: int = 0
    """So many files more than usual may be flushed and not yet compacted: for a bulk load, which is over sooner."""
    memory: SharedMemory | None = field(default=None, compare=False, repr=False)
    """What the stores of this process share, instead of the sizes of write buffers, block cache and recent values."""

    def __post_init__(self) -> None:
        """Raises `InvalidRequestError` for values that RocksDB would refuse or misread."""
        if self.compression not in _COMPRESSIONS:
            raise InvalidRequestError(f"compression {self.compression!r} is unknown; use one of {_COMPRESSIONS}")
        if self.max_open_files < -1 or self.max_open_files in range(8):
            raise InvalidRequestError(f"max_open_files is {self.max_open_files}; use at least 8, or -1 for no limit")
        at_least = {
            "bloom_filter_bits_per_key": 0,
            "recent_values_size_bytes": 0,
            "level0_files_extra": 0,
            "write_buffer_count": 2,
        }
        for option, least in at_least.items():
            if getattr(self, option) < least:
                raise InvalidRequestError(f"{option} is {getattr(self, option)}; use at least {least}")
        for option in ("write_buffer_size_bytes", "block_cache_size_bytes", "target_file_size_bytes"):
            if getattr(self, option) < 1 << 16:
                raise InvalidRequestError(f"{option} is {getattr(self, option)}; use at least {1 << 16}")
        if not 1 <= self.write_buffers_to_merge < self.write_buffer_count:
            raise InvalidRequestError(
                f"write_buffers_to_merge is {self.write_buffers_to_merge}; use at least 1, and less than the "
                f"{self.write_buffer_count} of write_buffer_count"
            )
        for option in ("block_size_bytes", "level_base_size_bytes", "background_jobs"):
            if getattr(self, option) < 1:
                raise InvalidRequestError(f"{option} is {getattr(self, option)}; use at least 1")


def rocksdict_options(options: RocksDBOptions, *, create: bool) -> Options:
    """The options as rocksdict wants them; `create`: make what does not exist."""
    made = Options(raw_mode=True)
    made.create_if_missing(create)
    memory = options.memory
    if memory is None:
        made.set_write_buffer_size(options.write_buffer_size_bytes)
    else:
        made.set_write_buffer_manager(memory.write_buffers)
        made.set_write_buffer_size(memory.write_buffer_size_bytes(options.write_buffer_count))
    if options.bloom_filter_bits_per_key:
        # A read of what is not in the memtable skips the search there, the dearest step of a point read.
        made.set_memtable_prefix_bloom_ratio(_MEMTABLE_BLOOM_PART)
        made.set_memtable_whole_key_filtering(True)
    made.set_max_write_buffer_number(options.write_buffer_count)
    made.set_min_write_buffer_number_to_merge(options.write_buffers_to_merge)
    made.set_max_open_files(options.max_open_files)
    files = level0_files(options.level0_files_extra)
    made.set_level_zero_file_num_compaction_trigger(files["level0_file_num_compaction_trigger"])
    made.set_level_zero_slowdown_writes_trigger(files["level0_slowdown_writes_trigger"])
    made.set_level_zero_stop_writes_trigger(files["level0_stop_writes_trigger"])
    made.set_max_background_jobs(options.background_jobs)
    made.set_target_file_size_base(options.target_file_size_bytes)
    made.set_max_bytes_for_level_base(options.level_base_size_bytes)
    made.set_level_compaction_dynamic_level_bytes(True)
    made.set_compression_type(getattr(DBCompressionType, options.compression)())
    made.set_block_based_table_factory(_table_options(options))
    # The info log and the statistics are for people, and the disk is bounded.
    made.set_keep_log_file_num(2)
    made.set_max_log_file_size(_LOG_FILE_BYTES)
    made.set_stats_dump_period_sec(0)
    made.set_stats_persist_period_sec(0)
    return made


def level0_files(extra: int) -> dict[str, int]:
    """From how many flushed files on they are compacted, writes slowed down and stopped: RocksDB's and more."""
    usual = {
        "level0_file_num_compaction_trigger": 4,
        "level0_slowdown_writes_trigger": 20,
        "level0_stop_writes_trigger": 36,
    }
    return {name: files + extra for name, files in usual.items()}


def _table_options(options: RocksDBOptions) -> BlockBasedOptions:
    table = BlockBasedOptions()
    table.set_block_size(options.block_size_bytes)
    table.set_block_cache(Cache(options.block_cache_size_bytes) if options.memory is None else options.memory.cache)
    # Otherwise index and filter blocks are outside of the cache and memory grows with the state.
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    # In pieces: a file's whole filter has megabytes, more than a shard of the cache, so every read would load it again.
    table.set_index_type(BlockBasedIndexType.two_level_index_search())
    table.set_partition_filters(True)
    table.set_format_version(5)
    if options.bloom_filter_bits_per_key:
        table.set_bloom_filter(options.bloom_filter_bits_per_key, False)
    return table
