"""The options of the RocksDB working store, and their form in rocksdict.

Memory of one store is bounded by `write_buffer_size_bytes * write_buffer_count + block_cache_size_bytes` (index and
filter blocks live in the block cache), plus `recent_values_size_bytes` of decoded values per value-like state (I10).
With `memory`, all stores of a process share one budget, and these three sizes do not count.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rocksdict import BlockBasedIndexType, BlockBasedOptions, Cache, DBCompressionType, Options

from varvite.storage.errors import InvalidRequestError
from varvite.storage.options.declaration import ConfigOption, check_options
from varvite.storage.options.kinds import INTEGER, MEMORY_SIZE, choice

if TYPE_CHECKING:
    from varvite.changelog.working_stores.rocksdb.memory import SharedMemory

_LOG_FILE_BYTES: Final = 1 << 20
_MEMTABLE_BLOOM_PART: Final = 0.05
"""Of a memtable: its own Bloom filter."""


@dataclass(frozen=True, kw_only=True)
class RocksDBOptions:
    """Memory, disk and threads of a RocksDB working store."""

    block_cache_size_bytes: int = ConfigOption(
        key="state.backend.rocksdb.block.cache-size",
        type=MEMORY_SIZE,
        default=64 << 20,
        at_least=64 << 10,
        description="Cache of uncompressed blocks, index and filters included, of each operator and partition. "
        "Setting it switches the shared memory (`memory.managed`) off.",
    ).field()
    write_buffer_size_bytes: int = ConfigOption(
        key="state.backend.rocksdb.writebuffer.size",
        type=MEMORY_SIZE,
        default=64 << 20,
        at_least=64 << 10,
        description="Size at which a memtable is flushed. Larger: fewer and larger files, more memory. Setting it "
        "switches the shared memory (`memory.managed`) off.",
    ).field()
    write_buffer_count: int = ConfigOption(
        key="state.backend.rocksdb.writebuffer.count",
        type=INTEGER,
        default=2,
        at_least=2,
        description="Memtables of each operator and partition, the one being flushed included.",
    ).field()
    write_buffers_to_merge: int = ConfigOption(
        key="state.backend.rocksdb.writebuffer.number-to-merge",
        type=INTEGER,
        default=1,
        at_least=1,
        description="Full memtables that are flushed together, at least; less than `writebuffer.count`.",
    ).field()
    block_size_bytes: int = ConfigOption(
        key="state.backend.rocksdb.block.blocksize",
        type=MEMORY_SIZE,
        default=4 << 10,
        at_least=1 << 10,
        description="Uncompressed bytes per block. Larger: smaller index, more read for one value.",
    ).field()
    bloom_filter_bits_per_key: int = ConfigOption(
        key="state.backend.rocksdb.bloom-filter.bits-per-key",
        type=INTEGER,
        default=10,
        at_least=0,
        description="Bits per key of the Bloom filters, 0 for none. More: fewer reads for keys without state, more "
        "memory.",
    ).field()
    max_open_files: int = ConfigOption(
        key="state.backend.rocksdb.files.open",
        type=INTEGER,
        default=512,
        at_least=-1,
        description="Open files of each operator and partition; at least 8, or -1 for no limit.",
    ).field()
    target_file_size_bytes: int = ConfigOption(
        key="state.backend.rocksdb.compaction.level.target-file-size-base",
        type=MEMORY_SIZE,
        default=64 << 20,
        at_least=64 << 10,
        description="Size of the files that compaction writes. Smaller: less to upload after a small change, more "
        "objects.",
    ).field()
    level_base_size_bytes: int = ConfigOption(
        key="state.backend.rocksdb.compaction.level.max-size-level-base",
        type=MEMORY_SIZE,
        default=256 << 20,
        at_least=64 << 10,
        description="Size of the first compacted level.",
    ).field()
    background_jobs: int = ConfigOption(
        key="state.backend.rocksdb.thread.num",
        type=INTEGER,
        default=2,
        at_least=1,
        description="Threads that flush and compact, of each operator and partition.",
    ).field()
    compression: str = ConfigOption(
        key="state.backend.rocksdb.compression",
        type=choice("none", "snappy", "lz4", "zstd"),
        default="lz4",
        description="Compression of all levels.",
    ).field()
    recent_values_size_bytes: int = ConfigOption(
        key="state.backend.rocksdb.recent-values.size",
        type=MEMORY_SIZE,
        default=64 << 20,
        at_least=0,
        description="Approximate memory for decoded values of recent batches, which saves reads, of each value state, "
        "operator and partition; 0 for none. Setting it switches the shared memory (`memory.managed`) off.",
    ).field()
    level0_files_extra: int = 0
    """Flushed files above the usual number that may wait for compaction: for a bulk load, which is over sooner."""
    memory: SharedMemory | None = field(default=None, compare=False, repr=False)
    """Memory that the stores of this process share, instead of write buffers, block cache and recent values of each."""

    def __post_init__(self) -> None:
        """Raises `InvalidRequestError` for values that RocksDB would refuse or misread."""
        check_options(self)
        if self.max_open_files in range(8):
            raise InvalidRequestError(f"max_open_files is {self.max_open_files}; use at least 8, or -1 for no limit")
        if self.level0_files_extra < 0:
            raise InvalidRequestError(f"level0_files_extra is {self.level0_files_extra}; use at least 0")
        if self.write_buffers_to_merge >= self.write_buffer_count:
            raise InvalidRequestError(
                f"write_buffers_to_merge is {self.write_buffers_to_merge}; use less than the "
                f"{self.write_buffer_count} of write_buffer_count"
            )


def rocksdict_options(options: RocksDBOptions, *, create: bool) -> Options:
    """The options in rocksdict's form; `create`: create a database that does not exist."""
    native = Options(raw_mode=True)
    native.create_if_missing(create)
    memory = options.memory
    if memory is None:
        native.set_write_buffer_size(options.write_buffer_size_bytes)
    else:
        native.set_write_buffer_manager(memory.write_buffers)
        native.set_write_buffer_size(memory.write_buffer_size_bytes(options.write_buffer_count))
    if options.bloom_filter_bits_per_key:
        # A read of a key that is not in the memtable skips the search there, the most expensive step of a point read.
        native.set_memtable_prefix_bloom_ratio(_MEMTABLE_BLOOM_PART)
        native.set_memtable_whole_key_filtering(True)
    native.set_max_write_buffer_number(options.write_buffer_count)
    native.set_min_write_buffer_number_to_merge(options.write_buffers_to_merge)
    native.set_max_open_files(options.max_open_files)
    files = level0_files(options.level0_files_extra)
    native.set_level_zero_file_num_compaction_trigger(files["level0_file_num_compaction_trigger"])
    native.set_level_zero_slowdown_writes_trigger(files["level0_slowdown_writes_trigger"])
    native.set_level_zero_stop_writes_trigger(files["level0_stop_writes_trigger"])
    native.set_max_background_jobs(options.background_jobs)
    native.set_target_file_size_base(options.target_file_size_bytes)
    native.set_max_bytes_for_level_base(options.level_base_size_bytes)
    native.set_level_compaction_dynamic_level_bytes(True)
    native.set_compression_type(getattr(DBCompressionType, options.compression)())
    native.set_block_based_table_factory(_table_options(options))
    # The info log and the statistics are for people, and the disk is bounded.
    native.set_keep_log_file_num(2)
    native.set_max_log_file_size(_LOG_FILE_BYTES)
    native.set_stats_dump_period_sec(0)
    native.set_stats_persist_period_sec(0)
    return native


def level0_files(extra: int) -> dict[str, int]:
    """RocksDB's triggers of compaction, slower writes and stopped writes, each raised by `extra` flushed files."""
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
    # In partitions: the filter of a whole file has megabytes, more than a shard of the cache, and would be reloaded by
    # every read.
    table.set_index_type(BlockBasedIndexType.two_level_index_search())
    table.set_partition_filters(True)
    table.set_format_version(5)
    if options.bloom_filter_bits_per_key:
        table.set_bloom_filter(options.bloom_filter_bits_per_key, False)
    return table
