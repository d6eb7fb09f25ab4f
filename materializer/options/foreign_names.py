"""The options of a job that a materializer has no use for, so that a mistyped one can be told from them.

They are defined in `varvite.spark_integration.options.job_options`, which a sidecar cannot import; a test compares the
two.
"""

from __future__ import annotations

from typing import Final

STORAGE_OPTION_PREFIX: Final = "storage.option."
"""Before the name of an option of the storage's filesystem."""
JOB_OPTION_NAMES: Final = frozenset(
    {
        "checkpoint.full-every",
        "checkpoint.inline-size-max",
        "execution.checkpointing.interval",
        "execution.checkpointing.local-backup.dirs",
        "execution.checkpointing.local-backup.enabled",
        "execution.checkpointing.local-backup.flush-interval",
        "execution.checkpointing.local-backup.max-unused-age",
        "execution.checkpointing.local-backup.max-unused-size",
        "execution.checkpointing.num-retained",
        "execution.savepoint-restore-mode",
        "execution.savepoint.ignore-unclaimed-state",
        "execution.savepoint.path",
        "execution.state-recovery.claim-mode",
        "execution.state-recovery.download.max-in-flight",
        "execution.state-recovery.download.num-threads",
        "execution.state-recovery.from-local",
        "execution.state-recovery.ignore-unclaimed-state",
        "execution.state-recovery.path",
        "materializer.mode",
        "metrics.reporter.prom.host",
        "metrics.reporter.prom.port",
        "parallelism.default",
        "pipeline.generic-types",
        "pipeline.global-job-parameters",
        "pipeline.heartbeat.enabled",
        "pipeline.max-parallelism",
        "state.backend",
        "state.backend.changelog.enabled",
        "state.backend.custom.options",
        "state.backend.local-recovery",
        "state.backend.rocksdb.block.blocksize",
        "state.backend.rocksdb.block.cache-size",
        "state.backend.rocksdb.bloom-filter.bits-per-key",
        "state.backend.rocksdb.compaction.level.max-size-level-base",
        "state.backend.rocksdb.compaction.level.target-file-size-base",
        "state.backend.rocksdb.compression",
        "state.backend.rocksdb.files.open",
        "state.backend.rocksdb.memory.fixed-per-slot",
        "state.backend.rocksdb.memory.fixed-per-tm",
        "state.backend.rocksdb.memory.managed",
        "state.backend.rocksdb.memory.write-buffer-ratio",
        "state.backend.rocksdb.predefined-options",
        "state.backend.rocksdb.recent-values.size",
        "state.backend.rocksdb.thread.num",
        "state.backend.rocksdb.writebuffer.count",
        "state.backend.rocksdb.writebuffer.number-to-merge",
        "state.backend.rocksdb.writebuffer.size",
        "state.backend.type",
        "state.changelog.dstl.dfs.base-path",
        "state.changelog.dstl.dfs.batch.persist-size-threshold",
        "state.changelog.dstl.dfs.preemptive-persist-threshold",
        "state.changelog.dstl.dfs.upload.deadline",
        "state.changelog.dstl.dfs.upload.max-attempts",
        "state.changelog.dstl.dfs.upload.max-in-flight",
        "state.changelog.dstl.dfs.upload.num-threads",
        "state.changelog.dstl.dfs.upload.timeout",
        "state.changelog.enabled",
        "state.checkpoints.num-retained",
        "state.worker.idle-timeout",
        "state.worker.placement.enabled",
        "taskmanager.state.local.root-dirs",
    }
)
"""Keys without `spark.varvite.`."""
