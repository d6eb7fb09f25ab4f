"""The configuration options of the RocksDB state backend.

`ROCKSDB_SETTINGS` say how the others are understood (`rocksdb_config`); each of `ROCKSDB_OPTIONS` is a field of
`RocksDBOptions`.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from varvite.changelog.working_stores.rocksdb.memory import WORKER_MEMORY_MIN_BYTES
from varvite.changelog.working_stores.rocksdb.options import RocksDBOptions
from varvite.spark_integration.options.types import PREDEFINED_OPTIONS, ConfigOption
from varvite.storage.options.kinds import BOOLEAN, FRACTION, INTEGER, MEMORY_SIZE, choice

_ROCKSDB: Final = {f.name: f.default for f in dataclasses.fields(RocksDBOptions)}

PREDEFINED: Final = ConfigOption(
    key="state.backend.rocksdb.predefined-options",
    type=PREDEFINED_OPTIONS,
    default=None,
    field="predefined",
    description="A set of settings for a kind of disk; the options below win over it.",
)
MANAGED: Final = ConfigOption(
    key="state.backend.rocksdb.memory.managed",
    type=BOOLEAN,
    default=True,
    field="managed",
    description="All RocksDB stores of the job on an executor share one budget (`memory.fixed-per-tm`). Off: each "
    "operator and partition has the memory that `block.cache-size`, `writebuffer.*` and `recent-values.size` say.",
)
PER_EXECUTOR: Final = ConfigOption(
    key="state.backend.rocksdb.memory.fixed-per-tm",
    type=MEMORY_SIZE,
    default=512 << 20,
    at_least=WORKER_MEMORY_MIN_BYTES,
    field="per_executor_bytes",
    description="Memory of all RocksDB stores of the job on one executor, outside of its JVM: plan it into "
    "`spark.executor.memoryOverhead`. Each state worker has an equal part.",
)
PER_WORKER: Final = ConfigOption(
    key="state.backend.rocksdb.memory.fixed-per-slot",
    type=MEMORY_SIZE,
    default=None,
    at_least=WORKER_MEMORY_MIN_BYTES,
    field="per_worker_bytes",
    description="Memory of the RocksDB stores of one state worker, all operators of one partition together, instead of "
    "a part of `memory.fixed-per-tm`.",
)
WRITE_BUFFER_RATIO: Final = ConfigOption(
    key="state.backend.rocksdb.memory.write-buffer-ratio",
    type=FRACTION,
    default=0.5,
    field="write_buffer_ratio",
    description="Part of RocksDB's own memory, which is three quarters of the budget, that memtables may take; between "
    "0 and 1. Larger: fewer flushes, fewer cached blocks.",
)
ROCKSDB_SETTINGS: Final[tuple[ConfigOption, ...]] = (PREDEFINED, MANAGED, PER_EXECUTOR, PER_WORKER, WRITE_BUFFER_RATIO)

ROCKSDB_OPTIONS: Final[tuple[ConfigOption, ...]] = (
    ConfigOption(
        key="state.backend.rocksdb.block.cache-size",
        type=MEMORY_SIZE,
        default=_ROCKSDB["block_cache_size_bytes"],
        at_least=64 << 10,
        field="block_cache_size_bytes",
        description="Cache of uncompressed blocks, index and filters included, of each operator and partition. "
        "Setting it switches the shared memory (`memory.managed`) off.",
    ),
    ConfigOption(
        key="state.backend.rocksdb.writebuffer.size",
        type=MEMORY_SIZE,
        default=_ROCKSDB["write_buffer_size_bytes"],
        at_least=64 << 10,
        field="write_buffer_size_bytes",
        description="Size at which a memtable is flushed. Larger: fewer and larger files, more memory. Setting it "
        "switches the shared memory (`memory.managed`) off.",
    ),
    ConfigOption(
        key="state.backend.rocksdb.writebuffer.count",
        type=INTEGER,
        default=_ROCKSDB["write_buffer_count"],
        at_least=2,
        field="write_buffer_count",
        description="Memtables of each operator and partition, the one being flushed included.",
    ),
    ConfigOption(
        key="state.backend.rocksdb.writebuffer.number-to-merge",
        type=INTEGER,
        default=_ROCKSDB["write_buffers_to_merge"],
        at_least=1,
        field="write_buffers_to_merge",
        description="Full memtables that are flushed together, at least; less than `writebuffer.count`.",
    ),
    ConfigOption(
        key="state.backend.rocksdb.block.blocksize",
        type=MEMORY_SIZE,
        default=_ROCKSDB["block_size_bytes"],
        at_least=1 << 10,
        field="block_size_bytes",
        description="Uncompressed bytes per block. Larger: smaller index, more read for one value.",
    ),
    ConfigOption(
        key="state.backend.rocksdb.bloom-filter.bits-per-key",
        type=INTEGER,
        default=_ROCKSDB["bloom_filter_bits_per_key"],
        at_least=0,
        field="bloom_filter_bits_per_key",
        description="Bits per key of the Bloom filters, 0 for none. More: fewer reads for keys without state, more "
        "memory.",
    ),
    ConfigOption(
        key="state.backend.rocksdb.files.open",
        type=INTEGER,
        default=_ROCKSDB["max_open_files"],
        at_least=-1,
        field="max_open_files",
        description="Open files of each operator and partition; -1 for no limit.",
    ),
    ConfigOption(
        key="state.backend.rocksdb.compaction.level.target-file-size-base",
        type=MEMORY_SIZE,
        default=_ROCKSDB["target_file_size_bytes"],
        at_least=64 << 10,
        field="target_file_size_bytes",
        description="Size of the files that compaction writes. Smaller: less to upload after a small change, more "
        "objects.",
    ),
    ConfigOption(
        key="state.backend.rocksdb.compaction.level.max-size-level-base",
        type=MEMORY_SIZE,
        default=_ROCKSDB["level_base_size_bytes"],
        at_least=64 << 10,
        field="level_base_size_bytes",
        description="Size of the first compacted level.",
    ),
    ConfigOption(
        key="state.backend.rocksdb.thread.num",
        type=INTEGER,
        default=_ROCKSDB["background_jobs"],
        at_least=1,
        field="background_jobs",
        description="Threads that flush and compact, of each operator and partition.",
    ),
    ConfigOption(
        key="state.backend.rocksdb.compression",
        type=choice("none", "snappy", "lz4", "zstd"),
        default=_ROCKSDB["compression"],
        field="compression",
        description="Compression of all levels.",
    ),
    ConfigOption(
        key="state.backend.rocksdb.recent-values.size",
        type=MEMORY_SIZE,
        default=_ROCKSDB["recent_values_size_bytes"],
        at_least=0,
        field="recent_values_size_bytes",
        description=(
            "About the memory for decoded values of recent batches, to save reads, of each value state, operator and "
            "partition; 0 for none. Setting it switches the shared memory (`memory.managed`) off."
        ),
    ),
)
