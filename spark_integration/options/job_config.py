"""`JobConfig`: every setting of a job, resolved and checked, as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from varvite.changelog.commit import options as commits
from varvite.changelog.commit.gathered_segments import share_bytes
from varvite.changelog.commit.state import CommitPolicy
from varvite.changelog.restore import options as local
from varvite.changelog.restore.local import LocalRecovery
from varvite.changelog.schema.pickled import GENERIC_TYPES
from varvite.changelog.working_stores.options import BACKEND_TYPE, CUSTOM_OPTIONS, ROCKSDB, BackendSettings, MemoryShare
from varvite.changelog.working_stores.rocksdb.settings.options import RocksDBOptions
from varvite.materializer.options import driver, start
from varvite.materializer.options.materializer_config import PERIODIC_ENABLED, MaterializerConfig
from varvite.spark_integration.options.executor_share import workers_per_executor
from varvite.spark_integration.options.rocksdb_config import MemoryBudget, memory_budget, rocksdb_options
from varvite.storage.errors import InvalidRequestError
from varvite.storage.format.records import LogLocation
from varvite.storage.job import options as storage
from varvite.storage.job.log_store import FILESYSTEM
from varvite.storage.object_stores.backoff import Backoff
from varvite.storage.object_stores.open import absolute_url, open_store
from varvite.storage.options.declaration import CONF_PREFIX, options_of
from varvite.storage.options.table import OptionLevel, value_of, values_for
from varvite.storage.transfer import options as transfer
from varvite.storage.transfer.download import DownloadPolicy
from varvite.storage.transfer.upload import UploadPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, kw_only=True)
class JobConfig:
    """Settings of a job; made by `resolve`. The options say what the fields mean."""

    storage_url: str = storage.DIRECTORY.field()
    """The job's objects are below `<storage_url>/<query name>/`. Required."""
    storage_options: Mapping[str, Any] = field(repr=False)
    """fsspec options of the storage's filesystem. May hold secrets: never shown, never logged."""
    encryption_key_provider: str | None = storage.KEY_PROVIDER.field()
    """Not None: a new job is encrypted, and one that is not is refused."""
    changelog_storage: str = storage.LOG_STORAGE.field()
    changelog_base_path: str | None = storage.LOG_BASE_PATH.field()
    changelog_enabled: bool = commits.CHANGELOG_ENABLED.field(default=False)
    backend_type: str = BACKEND_TYPE.field()
    custom_backend_options: Mapping[str, str] | None = CUSTOM_OPTIONS.field(repr=False)
    """Not shown, because people put anything there."""
    rocksdb: RocksDBOptions
    """Settings of each RocksDB store; there is one per operator and partition."""
    rocksdb_memory: MemoryBudget | None
    """Memory that the RocksDB stores of an executor share; None: each has the memory that `rocksdb` says."""
    materializer_mode: Literal["sidecar", "embedded", "off"] = driver.MATERIALIZER_MODE.field()
    materializer: MaterializerConfig = field(repr=False)
    """For all jobs of the storage; `JobPlan.materializer_config` is for this one."""
    heartbeat_enabled: bool | None = driver.HEARTBEAT_ENABLED.field()
    preemptive_persist_threshold_bytes: int = commits.PERSIST_THRESHOLD.field()
    upload_threads: int = transfer.UPLOAD_THREADS.field()
    upload_timeout_ms: int = transfer.UPLOAD_TIMEOUT.field()
    upload_attempts_max: int = transfer.UPLOAD_ATTEMPTS.field()
    upload_in_flight_max_bytes: int = transfer.UPLOAD_IN_FLIGHT.field()
    upload_deadline_ms: int = transfer.UPLOAD_DEADLINE.field()
    runtime_mode: Literal["streaming", "batch", "automatic"] = driver.RUNTIME_MODE.field()
    checkpoint_interval_ms: int | None = driver.CHECKPOINT_INTERVAL.field()
    progress: str = driver.PROGRESS.field()
    retained_checkpoints: int = commits.RETAINED.field()
    full_every: int = commits.FULL_EVERY.field()
    inline_max_bytes: int = commits.INLINE_SIZE.field()
    gathered_max_bytes: int = commits.GATHERED_SIZE.field()
    restore: str | int | None = start.START_PATH.field()
    """Explicit start from `"latest"`, from the checkpoint with this seq, or from the state at a location (see
    `varvite.materializer.restore.origin`); None: an ordinary start."""
    claim_mode: str = start.CLAIM_MODE.field()
    ignore_unclaimed_state: bool = start.IGNORE_UNCLAIMED.field()
    download_threads: int = transfer.DOWNLOAD_THREADS.field()
    download_in_flight_max_bytes: int = transfer.DOWNLOAD_IN_FLIGHT.field()
    recover_from_local: bool = local.FROM_LOCAL.field()
    local_directories: tuple[str, ...] | None = local.LOCAL_DIRECTORIES.field()
    local_flush_interval_ms: int = local.LOCAL_FLUSH_INTERVAL.field()
    local_unused_age_max_ms: int = local.LOCAL_UNUSED_AGE.field()
    local_unused_max_bytes: int | None = local.LOCAL_UNUSED_SIZE.field()
    max_parallelism: int = driver.MAX_PARALLELISM.field()
    parallelism: int | None = driver.PARALLELISM.field()
    """None: `JobPlan.parallelism` has the number."""
    generic_types: bool = GENERIC_TYPES.field()
    job_parameters: Mapping[str, str] = driver.JOB_PARAMETERS.field(repr=False)
    """Not shown, because people put anything there."""
    worker_idle_timeout_ms: int = driver.WORKER_IDLE_TIMEOUT.field()
    metrics_ports: range | None = driver.METRICS_PORT.field()
    metrics_host: str | None = driver.METRICS_HOST.field()
    placement_enabled: bool = driver.PLACEMENT_ENABLED.field()
    small_batch_rows_max: int = driver.SMALL_BATCH_ROWS.field()
    small_batch_max_bytes: int = driver.SMALL_BATCH_SIZE.field()

    def __post_init__(self) -> None:
        """Raises `InvalidRequestError` for options that contradict each other."""
        if self.parallelism is not None and self.parallelism > self.max_parallelism:
            raise InvalidRequestError(
                f"{driver.PARALLELISM.key} is {self.parallelism}, but {driver.MAX_PARALLELISM.key} only "
                f"{self.max_parallelism}; lower the one, or raise the other if the job is new"
            )
        _ = self.materializer.policy, self.upload_policy, self.commit_policy, self.log_location

    @property
    def log_location(self) -> LogLocation | None:
        """Location of a new job's log data; None: beside the chain. Raises `InvalidRequestError`."""
        if self.changelog_storage != FILESYSTEM:
            if self.changelog_base_path is not None:
                raise InvalidRequestError(
                    f"{storage.LOG_BASE_PATH.key} is of the log storage {FILESYSTEM}, but {storage.LOG_STORAGE.key} is "
                    f"{self.changelog_storage!r}; leave one of them out"
                )
            return LogLocation(type=self.changelog_storage)
        if self.changelog_base_path is None:
            return None
        return LogLocation(type=FILESYSTEM, base_path=open_store(self.changelog_base_path).url)

    @property
    def commit_policy(self) -> CommitPolicy:
        """Limits that keep the chain short."""
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
        """Limits of a state worker's uploads; its bytes in flight are an equal part of the executor's.

        Args:
            parallelism: State workers of the job.
            executors: Executors that share them.
        """
        policy, workers = self.upload_policy, workers_per_executor(parallelism, executors)
        return replace(policy, in_flight_bytes=max(1, policy.in_flight_bytes // workers))

    @property
    def download_policy(self) -> DownloadPolicy:
        """Limits of a restore."""
        return DownloadPolicy(self.download_threads, self.download_in_flight_max_bytes)

    @property
    def local_recovery(self) -> LocalRecovery | None:
        """Local recovery; None: state goes with its executor."""
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
        """True if working stores come from a factory of the user's."""
        return ":" in self.backend_type

    def backend_options(self, operators: int, parallelism: int, executors: int) -> BackendSettings:
        """Settings with which a state worker opens its stores; `WorkingStores` reads them.

        Args:
            operators: Operators of the job; a state worker has a store for each.
            parallelism: State workers of the job.
            executors: Executors that share them.

        Raises:
            InvalidRequestError: The memory budget is too small for that number of state workers.
        """
        if self.has_custom_backend:
            return BackendSettings(factory=dict(self.custom_backend_options or {}))
        if self.backend_type != ROCKSDB:
            return BackendSettings()
        options = {name: getattr(self.rocksdb, name) for name in options_of(RocksDBOptions)}
        budget = self.rocksdb_memory
        if budget is None:
            return BackendSettings(rocksdb=options)
        memory = MemoryShare(budget.worker_bytes(parallelism, executors), budget.write_buffer_ratio, operators)
        return BackendSettings(rocksdb=options, memory=memory)

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
    values = values_for(JobConfig, levels)
    key = storage.DIRECTORY.key
    if "storage_url" not in values:
        raise InvalidRequestError(
            f"{key} is not set: say where checkpoints are kept, for example with "
            f"env.get_checkpoint_config().set_checkpoint_storage('file:///...'), or --conf {CONF_PREFIX}{key}=..."
        )
    # Here, on the driver: state workers have working directories of their own.
    values["storage_url"] = absolute_url(values["storage_url"])
    values.setdefault("job_parameters", {})
    storage_options: dict[str, Any] = {}
    for level in reversed(levels):
        storage_options.update(level.storage_options)
    return JobConfig(
        **values,
        storage_options=storage_options,
        rocksdb=rocksdb_options(levels),
        rocksdb_memory=memory_budget(levels),
        materializer=_materializer(levels, values["storage_url"], storage_options),
    )


def _materializer(
    levels: Sequence[OptionLevel], storage_url: str, storage_options: Mapping[str, Any]
) -> MaterializerConfig:
    values = values_for(MaterializerConfig, levels)
    values |= {"storage_url": storage_url, "log_storage": value_of(storage.LOG_STORAGE, levels)}
    if not value_of(PERIODIC_ENABLED, levels):
        values["interval_ms"] = None
    return MaterializerConfig(**values, storage_options=storage_options)


_OF_KEPT_STATE: Final = (
    storage.DIRECTORY, storage.KEY_PROVIDER, storage.LOG_STORAGE, storage.LOG_BASE_PATH, driver.MATERIALIZER_MODE,
    local.FROM_LOCAL, start.START_PATH,
)  # fmt: skip


def levels_of_batch_job(levels: Sequence[OptionLevel], directory: str) -> list[OptionLevel]:
    """The levels of a job in BATCH mode, which keeps no state: its storage is a directory of its own.

    Args:
        levels: Those of the program, strongest first.
        directory: Path of the storage.

    Raises:
        InvalidRequestError: The job is to start from a state.
    """
    if any(start.START_PATH.key in level.values for level in levels):
        raise InvalidRequestError(
            f"{start.START_PATH.key} is set, but a job in BATCH mode begins without state: leave it out, or set "
            f"{driver.RUNTIME_MODE.key} to STREAMING"
        )
    kept = {option.key for option in _OF_KEPT_STATE}
    others = [{key: value for key, value in level.values.items() if key not in kept} for level in levels]
    values = {storage.DIRECTORY.key: directory, driver.MATERIALIZER_MODE.key: "off"}
    return [OptionLevel("BATCH mode", values, {}), *[OptionLevel("below it", each, {}) for each in others]]
