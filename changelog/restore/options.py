"""Options of local recovery: state that stays on the host."""

from __future__ import annotations

from typing import Final

from varvite.storage.options.declaration import ConfigOption
from varvite.storage.options.kinds import BOOLEAN, DIRECTORIES, DURATION, MEMORY_SIZE

FROM_LOCAL: Final = ConfigOption(
    key="execution.state-recovery.from-local",
    type=BOOLEAN,
    default=False,
    deprecated_keys=("execution.checkpointing.local-backup.enabled", "state.backend.local-recovery"),
    description="Keep the state of each partition in a local directory that outlives state worker, executor and run. A "
    "worker that comes back then only reads the end of the log (docs/operate/recovery.md).",
)
LOCAL_DIRECTORIES: Final = ConfigOption(
    key="execution.checkpointing.local-backup.dirs",
    type=DIRECTORIES,
    deprecated_keys=("taskmanager.state.local.root-dirs",),
    description="Directories of local state, separated by commas; one per disk. Executors and jobs may share them.",
    unset="one in the user's cache directory",
)
LOCAL_FLUSH_INTERVAL: Final = ConfigOption(
    key="execution.checkpointing.local-backup.flush-interval",
    type=DURATION,
    default=60_000,
    at_least=0,
    description="Time between two flushes of a RocksDB store's memory to its local directory. A crash of the process "
    "loses no more than this, which the log then brings back. Shorter: a shorter replay, more and smaller files.",
)
LOCAL_UNUSED_AGE: Final = ConfigOption(
    key="execution.checkpointing.local-backup.max-unused-age",
    type=DURATION,
    default=86_400_000,
    at_least=0,
    description="When a worker starts, remove local state that no process has used for this long.",
)
LOCAL_UNUSED_SIZE: Final = ConfigOption(
    key="execution.checkpointing.local-backup.max-unused-size",
    type=MEMORY_SIZE,
    at_least=0,
    description="Evict the least recently used local state above this total size; state in use does not count.",
    unset="only age counts",
)
