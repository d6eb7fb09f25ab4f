"""Options of the memory that RocksDB stores share, and of sets of settings."""

from __future__ import annotations

from typing import Final

from varvite.changelog.working_stores.rocksdb.memory import WORKER_MEMORY_MIN_BYTES
from varvite.changelog.working_stores.rocksdb.settings.predefined import PredefinedOptions
from varvite.storage.options.declaration import ConfigOption
from varvite.storage.options.kinds import BOOLEAN, FRACTION, MEMORY_SIZE, member_of

PREDEFINED: Final = ConfigOption(
    key="state.backend.rocksdb.predefined-options",
    type=member_of(PredefinedOptions),
    description="A set of settings for a kind of disk; the options below win over it.",
)
MANAGED: Final = ConfigOption(
    key="state.backend.rocksdb.memory.managed",
    type=BOOLEAN,
    default=True,
    description="All RocksDB stores of the job on an executor share one budget (`memory.fixed-per-tm`). Off: each "
    "operator and partition has the memory that `block.cache-size`, `writebuffer.*` and `recent-values.size` say.",
)
PER_EXECUTOR: Final = ConfigOption(
    key="state.backend.rocksdb.memory.fixed-per-tm",
    type=MEMORY_SIZE,
    default=512 << 20,
    at_least=WORKER_MEMORY_MIN_BYTES,
    description="Memory of all RocksDB stores of the job on one executor, outside of its JVM: plan it into "
    "`spark.executor.memoryOverhead`. Each state worker has an equal part.",
)
PER_WORKER: Final = ConfigOption(
    key="state.backend.rocksdb.memory.fixed-per-slot",
    type=MEMORY_SIZE,
    at_least=WORKER_MEMORY_MIN_BYTES,
    description="Memory of the RocksDB stores of one state worker: all operators of one partition together.",
    unset="an equal part of `memory.fixed-per-tm`",
)
WRITE_BUFFER_RATIO: Final = ConfigOption(
    key="state.backend.rocksdb.memory.write-buffer-ratio",
    type=FRACTION,
    default=0.5,
    description="Part of RocksDB's own memory, which is three quarters of the budget, that memtables may take; between "
    "0 and 1. Larger: fewer flushes, fewer cached blocks.",
)
