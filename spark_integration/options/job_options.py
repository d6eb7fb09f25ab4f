"""All configuration options of varvite, some kinds of which are in modules of their own; nothing else defines one.

In Spark's configuration every key has the prefix `spark.varvite.`. `job_config.resolve` turns given options into a
`JobConfig`; `docs/reference/configuration.md` is made from this module (`options_page`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from varvite.changelog.commit.batch_result import INLINE_BYTES_MAX
from varvite.changelog.commit.gathered_segments import GATHERED_BYTES_MAX
from varvite.changelog.commit.state import RETAINED_MIN, CommitPolicy
from varvite.materializer.restore.origin import NO_CLAIM
from varvite.spark_integration.options.materializer_options import MATERIALIZER_DEFAULTS, MATERIALIZER_OPTIONS
from varvite.spark_integration.options.recovery_options import RECOVERY_OPTIONS
from varvite.spark_integration.options.rocksdb_options import ROCKSDB_OPTIONS, ROCKSDB_SETTINGS
from varvite.spark_integration.options.types import (
    BACKEND,
    CLAIM_MODE,
    KEY_PROVIDER,
    LOG_STORAGE,
    RESTORE_POINT,
    ConfigOption,
)
from varvite.storage.job.log_store import FILESYSTEM
from varvite.storage.options.kinds import (
    BOOLEAN,
    DURATION,
    INTEGER,
    MEMORY_SIZE,
    PARAMETERS,
    PORTS,
    STRING,
    URL,
    choice,
)
from varvite.storage.transfer.upload import UploadPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping

STORAGE_OPTION_PREFIX: Final = "storage.option."
"""Free-form: `storage.option.<name>` goes to fsspec as option `<name>` of the storage's filesystem."""
KEY_GROUPS_MAX: Final = 32_768
"""Flink's upper bound of the number of key groups; two bytes hold a key group."""

_POLICY: Final = CommitPolicy()
_UPLOADS: Final = UploadPolicy()
_MIB: Final = 1 << 20


JOB_OPTIONS: Final[tuple[ConfigOption, ...]] = (
    ConfigOption(
        key="state.changelog.enabled",
        type=BOOLEAN,
        default=None,
        field="changelog_enabled",
        deprecated_keys=("state.backend.changelog.enabled",),
        description="Write state changes to the changelog and snapshots in the background. Off: every checkpoint "
        "writes the snapshot itself before it acknowledges. Not set means no preference, and false in the end.",
    ),
    ConfigOption(
        key="state.backend.type",
        type=BACKEND,
        default="hashmap",
        field="backend_type",
        deprecated_keys=("state.backend",),
        description="Where a state worker keeps its working state: in Python objects (`hashmap`: fast, must fit into "
        "memory), in a local RocksDB (`rocksdb`), or in a store of your own, by the name of its factory.",
    ),
    ConfigOption(
        key="state.backend.custom.options",
        type=PARAMETERS,
        default=None,
        field="custom_backend_options",
        description="Options for the factory of a store of your own.",
    ),
    ConfigOption(
        key="state.changelog.periodic-materialize.enabled",
        type=BOOLEAN,
        default=True,
        field="periodic_materialize_enabled",
        description="Materialize by the clock. Off: only the length of the log triggers a materialization.",
    ),
    ConfigOption(
        key="state.changelog.periodic-materialize.interval",
        type=DURATION,
        default=MATERIALIZER_DEFAULTS["interval_ms"],
        at_least=1,
        field="materialize_interval_ms",
        description="Time from one materialization to the next. Shorter: shorter replay at a restart, more background "
        "work.",
    ),
    ConfigOption(
        key="state.changelog.max-failures-allowed",
        type=INTEGER,
        default=MATERIALIZER_DEFAULTS["max_failures_allowed"],
        at_least=0,
        field="materialize_failures_max",
        description="Consecutive failed materializations above which the materializer reports the state as failing. "
        "Unlike in Flink the job goes on: its log only gets longer.",
    ),
    ConfigOption(
        key="state.changelog.storage",
        type=LOG_STORAGE,
        default=FILESYSTEM,
        field="changelog_storage",
        description="Where a new job keeps its log data: in an object store, or in a log store of your own, by the "
        "name of its factory (docs/operate/log-stores.md). Holds for the life of the job.",
    ),
    ConfigOption(
        key="state.changelog.dstl.dfs.base-path",
        type=URL,
        default=None,
        field="changelog_base_path",
        description="Root of the log data of a new job, such as a faster bucket; its options are those of the storage "
        "if both are of one kind. Not set: in the storage itself. Holds for the life of the job.",
    ),
    ConfigOption(
        key="state.changelog.dstl.dfs.preemptive-persist-threshold",
        type=MEMORY_SIZE,
        default=5 * _MIB,
        at_least=1,
        field="preemptive_persist_threshold_bytes",
        description="State changes of one operator and partition that are uploaded while the batch goes on, instead "
        "of at its end; an estimate of their size in the log. Smaller: less to upload at the end of a long batch, more "
        "objects.",
    ),
    ConfigOption(
        key="state.changelog.dstl.dfs.upload.num-threads",
        type=INTEGER,
        default=_UPLOADS.uploads,
        at_least=1,
        field="upload_threads",
        description="Objects that one state worker uploads at the same time.",
    ),
    ConfigOption(
        key="state.changelog.dstl.dfs.upload.timeout",
        type=DURATION,
        default=int(_UPLOADS.hedge_after_s * 1000),
        at_least=1,
        field="upload_timeout_ms",
        description="An upload without an answer for so long is joined by a second attempt; the first success counts. "
        "Shorter: a slow server holds a batch up less, and gets more load.",
    ),
    ConfigOption(
        key="state.changelog.dstl.dfs.upload.deadline",
        type=DURATION,
        default=int(_UPLOADS.deadline_s * 1000),
        at_least=1,
        field="upload_deadline_ms",
        description="An upload that is not done so long after it was handed over, whatever its attempts do, fails, and "
        "with it the batch, which is then executed again. So does one for which there is no room in flight for so "
        "long.",
    ),
    ConfigOption(
        key="state.changelog.dstl.dfs.upload.max-attempts",
        type=INTEGER,
        default=_UPLOADS.backoff.attempts,
        at_least=1,
        field="upload_attempts_max",
        description="Attempts of one upload, the first included; then the batch fails.",
    ),
    ConfigOption(
        key="state.changelog.dstl.dfs.upload.max-in-flight",
        type=MEMORY_SIZE,
        default=256 * _MIB,
        at_least=_MIB,
        field="upload_in_flight_max_bytes",
        description="Bytes that all state workers of the job on one executor have handed to uploads and not yet seen "
        "done. Each has an equal part; above it the function waits, until what is larger can go alone. Attempts that "
        "hang count until they end.",
    ),
    ConfigOption(
        key="state.changelog.dstl.dfs.batch.persist-size-threshold",
        type=MEMORY_SIZE,
        default=10 * _MIB,
        at_least=0,
        at_most=GATHERED_BYTES_MAX,
        field="gathered_max_bytes",
        description="Changes of all partitions together that the driver gathers and stores as one object, if they are "
        "too many for the checkpoint's entry. A partition above its share, or above 1 mb, uploads an object of its "
        "own. Larger: fewer requests with many partitions, more through the driver; 0: nothing is gathered.",
    ),
    ConfigOption(
        key="execution.checkpointing.dir",
        type=URL,
        default=None,
        field="storage_url",
        deprecated_keys=("state.checkpoints.dir",),
        description="Root of the storage: a path or URL; the job's objects are in the directory named like the query. "
        "Required.",
    ),
    ConfigOption(
        key="storage.encryption.key-provider",
        type=KEY_PROVIDER,
        default=None,
        field="encryption_key_provider",
        description="Encrypt what a new job stores, with keys from the environment of each process (`environment`), or "
        "from a provider of your own. Not set: a new job is not encrypted; one that is stays so, and has its keys from "
        "the environment.",
    ),
    ConfigOption(
        key="execution.checkpointing.interval",
        type=DURATION,
        default=None,
        at_least=1,
        field="checkpoint_interval_ms",
        description="Time between the starts of two batches, each of which ends with a checkpoint. A trigger of the "
        "query's writer wins. Not set: as Spark does, a batch follows the one before at once.",
    ),
    ConfigOption(
        key="execution.checkpointing.num-retained",
        type=INTEGER,
        default=3,
        at_least=RETAINED_MIN,
        field="retained_checkpoints",
        deprecated_keys=("state.checkpoints.num-retained",),
        description="Checkpoints that stay complete, the newest included. More: longer back, and more storage.",
    ),
    ConfigOption(
        key="checkpoint.full-every",
        type=INTEGER,
        default=_POLICY.full_every,
        at_least=1,
        at_most=_POLICY.path_max,
        field="full_every",
        description="Every so many checkpoints, and sooner once snapshots were adopted, the entry lists the whole "
        "state and packs small segments together. Smaller: fewer reads at a restart, more bytes written.",
    ),
    ConfigOption(
        key="checkpoint.inline-size-max",
        type=MEMORY_SIZE,
        default=INLINE_BYTES_MAX,
        at_least=0,
        at_most=INLINE_BYTES_MAX,
        field="inline_max_bytes",
        description="Changes of all partitions together that travel inside the checkpoint's own entry; a partition "
        "above its share uploads an object. Smaller: a smaller entry, more objects per checkpoint.",
    ),
    ConfigOption(
        key="execution.state-recovery.path",
        type=RESTORE_POINT,
        default=None,
        field="restore",
        deprecated_keys=("execution.savepoint.path",),
        description="Start a query that has no state of its own, or that was rewound, from this checkpoint of the job, "
        "or from a savepoint or another job's checkpoint, whose state is then copied: the name of one of the job's own "
        "savepoints, `<storage>/<job>/savepoints/<name>`, `<storage>/<job>/chain/<seq>` or `<storage>/<job>` for the "
        "newest checkpoint. Once the query has a checkpoint of its own, the option does nothing.",
    ),
    ConfigOption(
        key="execution.state-recovery.claim-mode",
        type=CLAIM_MODE,
        default=NO_CLAIM,
        field="claim_mode",
        deprecated_keys=("execution.savepoint-restore-mode",),
        description="How the query has what it starts from. `NO_CLAIM`: its first entry holds a copy of the whole "
        "state. `CLONE`: it shares the objects of a job in the same storage, which keeps them until the materializer "
        "has replaced them. It never owns them.",
    ),
    ConfigOption(
        key="execution.state-recovery.ignore-unclaimed-state",
        type=BOOLEAN,
        default=False,
        field="ignore_unclaimed_state",
        deprecated_keys=("execution.savepoint.ignore-unclaimed-state",),
        description="Start although the checkpoint has state of operators that the job does not have any more; that "
        "state is dropped.",
    ),
    *RECOVERY_OPTIONS,
    ConfigOption(
        key="pipeline.max-parallelism",
        type=INTEGER,
        default=128,
        at_least=1,
        at_most=KEY_GROUPS_MAX,
        field="max_parallelism",
        description="Number of key groups: the upper bound of the parallelism. It can never change for a job.",
    ),
    ConfigOption(
        key="parallelism.default",
        type=INTEGER,
        default=None,
        at_least=1,
        at_most=KEY_GROUPS_MAX,
        field="parallelism",
        description="Partitions of every operator, each with a task and a state worker of its own. Not set: "
        "`spark.sql.shuffle.partitions`, but not above `pipeline.max-parallelism`.",
    ),
    ConfigOption(
        key="pipeline.generic-types",
        type=BOOLEAN,
        default=True,
        field="generic_types",
        description="Let state hold pickled objects, which run code of whoever wrote them when they are read. Off: a "
        "job with such a state, declared, stored or by default, is refused (docs/operate/security.md).",
    ),
    ConfigOption(
        key="pipeline.heartbeat.enabled",
        type=BOOLEAN,
        default=None,
        field="heartbeat_enabled",
        description="Run a batch about every second, or at every trigger if that is rarer, although the input is "
        "quiet, so that timers fire. Not set: on if a function of the job has `on_timer`. Holds for the life of a "
        "checkpoint location.",
    ),
    ConfigOption(
        key="pipeline.global-job-parameters",
        type=PARAMETERS,
        default=None,
        field="job_parameters",
        description="Parameters that functions read with `get_job_parameter`.",
    ),
    ConfigOption(
        key="materializer.mode",
        type=choice("sidecar", "embedded", "off"),
        default="sidecar",
        field="materializer_mode",
        description="Who materializes: a process that you start beside the job (`varvite materialize`), a child "
        "process that the driver starts and ends with the query, or nobody.",
    ),
    ConfigOption(
        key="state.worker.idle-timeout",
        type=DURATION,
        default=30 * 60_000,
        at_least=1_000,
        field="worker_idle_timeout_ms",
        description="A state worker without a request for so long ends. Keep it well above the time between two "
        "batches: the next batch has to start the worker and restore its state.",
    ),
    ConfigOption(
        key="metrics.reporter.prom.port",
        type=PORTS,
        default=None,
        field="metrics_ports",
        description="Port on which the driver serves `/metrics`, `/healthz` and `/readyz`, for all queries of its "
        "process that name the same; 0 takes a free one, of a range the first that is free. Not set: it serves none.",
    ),
    ConfigOption(
        key="metrics.reporter.prom.host",
        type=STRING,
        default=None,
        field="metrics_host",
        description="Address that they are served on. Not set: all addresses of the machine.",
    ),
    ConfigOption(
        key="state.worker.placement.enabled",
        type=BOOLEAN,
        default=True,
        field="placement_enabled",
        description="On several executors, let the tasks of a partition ask for the executor that has its state. Off: "
        "Spark gives them to any executor, and a partition that comes to another one restores its state there.",
    ),
)

ALL_OPTIONS: Final = (*JOB_OPTIONS, *ROCKSDB_SETTINGS, *ROCKSDB_OPTIONS, *MATERIALIZER_OPTIONS)
OPTIONS: Final[Mapping[str, ConfigOption]] = {option.key: option for option in ALL_OPTIONS}
"""By current key."""
CURRENT_KEYS: Final[Mapping[str, str]] = {old: option.key for option in ALL_OPTIONS for old in option.deprecated_keys}
"""Deprecated key → current key."""
