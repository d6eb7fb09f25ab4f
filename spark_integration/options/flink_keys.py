"""Keys of Flink's configuration that varvite has no option for: those that are taken, without effect. Pure.

A program that sets them still runs, with one warning that lists them.
"""

from __future__ import annotations

import re
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from varvite.changelog.api.time_spans import Duration
from varvite.materializer.options.table import OPTIONS
from varvite.spark_integration.options.checkpoint_config import CheckpointingMode, ExternalizedCheckpointRetention
from varvite.storage.errors import InvalidRequestError
from varvite.storage.options.declaration import CONF_PREFIX
from varvite.storage.options.kinds import BOOLEAN, DURATION, INTEGER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_SECTIONS: Final = (
    "akka", "blob", "classloader", "client", "cluster", "compiler", "containerized", "env", "external-resource",
    "external-resources", "fs", "heartbeat", "high-availability", "historyserver", "io", "jobmanager", "jobstore",
    "kubernetes", "metrics", "minicluster", "pekko", "plugin", "process", "python", "queryable-state",
    "rest", "restart-strategy", "s3", "security", "slot", "slotmanager", "sql-client", "sql-gateway", "table",
    "taskmanager", "traces", "web", "yarn", "zookeeper",
    "pipeline.auto-type-registration", "pipeline.auto-watermark-interval", "pipeline.cached-files",
    "pipeline.classpaths", "pipeline.closure-cleaner-level", "pipeline.default-kryo-serializers",
    "pipeline.force-avro", "pipeline.force-kryo", "pipeline.force-kryo-avro", "pipeline.jars",
    "pipeline.jobvertex-parallelism-overrides", "pipeline.name",
    "pipeline.object-reuse", "pipeline.operator-chaining", "pipeline.registered-kryo-types",
    "pipeline.registered-pojo-types", "pipeline.serialization-config", "pipeline.vertex-description-mode",
    "pipeline.vertex-name-include-index-prefix", "pipeline.watermark-alignment",
    "execution.attached", "execution.batch", "execution.buffer-timeout", "execution.job-listeners",
    "execution.job-status-changed-listeners", "execution.shutdown-on-attached-exit",
    "execution.shutdown-on-application-finish", "execution.sorted-inputs",
    "execution.submit-failed-job-on-application-error", "execution.target",
    "execution.checkpointing.aligned-checkpoint-timeout", "execution.checkpointing.alignment-timeout",
    "execution.checkpointing.checkpoints-after-tasks-finish", "execution.checkpointing.cleaner",
    "execution.checkpointing.create-subdir", "execution.checkpointing.data-inline-threshold",
    "execution.checkpointing.externalized-checkpoint-retention", "execution.checkpointing.file-merging",
    "execution.checkpointing.force-unaligned", "execution.checkpointing.incremental",
    "execution.checkpointing.interval-during-backlog", "execution.checkpointing.max-concurrent-checkpoints",
    "execution.checkpointing.min-pause", "execution.checkpointing.mode",
    "execution.checkpointing.prefer-checkpoint-for-recovery", "execution.checkpointing.recover-without-channel-state",
    "execution.checkpointing.savepoint-dir", "execution.checkpointing.snapshot-compression",
    "execution.checkpointing.storage", "execution.checkpointing.timeout",
    "execution.checkpointing.tolerable-failed-checkpoints", "execution.checkpointing.unaligned",
    "execution.checkpointing.write-buffer-size",
    "state.backend.async", "state.backend.forst", "state.backend.fs", "state.backend.heap", "state.backend.incremental",
    "state.backend.latency-track", "state.backend.rocksdb.block.metadata-blocksize",
    "state.backend.rocksdb.bloom-filter.block-based-mode", "state.backend.rocksdb.checkpoint",
    "state.backend.rocksdb.compaction.filter", "state.backend.rocksdb.compaction.level.use-dynamic-size",
    "state.backend.rocksdb.compaction.style", "state.backend.rocksdb.compression.per.level",
    "state.backend.rocksdb.incremental-restore-async-compact-after-rescale", "state.backend.rocksdb.localdir",
    "state.backend.rocksdb.log", "state.backend.rocksdb.manual-compaction",
    "state.backend.rocksdb.memory.high-prio-pool-ratio", "state.backend.rocksdb.memory.partitioned-index-filters",
    "state.backend.rocksdb.metrics", "state.backend.rocksdb.options-factory",
    "state.backend.rocksdb.overlap-fraction-threshold", "state.backend.rocksdb.rescaling",
    "state.backend.rocksdb.restore-overlap-fraction-threshold", "state.backend.rocksdb.timer-service",
    "state.backend.rocksdb.use-bloom-filter", "state.backend.rocksdb.use-delete-files-in-range-during-rescaling",
    "state.backend.rocksdb.use-ingest-db-restore-mode", "state.backend.rocksdb.write-batch-size",
    "state.changelog.dstl.dfs.compression", "state.changelog.dstl.dfs.discard",
    "state.checkpoint", "state.checkpoint-storage", "state.checkpoints.create-subdir", "state.latency-track",
    "state.savepoints", "state.size-track", "state.storage",
)  # fmt: skip
"""Keys without effect, and heads of such keys: of sections that varvite lacks, and of settings that it lacks."""
_WITHOUT_EFFECT: Final = re.compile(rf"(?:{'|'.join(map(re.escape, _SECTIONS))})(?:\.|$)")
_FULFILLED: Final[Mapping[str, frozenset[str]]] = {
    "execution.checkpointing.externalized-checkpoint-retention": frozenset({"retain_on_cancellation"}),
    "execution.checkpointing.incremental": frozenset({"true"}),
    "execution.checkpointing.max-concurrent-checkpoints": frozenset({"1"}),
    "execution.checkpointing.mode": frozenset({"exactly_once", "at_least_once"}),
    "execution.checkpointing.storage": frozenset({"filesystem"}),
    "execution.checkpointing.tolerable-failed-checkpoints": frozenset({"0"}),
    "execution.checkpointing.unaligned": frozenset({"false"}),
    "execution.checkpointing.unaligned.enabled": frozenset({"false"}),
    "state.backend.incremental": frozenset({"true"}),
    "state.checkpoint-storage": frozenset({"filesystem"}),
}
"""Values, in lower case, that ask for no more than varvite does anyway: no warning."""


def without_flinks_keys(settings: Mapping[str, Any], stacklevel: int) -> dict[str, Any]:
    """The settings without those that only Flink has, with one warning that lists those without effect.

    Args:
        settings: Key, with or without `spark.varvite.`, → value.
        stacklevel: Of the warning, seen from the caller: 1 is its line.
    """
    useless = []
    ours = {}
    for key, value in settings.items():
        plain = key.removeprefix(CONF_PREFIX)
        text = str(value).strip().lower()
        if plain in OPTIONS or not _WITHOUT_EFFECT.match(plain):
            ours[key] = value
        elif value is not None and text not in _FULFILLED.get(plain, ()):
            useless.append(plain)
    if useless:
        warnings.warn(
            f"settings of Flink's that have no effect in varvite: {', '.join(sorted(useless))}; "
            "docs/reference/configuration.md lists those that have one",
            UserWarning,
            stacklevel=stacklevel + 1,
        )
    return ours


def kept_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The answers of PyFlink's getters, by their names, for keys without effect that have one.

    A value that is not of the key's type is none: it has no effect, either.

    Args:
        settings: Key, with or without `spark.varvite.`, → value.
    """
    kept: dict[str, Any] = {}
    for key, value in settings.items():
        name, read = _KEPT.get(key.removeprefix(CONF_PREFIX), ("", None))
        if read is not None and value is not None:
            with suppress(InvalidRequestError, KeyError):
                kept[name] = read(value)
    return kept


def _mode(value: Any) -> CheckpointingMode:
    return CheckpointingMode[str(value).strip().upper()]


def _retention(value: Any) -> ExternalizedCheckpointRetention:
    return ExternalizedCheckpointRetention[str(value).strip().upper()]


def _duration(value: Any) -> Duration:
    return Duration.of_millis(DURATION.read(value))


_CHECKPOINTS: Final = "execution.checkpointing."
_KEPT: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    "execution.buffer-timeout": ("buffer_timeout", DURATION.read),
    "execution.buffer-timeout.interval": ("buffer_timeout", DURATION.read),
    "pipeline.auto-watermark-interval": ("auto_watermark_interval", DURATION.read),
    "pipeline.object-reuse": ("object_reuse", BOOLEAN.read),
    "pipeline.operator-chaining": ("chaining", BOOLEAN.read),
    "pipeline.operator-chaining.enabled": ("chaining", BOOLEAN.read),
    "state.savepoints.dir": ("savepoint_directory", str),
    f"{_CHECKPOINTS}savepoint-dir": ("savepoint_directory", str),
    f"{_CHECKPOINTS}aligned-checkpoint-timeout": ("alignment_timeout", _duration),
    f"{_CHECKPOINTS}externalized-checkpoint-retention": ("externalized_checkpoint_retention", _retention),
    f"{_CHECKPOINTS}max-concurrent-checkpoints": ("max_concurrent_checkpoints", INTEGER.read),
    f"{_CHECKPOINTS}min-pause": ("min_pause_between_checkpoints", DURATION.read),
    f"{_CHECKPOINTS}mode": ("checkpointing_mode", _mode),
    f"{_CHECKPOINTS}timeout": ("checkpoint_timeout", DURATION.read),
    f"{_CHECKPOINTS}tolerable-failed-checkpoints": ("tolerable_checkpoint_failure_number", INTEGER.read),
    f"{_CHECKPOINTS}unaligned": ("unaligned_checkpoints", BOOLEAN.read),
    f"{_CHECKPOINTS}unaligned.enabled": ("unaligned_checkpoints", BOOLEAN.read),
    f"{_CHECKPOINTS}unaligned.forced": ("force_unaligned_checkpoints", BOOLEAN.read),
}
"""Key → the name under which its setter keeps the value, and its type."""
