"""The options of restoring state: downloads, and what is kept on the host; they stand among those of `options`."""

from __future__ import annotations

from typing import Final

from varvite.changelog.restore.local import LocalRecovery
from varvite.spark_integration.options.types import ConfigOption
from varvite.storage.options.kinds import BOOLEAN, DIRECTORIES, DURATION, INTEGER, MEMORY_SIZE
from varvite.storage.transfer.download import DownloadPolicy

_DOWNLOADS: Final = DownloadPolicy()
_LOCAL: Final = LocalRecovery()

RECOVERY_OPTIONS: Final[tuple[ConfigOption, ...]] = (
    ConfigOption(
        key="execution.state-recovery.download.num-threads",
        type=INTEGER,
        default=_DOWNLOADS.requests,
        at_least=1,
        field="download_threads",
        description="Requests at the same time with which a state worker fetches a snapshot, and again as many for the "
        "log. More: a faster restore where the storage has the bandwidth, more load on it when all workers restore.",
    ),
    ConfigOption(
        key="execution.state-recovery.download.max-in-flight",
        type=MEMORY_SIZE,
        default=_DOWNLOADS.in_flight_bytes,
        at_least=1 << 20,
        field="download_in_flight_max_bytes",
        description="Bytes that a restoring state worker has asked for and not yet written, for the snapshot and again "
        "for the log. Less: less memory, and fewer requests at the same time.",
    ),
    ConfigOption(
        key="execution.state-recovery.from-local",
        type=BOOLEAN,
        default=False,
        field="recover_from_local",
        deprecated_keys=("execution.checkpointing.local-backup.enabled", "state.backend.local-recovery"),
        description="Keep the state of each partition in a directory of the host that outlives state worker, executor "
        "and run, so that a worker that comes back only reads the end of the log. See `docs/operate/recovery.md`.",
    ),
    ConfigOption(
        key="execution.checkpointing.local-backup.dirs",
        type=DIRECTORIES,
        default=None,
        field="local_directories",
        deprecated_keys=("taskmanager.state.local.root-dirs",),
        description="Directories, separated by commas, where that state is kept; give one per disk. They may be shared "
        "by executors and jobs. Not set: a directory of the user below the temporary directory.",
    ),
    ConfigOption(
        key="execution.checkpointing.local-backup.flush-interval",
        type=DURATION,
        default=_LOCAL.flush_interval_ms,
        at_least=0,
        field="local_flush_interval_ms",
        description="How often a RocksDB store writes to that directory what it has in memory; a crash of the process "
        "loses no more, which the log then brings back. Shorter: a shorter replay, more and smaller files.",
    ),
    ConfigOption(
        key="execution.checkpointing.local-backup.max-unused-age",
        type=DURATION,
        default=_LOCAL.unused_age_max_ms,
        at_least=0,
        field="local_unused_age_max_ms",
        description="State in that directory that no process has used for so long is removed when a worker starts.",
    ),
    ConfigOption(
        key="execution.checkpointing.local-backup.max-unused-size",
        type=MEMORY_SIZE,
        default=None,
        at_least=0,
        field="local_unused_max_bytes",
        description="Size of the state in that directory that no process uses, above which what was longest not used "
        "is removed. Not set: only age counts.",
    ),
)
