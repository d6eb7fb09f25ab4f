"""`JobConfig`: every setting of a job, resolved and checked, as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from varvite.changelog.commit.gathered_segments import share_bytes
from varvite.changelog.commit.state import CommitPolicy
from varvite.changelog.restore.local import LocalRecovery
from varvite.materializer.options.materializer_config import MaterializerConfig
from varvite.spark_integration.options.executor_share import workers_per_executor
from varvite.spark_integration.options.job_options import JOB_OPTIONS, ROCKSDB_OPTIONS
from varvite.spark_integration.options.materializer_options import MATERIALIZER_OPTIONS
from varvite.spark_integration.options.rocksdb_config import MemoryBudget, memory_budget, rocksdb_options
from varvite.storage.errors import InvalidRequestError
from varvite.storage.format.records import LogLocation
from varvite.storage.job.log_store import FILESYSTEM
from varvite.storage.object_stores.backoff import Backoff
from varvite.storage.object_stores.open import absolute_url, open_store
from varvite.storage.transfer.download import DownloadPolicy
from varvite.storage.transfer.upload import UploadPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from varvite.changelog.working_stores.rocksdb.options import RocksDBOptions
    from varvite.spark_integration.options.levels import OptionLevel
    from varvite.spark_integration.options.types import ConfigOption


@dataclass(frozen=True, kw_only=True)
class JobConfig:
    """Settings of a job; made by `resolve`. Each field's option, default and range are in `options`."""

    storage_url: str
    """Root of the storage; the job's objects are below `<storage_url>/<query name>/`."""
    storage_options: Mapping[str, Any] = field(repr=False)
    """fsspec options of the storage's filesystem. May hold secrets: never shown, never logged."""
    encryption_key_provider: str | None
    """Where the keys of an encrypted job come from; set: a new job is encrypted, and one that is not is refused."""
    changelog_storage: str
    """Where a new job's log data is: filesystem, or `module:qualified.name` of a factory of log stores."""
    changelog_base_path: str | None
    """Of filesystem: a root other than the storage's; None: in the storage itself."""
    changelog_enabled: bool
    """State changes go to the changelog (fast checkpoints); otherwise every checkpoint writes a snapshot."""
    backend_type: str
    """Where state workers keep working state: hashmap (Python objects: fast), rocksdb (on local disk: larger than
    memory), or `module:qualified.name` of a factory of working stores."""
    custom_backend_options: Mapping[str, str] = field(repr=False)
    """What such a factory is given; not shown, because people put anything there."""
    rocksdb: RocksDBOptions
    """Memory, files and threads of each RocksDB store, one per operator and partition."""
    rocksdb_memory: MemoryBudget | None
    """Memory that the RocksDB stores of an executor share; None: each has the memory that `rocksdb` says."""
    materializer_mode: Literal["sidecar", "embedded", "off"]
    """Who materializes: a process of its own, a child of the driver, or nobody."""
    materializer: MaterializerConfig = field(repr=False)
    """What the materializer is told, for all jobs of the storage; see `JobPlan.materializer_config`."""
    heartbeat_enabled: bool | None
    """Batches although the input is quiet; None: if a function has timers."""
    periodic_materialize_enabled: bool
    """Materialize by the clock; otherwise only by the length of the log."""
    materialize_interval_ms: int
    """Milliseconds between materializations. Shorter: shorter replay, more background work."""
    materialize_failures_max: int
    """Consecutive failures of the materializer above which it reports the state as failing."""
    preemptive_persist_threshold_bytes: int
    """Bytes of changes from which on one state worker uploads them while the function goes on."""
    upload_threads: int
    """Objects that one state worker uploads at the same time."""
    upload_timeout_ms: int
    """Milliseconds after which an upload without an answer is joined by a second attempt."""
    upload_attempts_max: int
    """Attempts of one upload, the first included."""
    upload_in_flight_max_bytes: int
    """Bytes that an executor's state workers have handed to uploads and not yet seen done (back-pressure above)."""
    checkpoint_interval_ms: int | None
    """Milliseconds between the starts of batches, if the query has no trigger; None: as Spark does."""
    retained_checkpoints: int
    """Checkpoints that stay complete, the newest included; at least 2. More: longer back, more storage."""
    full_every: int
    """Every so many commits a full entry. Smaller: fewer reads at a restart, more bytes written."""
    upload_deadline_ms: int
    """Milliseconds after which an upload that is not done fails, and the batch with it."""
    inline_max_bytes: int
    """Bytes of changes of all partitions together that travel inside the entry; above: objects."""
    gathered_max_bytes: int
    """Bytes of changes of all partitions together that the driver gathers in one object, if the entry cannot hold them;
    a partition above its share uploads an object of its own."""
    restore: str | int | None
    """Explicit start from `"latest"`, from the checkpoint with this seq, or from the state at a location (see
    `varvite.materializer.restore.origin`); None: an ordinary start."""
    claim_mode: str
    """NO_CLAIM or CLONE: whether the job copies the state that it starts from elsewhere, or shares it."""
    ignore_unclaimed_state: bool
    """Drop state of operators that the job no longer has, instead of refusing to start."""
    download_threads: int
    """Requests at the same time with which a state worker restores."""
    download_in_flight_max_bytes: int
    """Bytes that a restoring state worker has asked for and not yet written."""
    """A restoring state worker may write past the page cache."""
    recover_from_local: bool
    """State workers keep their state on the host for whoever comes after them."""
    local_directories: tuple[str, ...] | None
    """Where; None: below the temporary directory."""
    local_flush_interval_ms: int
    """Milliseconds of changes, at most, that a crash of a state worker loses there."""
    local_unused_age_max_ms: int
    """Milliseconds after which what nobody uses there is removed."""
    local_unused_max_bytes: int | None
    """Bytes that may be there unused; None: any number."""
    max_parallelism: int
    """Number of key groups; never changes for a job."""
    parallelism: int | None
    """Partitions of each operator; None: `spark.sql.shuffle.partitions` (`JobPlan.parallelism` has the number)."""
    generic_types: bool
    """State may hold pickled objects."""
    job_parameters: Mapping[str, str] = field(repr=False)
    """What functions read with `get_job_parameter`; not shown, because people put anything there."""
    worker_idle_timeout_ms: int
    """Milliseconds without a request after which a state worker ends."""
    metrics_ports: range | None
    """Ports of which the driver serves its metrics on the first that is free; None serves nothing."""
    metrics_host: str | None
    """Address that they are served on; None: all of this machine's."""
    placement_enabled: bool
    """Tasks ask for the executor that has their partition's state; no meaning on a single one."""

    def __post_init__(self) -> None:
        """Relations between options. Raises `InvalidRequestError`."""
        if self.parallelism is not None and self.parallelism > self.max_parallelism:
            raise InvalidRequestError(
                f"parallelism.default is {self.parallelism}, but pipeline.max-parallelism only {self.max_parallelism}; "
                "lower the one, or raise the other if the job is new"
            )
        _ = self.materializer.policy, self.upload_policy, self.commit_policy, self.log_location

    @property
    def log_location(self) -> LogLocation | None:
        """Where a new job's log data is; None: beside the chain. Raises `InvalidRequestError`."""
        if self.changelog_storage != FILESYSTEM:
            if self.changelog_base_path is not None:
                raise InvalidRequestError(
                    "state.changelog.dstl.dfs.base-path is of the log storage filesystem, but state.changelog.storage "
                    f"is {self.changelog_storage!r}; leave one of them out"
                )
            return LogLocation(type=self.changelog_storage)
        if self.changelog_base_path is None:
            return None
        return LogLocation(type=FILESYSTEM, base_path=open_store(self.changelog_base_path).url)

    @property
    def commit_policy(self) -> CommitPolicy:
        """How the chain is kept short."""
        return CommitPolicy(
            retained=self.retained_checkpoints, full_every=self.full_every, inline_max_bytes=self.inline_max_bytes
        )

    @property
    def upload_policy(self) -> UploadPolicy:
        """Limits of the driver's uploads, and of those of all state workers of an executor together."""
        return UploadPolicy(
            uploads=self.upload_threads,
            in_flight_bytes=self.upload_in_flight_max_bytes,
            hedge_after_s=self.upload_timeout_ms / 1000,
            deadline_s=self.upload_deadline_ms / 1000,
            backoff=Backoff(attempts=self.upload_attempts_max, initial_s=0.2, maximum_s=5.0),
        )

    def worker_uploads(self, parallelism: int, executors: int) -> UploadPolicy:
        """Limits of a state worker's uploads, of which what is in flight is its part of the executor's.

        Args:
            parallelism: State workers of the job.
            executors: That share them.
        """
        policy, workers = self.upload_policy, workers_per_executor(parallelism, executors)
        return replace(policy, in_flight_bytes=max(1, policy.in_flight_bytes // workers))

    @property
    def download_policy(self) -> DownloadPolicy:
        """Limits of a restore."""
        return DownloadPolicy(self.download_threads, self.download_in_flight_max_bytes)

    @property
    def local_recovery(self) -> LocalRecovery | None:
        """How state is kept on the hosts; None: it goes with the executor."""
        if not self.recover_from_local:
            return None
        return LocalRecovery(
            directories=self.local_directories or (),
            flush_interval_ms=self.local_flush_interval_ms,
            unused_age_max_ms=self.local_unused_age_max_ms,
            unused_bytes_max=self.local_unused_max_bytes,
        )

    @property
    def has_custom_backend(self) -> bool:
        """Whether working stores come from a factory of the user's."""
        return ":" in self.backend_type

    def backend_options(self, operators: int, parallelism: int, executors: int) -> dict[str, Any]:
        """What a state worker needs to open its stores; `WorkingStores` reads it.

        Args:
            operators: Of the job; a state worker has a store for each.
            parallelism: State workers of the job.
            executors: That share them.

        Raises:
            InvalidRequestError: The memory budget is too small for so many state workers.
        """
        if self.has_custom_backend:
            return {"options": dict(self.custom_backend_options)}
        if self.backend_type != "rocksdb":
            return {}
        options = {option.field: getattr(self.rocksdb, option.field) for option in ROCKSDB_OPTIONS}
        budget = self.rocksdb_memory
        if budget is None:
            return {"options": options}
        return {
            "options": options,
            "memory_bytes": budget.worker_bytes(parallelism, executors),
            "write_buffer_ratio": budget.write_buffer_ratio,
            "stores": operators,
        }

    def inline_bytes_per_task(self, tasks: int) -> int:
        """Largest segment that one of `tasks` partitions (of all operators together) may send inline."""
        return share_bytes(tasks, self.inline_max_bytes, self.gathered_max_bytes)


def resolve(levels: Sequence[OptionLevel]) -> JobConfig:
    """The configuration that these levels make together.

    Args:
        levels: Strongest first.

    Raises:
        InvalidRequestError: A required option is missing, two options contradict each other, or the storage's location
            cannot be one.
    """
    fields = _fields(JOB_OPTIONS, levels)
    if fields["storage_url"] is None:
        raise InvalidRequestError(
            "execution.checkpointing.dir is not set: say where checkpoints are kept, for example with "
            "env.get_checkpoint_config().set_checkpoint_storage('file:///...'), or --conf "
            "spark.varvite.execution.checkpointing.dir=..."
        )
    # Here, on the driver: state workers have working directories of their own.
    fields["storage_url"] = absolute_url(fields["storage_url"])
    storage_options: dict[str, Any] = {}
    for level in reversed(levels):
        storage_options.update(level.storage_options)
    fields["changelog_enabled"] = bool(fields["changelog_enabled"])
    for name in ("job_parameters", "custom_backend_options"):
        fields[name] = fields[name] or {}
    return JobConfig(
        **fields,
        storage_options=storage_options,
        rocksdb=rocksdb_options(levels),
        rocksdb_memory=memory_budget(levels),
        materializer=_materializer(fields, _fields(MATERIALIZER_OPTIONS, levels), storage_options),
    )


def _materializer(
    job: Mapping[str, Any], own: Mapping[str, Any], storage_options: Mapping[str, Any]
) -> MaterializerConfig:
    directory = own["working_directory"]
    return MaterializerConfig(
        **{
            **own,
            "working_directory": None if directory is None else Path(directory),
            "metrics_host": own["metrics_host"] or "",
        },
        storage_url=job["storage_url"],
        storage_options=storage_options,
        key_provider=job["encryption_key_provider"],
        log_storage=job["changelog_storage"],
        interval_ms=job["materialize_interval_ms"] if job["periodic_materialize_enabled"] else None,
        max_failures_allowed=job["materialize_failures_max"],
    )


def _fields(options: Sequence[ConfigOption], levels: Sequence[OptionLevel]) -> dict[str, Any]:
    """Field → value of the strongest level that sets it, else the default."""
    found: dict[str, Any] = {}
    for option in options:
        setting = next((level.values for level in levels if option.key in level.values), None)
        found[option.field] = option.default if setting is None else setting[option.key]
    return found
