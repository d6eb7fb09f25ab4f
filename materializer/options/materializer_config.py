"""Configuration of a materializer: one frozen value, from code, the command line or `spark.varvite.*` keys."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping  # noqa: TC003  msgspec reads the annotations at run time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from varvite.changelog.retention.collector import UPLOAD_GRACE_S
from varvite.changelog.working_stores.rocksdb.options import RocksDBOptions
from varvite.materializer.fold.policy import (
    DEFAULT_INTERVAL_MS,
    DEFAULT_LOG_BATCHES,
    DEFAULT_LOG_BYTES,
    DEFAULT_LOG_RATIO,
    DEFAULT_MAX_FAILURES,
    DEFAULT_REPLAY_MS,
    MaterializePolicy,
)
from varvite.materializer.options.foreign_names import JOB_OPTION_NAMES, STORAGE_OPTION_PREFIX
from varvite.storage.errors import InvalidRequestError
from varvite.storage.format.layout import check_job_name
from varvite.storage.job.store import JobStore
from varvite.storage.options.table import read_storage_option
from varvite.storage.units import parse_duration_ms, parse_size_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from varvite.storage.object_stores.contract import ObjectStore

PROPERTY_PREFIX: Final = "spark.varvite."
VARIABLE_PREFIX: Final = "VARVITE_MATERIALIZE"
"""Before the name of an option of `varvite materialize`, as an environment variable."""
DEFAULT_POLL_MS: Final = 1_000
DEFAULT_DISCOVERY_MS: Final = 30_000
DEFAULT_COLLECT_MS: Final = 60_000
DEFAULT_GRACE_MS: Final = round(UPLOAD_GRACE_S * 1_000)
DEFAULT_STOP_MS: Final = 20_000
DEFAULT_SPACE_RATIO: Final = 1.35
DEFAULT_PARALLEL: Final = 2
DEFAULT_MEMORY_BYTES: Final = 512 << 20
FOLLOWER_MEMORY_MIN_BYTES: Final = 4 << 20
LEVEL0_FILES_EXTRA: Final = 32
"""What is compacted is decided once per snapshot; by RocksDB itself only if a fold flushes very many files."""
PORT_MAX: Final = 65_535


@dataclass(frozen=True, kw_only=True)
class MaterializerConfig:
    """What a materializer works on, how often, and within which limits."""

    storage_url: str
    """Root of the storage: jobs are `<root>/<job>/`."""
    storage_options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """fsspec's options for that URL."""
    key_provider: str | None = None
    """Where the keys of encrypted jobs come from: `environment` or `module:qualified.name`; None: as the environment
    says."""
    log_storage: str | None = None
    """A factory of log stores that may be imported; None: the one that the environment names."""
    job: str | None = None
    """Name of the one job to follow; None follows all jobs under the root."""
    interval_ms: int | None = DEFAULT_INTERVAL_MS
    """Time from one materialization of a range to the next; None leaves it to the other triggers."""
    log_bytes: int | None = DEFAULT_LOG_BYTES
    """Log of a range, in bytes, from which on it is materialized at once."""
    log_batches: int | None = DEFAULT_LOG_BATCHES
    """Batches after a range's base from which on it is materialized at once."""
    log_ratio: float | None = DEFAULT_LOG_RATIO
    """Bytes of log per byte of base from which on a range is materialized at once."""
    replay_ms: int | None = DEFAULT_REPLAY_MS
    """Estimated time of replaying a range's log from which on it is materialized at once."""
    max_failures_allowed: int = DEFAULT_MAX_FAILURES
    """Consecutive failures of a range above which it is reported as failing; it is tried again all the same."""
    poll_ms: int = DEFAULT_POLL_MS
    """Time between two looks at a job's chain."""
    discovery_ms: int = DEFAULT_DISCOVERY_MS
    """Time between two listings of the root for new jobs (only without `job`)."""
    collect_ms: int | None = DEFAULT_COLLECT_MS
    """Time between two garbage collections of a job; None collects nothing."""
    grace_ms: int = DEFAULT_GRACE_MS
    """Age from which on an upload that was never published counts as abandoned."""
    space_ratio: float = DEFAULT_SPACE_RATIO
    """Bytes of a range's files per byte of its live state, as estimated, from which on they are rewritten before they
    are uploaded; above 1."""
    retention_ms: int | None = None
    """Checkpoints of the newest so long stay complete, by the job's own times, besides those that the job retains by
    their number; 0: only those, so what was kept by time is let go; None: what is kept by time stays as it is."""
    parallel: int = DEFAULT_PARALLEL
    """Ranges materialized at the same time."""
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    """Memory of the RocksDB stores of all ranges that are being materialized."""
    disk_bytes: int | None = None
    """Size of the local copies above which those that were longest not used are removed; None: no limit."""
    bandwidth_bytes_per_s: int | None = None
    """Bytes per second of log and snapshots, read and written together; None: no limit."""
    metrics_port: int | None = None
    """Port of `/metrics`, `/healthz` and `/readyz`; 0 takes a free one, None serves nothing."""
    metrics_host: str = ""
    """Address that they are served on; empty: all of this machine's."""
    working_directory: Path | None = None
    """Where the local RocksDB copies are kept between runs (a cache, I9); None: under the temporary directory."""
    share: bool = False
    """Share the ranges with other materializers of the same storage, through `members/`."""
    stop_ms: int = DEFAULT_STOP_MS
    """Time from SIGTERM to the hard end of a step that does not stop by itself."""

    def __post_init__(self) -> None:
        if not self.storage_url:
            raise InvalidRequestError("the materializer needs a storage URL: give --storage")
        if self.job is not None:
            check_job_name(self.job)
        for name in ("poll_ms", "discovery_ms", "stop_ms"):
            if getattr(self, name) < 1:
                raise InvalidRequestError(f"{name} must be at least 1 ms, not {getattr(self, name)}")
        if self.grace_ms < 0:
            raise InvalidRequestError(f"grace_ms must be at least 0, not {self.grace_ms}")
        if self.collect_ms is not None and self.collect_ms < 1:
            raise InvalidRequestError(f"collect_ms must be at least 1, not {self.collect_ms}")
        self._check_resources()
        _ = self.policy

    def _check_resources(self) -> None:
        """Raises `InvalidRequestError` for limits that cannot be kept."""
        if (self.retention_ms or 0) < 0:
            raise InvalidRequestError(f"retention_ms must be at least 0, not {self.retention_ms}")
        if self.parallel < 1:
            raise InvalidRequestError(f"parallel must be at least 1, not {self.parallel}")
        if not 1 < self.space_ratio < math.inf:
            raise InvalidRequestError(f"space_ratio must be above 1 and finite, not {self.space_ratio}")
        if self.memory_bytes < self.parallel * FOLLOWER_MEMORY_MIN_BYTES:
            raise InvalidRequestError(
                f"{self.memory_bytes} bytes of memory are too little for {self.parallel} ranges at the same time; "
                f"each needs at least {FOLLOWER_MEMORY_MIN_BYTES}"
            )
        for name in ("disk_bytes", "bandwidth_bytes_per_s"):
            limit = getattr(self, name)
            if limit is not None and limit < 1:
                raise InvalidRequestError(f"{name} must be at least 1, not {limit}")
        if self.metrics_port is not None and not 0 <= self.metrics_port <= PORT_MAX:
            raise InvalidRequestError(f"metrics_port is {self.metrics_port}; use 0 to {PORT_MAX}")

    def job_store(self, root: ObjectStore, job: str) -> JobStore:
        """The objects of a job."""
        return JobStore(root, job, key_provider=self.key_provider, log_storage=self.log_storage)

    @property
    def follower_options(self) -> RocksDBOptions:
        """Of the RocksDB store of one range that is being materialized: its part of the memory."""
        part = self.memory_bytes // self.parallel
        return RocksDBOptions(
            write_buffer_size_bytes=part // 4,
            block_cache_size_bytes=part // 2,
            recent_values_size_bytes=0,
            level0_files_extra=LEVEL0_FILES_EXTRA,
        )

    @property
    def policy(self) -> MaterializePolicy:
        """The part that decides when a range is due."""
        return MaterializePolicy(
            interval_ms=self.interval_ms,
            log_bytes=self.log_bytes,
            log_batches=self.log_batches,
            log_ratio=self.log_ratio,
            replay_ms=self.replay_ms,
            max_failures_allowed=self.max_failures_allowed,
        )

    def with_properties(self, properties: Mapping[str, str]) -> MaterializerConfig:
        """This configuration, changed by `spark.varvite.*` keys (`PROPERTIES`, Flink's names where Flink has one).

        Keys without that prefix are left alone, and so are options of the job that a materializer has no use for.
        Raises `InvalidRequestError` for a key that does not exist, and for a value that does not parse.
        """
        return replace(self, **parse_properties(properties))


def parse_properties(properties: Mapping[str, str]) -> dict[str, Any]:
    """Fields of `MaterializerConfig` that these `spark.varvite.*` keys set; errors as in `with_properties`."""
    changes: dict[str, Any] = {}
    storage_options: dict[str, Any] = {}
    for key, text in properties.items():
        if not key.startswith(PROPERTY_PREFIX):
            continue
        name = key.removeprefix(PROPERTY_PREFIX)
        if name == OLDER_DIRECTORY and PROPERTY_PREFIX + DIRECTORY in properties:
            continue
        if name in PROPERTIES:
            field_name, parse = PROPERTIES[name]
            changes[field_name] = _parsed(key, text, parse)
        elif name.startswith(STORAGE_OPTION_PREFIX):
            storage_options[name.removeprefix(STORAGE_OPTION_PREFIX)] = read_storage_option(key, text)
        elif name != PERIODIC_ENABLED and name not in JOB_OPTION_NAMES:
            close = difflib.get_close_matches(name, [*PROPERTIES, *JOB_OPTION_NAMES], 1)
            hint = (
                f"did you mean {PROPERTY_PREFIX}{close[0]}?"
                if close
                else "docs/reference/configuration.md lists all options"
            )
            raise InvalidRequestError(f"{key} is no option of varvite; {hint}")
    if storage_options:
        changes["storage_options"] = storage_options
    enabled = properties.get(PROPERTY_PREFIX + PERIODIC_ENABLED)
    if enabled is not None and not _parsed(PROPERTY_PREFIX + PERIODIC_ENABLED, enabled, _boolean):
        changes["interval_ms"] = None
    return changes


def _parsed(key: str, text: str, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(text)
    except (InvalidRequestError, ValueError) as error:
        raise InvalidRequestError(f"{key}: {error}") from error


def _boolean(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise InvalidRequestError(f"{text!r} is neither true nor false")
    return text.strip().lower() == "true"


DIRECTORY: Final = "execution.checkpointing.dir"
OLDER_DIRECTORY: Final = "state.checkpoints.dir"
PERIODIC_ENABLED: Final = "state.changelog.periodic-materialize.enabled"
PROPERTIES: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    DIRECTORY: ("storage_url", str),
    OLDER_DIRECTORY: ("storage_url", str),
    "storage.encryption.key-provider": ("key_provider", str),
    "state.changelog.storage": ("log_storage", str),
    "state.changelog.periodic-materialize.interval": ("interval_ms", parse_duration_ms),
    "state.changelog.max-failures-allowed": ("max_failures_allowed", int),
    "materializer.log-bytes": ("log_bytes", parse_size_bytes),
    "materializer.log-batches": ("log_batches", int),
    "materializer.log-ratio": ("log_ratio", float),
    "materializer.space-ratio": ("space_ratio", float),
    "materializer.replay-time": ("replay_ms", parse_duration_ms),
    "materializer.retention": ("retention_ms", parse_duration_ms),
    "materializer.parallel": ("parallel", int),
    "materializer.memory": ("memory_bytes", parse_size_bytes),
    "materializer.disk": ("disk_bytes", parse_size_bytes),
    "materializer.bandwidth": ("bandwidth_bytes_per_s", parse_size_bytes),
    "materializer.metrics-port": ("metrics_port", int),
    "materializer.metrics-host": ("metrics_host", str),
    "materializer.poll-interval": ("poll_ms", parse_duration_ms),
    "materializer.discovery-interval": ("discovery_ms", parse_duration_ms),
    "materializer.collect-interval": ("collect_ms", parse_duration_ms),
    "materializer.grace": ("grace_ms", parse_duration_ms),
    "materializer.working-directory": ("working_directory", Path),
    "materializer.share": ("share", _boolean),
}
"""Key without `spark.varvite.` → field of `MaterializerConfig` and how its text is read."""
