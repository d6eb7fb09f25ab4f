"""Configuration of a materializer: one frozen value, from code, the command line or `spark.varvite.*` keys."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  msgspec reads the annotations at run time
from dataclasses import dataclass, field
from pathlib import Path  # noqa: TC003  as above
from typing import TYPE_CHECKING, Any, Final

from varvite.changelog.retention.collector import UPLOAD_GRACE_S
from varvite.changelog.working_stores.rocksdb.settings.options import RocksDBOptions
from varvite.materializer.options.policy import MaterializePolicy
from varvite.storage.errors import InvalidRequestError
from varvite.storage.format.layout import check_job_name
from varvite.storage.job.options import DIRECTORY, KEY_PROVIDER, LOG_STORAGE
from varvite.storage.job.store import JobStore
from varvite.storage.options.declaration import ConfigOption, check_options, options_of
from varvite.storage.options.kinds import (
    BOOLEAN,
    DURATION,
    INTEGER,
    LOCAL_PATH,
    MEMORY_SIZE,
    PORT_MAX,
    STRING,
    number_above,
)  # fmt: skip

if TYPE_CHECKING:
    from varvite.storage.object_stores.contract import ObjectStore

VARIABLE_PREFIX: Final = "VARVITE_MATERIALIZE"
"""Precedes the name of an option of `varvite materialize` in an environment variable."""
FOLLOWER_MEMORY_MIN_BYTES: Final = 4 << 20
LEVEL0_FILES_EXTRA: Final = 32
"""Compaction is decided once per snapshot; RocksDB compacts by itself only if a fold flushes very many files."""
PERIODIC_ENABLED: Final = ConfigOption(
    key="state.changelog.periodic-materialize.enabled",
    type=BOOLEAN,
    default=True,
    description="Materialize by the clock. Off: only the length of the log triggers a materialization.",
)
WORKING_DIRECTORY: Final = ConfigOption(
    key="materializer.working-directory",
    type=LOCAL_PATH,
    command_name="--working-directory",
    description="Local directory of the materializer's RocksDB copies, kept between runs as a cache.",
    unset="one in the user's cache directory",
)
_TRIGGERS: Final = options_of(MaterializePolicy)


@dataclass(frozen=True, kw_only=True)
class MaterializerConfig:
    """Storage, intervals and limits of a materializer."""

    storage_url: str = DIRECTORY.field()
    """Jobs are `<root>/<job>/`. Required."""
    storage_options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """fsspec's options for that URL."""
    key_provider: str | None = KEY_PROVIDER.field()
    """None: the one that the environment names."""
    log_storage: str | None = LOG_STORAGE.field(default=None)
    """A factory of log stores that may be imported; None: the one that the environment names."""
    job: str | None = None
    """Name of the one job to follow; None follows all jobs under the root."""
    interval_ms: int | None = _TRIGGERS["interval_ms"].field()
    log_bytes: int | None = _TRIGGERS["log_bytes"].field()
    log_batches: int | None = _TRIGGERS["log_batches"].field()
    log_ratio: float | None = _TRIGGERS["log_ratio"].field()
    space_min_bytes: int = _TRIGGERS["space_min_bytes"].field()
    replay_ms: int | None = _TRIGGERS["replay_ms"].field()
    space_ratio: float = ConfigOption(
        key="materializer.space-ratio",
        type=number_above(1),
        default=1.35,
        command_name="--space-ratio",
        description="Rewrite the files of a range of key groups before they are uploaded when they have about this "
        "many bytes per byte of live state. Smaller: less storage, more bytes uploaded.",
    ).field()
    max_failures_allowed: int = _TRIGGERS["max_failures_allowed"].field()
    poll_ms: int = ConfigOption(
        key="materializer.poll-interval",
        type=DURATION,
        default=1_000,
        at_least=1,
        command_name="--poll",
        description="Time between two reads of a job's chain by the materializer.",
    ).field()
    discovery_ms: int = ConfigOption(
        key="materializer.discovery-interval",
        type=DURATION,
        default=30_000,
        at_least=1,
        description="Time between two listings of the storage for new jobs, if the materializer follows all jobs.",
    ).field()
    collect_ms: int | None = ConfigOption(
        key="materializer.collect-interval",
        type=DURATION,
        default=600_000,
        at_least=1,
        command_name="--collect-interval",
        description="Time between two garbage collections of a job's objects. Much garbage is collected sooner.",
    ).field()
    """None collects nothing."""
    grace_ms: int = ConfigOption(
        key="materializer.grace",
        type=DURATION,
        default=round(UPLOAD_GRACE_S * 1_000),
        at_least=0,
        command_name="--grace",
        description="An upload that was never published counts as abandoned, and is deleted, above this age.",
    ).field()
    retention_ms: int | None = ConfigOption(
        key="materializer.retention",
        type=DURATION,
        at_least=0,
        command_name="--retention",
        description="Keep all checkpoints newer than this, by the job's own times, besides those that "
        "`execution.checkpointing.num-retained` keeps; 0 drops what earlier settings kept. Longer: further back, more "
        "storage.",
        unset="what is kept by time stays",
    ).field()
    parallel: int = ConfigOption(
        key="materializer.parallel",
        type=INTEGER,
        default=2,
        at_least=1,
        command_name="--parallel",
        description="Ranges of key groups materialized at the same time; each uses about one CPU.",
    ).field()
    memory_bytes: int = ConfigOption(
        key="materializer.memory",
        type=MEMORY_SIZE,
        default=512 << 20,
        at_least=FOLLOWER_MEMORY_MIN_BYTES,
        command_name="--memory",
        description="Memory of the RocksDB stores of all ranges that are being materialized, in equal parts.",
    ).field()
    disk_bytes: int | None = ConfigOption(
        key="materializer.disk",
        type=MEMORY_SIZE,
        at_least=1,
        command_name="--disk",
        description="Evict the least recently used local copies above this total size. They are fetched again when "
        "they are needed.",
        unset="no limit",
    ).field()
    bandwidth_bytes_per_s: int | None = ConfigOption(
        key="materializer.bandwidth",
        type=MEMORY_SIZE,
        at_least=64 << 10,
        command_name="--bandwidth",
        description="Bytes per second that the materializer exchanges with the storage, log and snapshots, both "
        "directions together.",
        unset="no limit",
    ).field()
    metrics_port: int | None = ConfigOption(
        key="materializer.metrics-port",
        type=INTEGER,
        at_least=0,
        at_most=PORT_MAX,
        command_name="--metrics-port",
        description="Port on which the materializer serves `/metrics`, `/healthz` and `/readyz`; 0 takes a free one.",
        unset="nothing is served",
    ).field()
    metrics_host: str | None = ConfigOption(
        key="materializer.metrics-host",
        type=STRING,
        command_name="--metrics-host",
        description="Address on which the materializer serves metrics and health.",
        unset="all addresses of the machine",
    ).field()
    working_directory: Path | None = WORKING_DIRECTORY.field()  # noqa: RUF009  None is no mutable default
    """A cache (I9)."""
    share: bool = ConfigOption(
        key="materializer.share",
        type=BOOLEAN,
        default=False,
        command_name="--share",
        description="Share the work with other materializers of the same storage.",
    ).field()
    """Through `members/`."""
    stop_ms: int = 20_000
    """Time from SIGTERM to the hard end of a step that does not stop by itself."""

    def __post_init__(self) -> None:
        """Raises `InvalidRequestError` for values that cannot be right, alone or together."""
        if not self.storage_url:
            raise InvalidRequestError("there is no storage to work on: give --storage")
        if self.job is not None:
            check_job_name(self.job)
        check_options(self)
        if self.stop_ms < 1:
            raise InvalidRequestError(f"stop_ms must be at least 1 ms, not {self.stop_ms}")
        if self.memory_bytes < self.parallel * FOLLOWER_MEMORY_MIN_BYTES:
            raise InvalidRequestError(
                f"{self.memory_bytes} bytes of memory are too little for {self.parallel} ranges at the same time; "
                f"each needs at least {FOLLOWER_MEMORY_MIN_BYTES}"
            )

    def job_store(self, root: ObjectStore, job: str) -> JobStore:
        """The objects of a job."""
        return JobStore(root, job, key_provider=self.key_provider, log_storage=self.log_storage)

    @property
    def follower_options(self) -> RocksDBOptions:
        """Options of the RocksDB store of one range that is being materialized, with its part of the memory."""
        part = self.memory_bytes // self.parallel
        return RocksDBOptions(
            write_buffer_size_bytes=part // 4,
            block_cache_size_bytes=part // 2,
            recent_values_size_bytes=0,
            level0_files_extra=LEVEL0_FILES_EXTRA,
        )

    @property
    def policy(self) -> MaterializePolicy:
        """The triggers: the part that decides when a range is due."""
        return MaterializePolicy(**{name: getattr(self, name) for name in _TRIGGERS})
