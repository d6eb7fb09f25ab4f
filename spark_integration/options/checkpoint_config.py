"""`CheckpointConfig`: the checkpoint settings of an environment, with PyFlink's names.

A checkpoint of varvite is the end of a micro-batch: there is one at a time, it is exactly-once, and it cannot time out
by itself. Setters of what that already promises do nothing, those of what it cannot do warn or raise. Getters answer
with what was set, whether or not it has an effect.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from varvite.changelog.api.time_spans import Duration
from varvite.changelog.commit.options import RETAINED
from varvite.materializer.options.driver import CHECKPOINT_INTERVAL
from varvite.spark_integration.options.checkpoint_storage import (
    CheckpointStorage,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
    warn_useless,
)
from varvite.storage.errors import InvalidRequestError
from varvite.storage.job.options import DIRECTORY
from varvite.storage.transfer.options import UPLOAD_DEADLINE

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike


_NO_BARRIERS: Final = "micro-batches have no barriers that could wait"


class CheckpointingMode(Enum):
    """Guarantees for a row's changes of state when something fails; PyFlink's numbers."""

    EXACTLY_ONCE = 0
    """Once: what varvite always does."""
    AT_LEAST_ONCE = 1
    """Once or more; not weaker in varvite."""


class ExternalizedCheckpointRetention(Enum):
    """Fates of checkpoints when a query is stopped; PyFlink's numbers."""

    DELETE_ON_CANCELLATION = 0
    """They are deleted; varvite does not do that."""
    RETAIN_ON_CANCELLATION = 1
    """They stay: what varvite always does."""
    NO_EXTERNALIZED_CHECKPOINTS = 2
    """They are deleted; varvite does not do that."""


class CheckpointConfig:
    """The checkpoint settings of an environment; sets options of the level code."""

    def __init__(
        self,
        configure: Callable[[str, Any], Any],
        settings: Callable[[str], Any],
        is_one_machine: Callable[[], bool],
        kept: dict[str, Any] | None = None,
    ) -> None:
        """Use `env.get_checkpoint_config()`.

        Args:
            configure: Sets an option.
            settings: Option → what code has set.
            is_one_machine: True if driver and executors share a machine.
            kept: Settings without effect, for their getters.
        """
        self._configure = configure
        self._setting = settings
        self._is_one_machine = is_one_machine
        self._kept = {} if kept is None else kept

    # --- where ---

    def set_checkpoint_storage(self, storage: CheckpointStorage | str | PathLike[str]) -> CheckpointConfig:
        """Keep checkpoints in this storage.

        Raises:
            InvalidRequestError: The storage is no location, or a temporary one while executors are on other machines.
        """
        temporary = isinstance(storage, JobManagerCheckpointStorage) and storage.is_temporary
        if temporary and not self._is_one_machine():
            raise InvalidRequestError(
                "JobManagerCheckpointStorage without a path is only for local[...] masters: executors on other "
                "machines cannot reach it; use FileSystemCheckpointStorage with a shared location"
            )
        self._configure(DIRECTORY.key, storage.location() if isinstance(storage, CheckpointStorage) else storage)
        return self

    def set_checkpoint_storage_dir(self, checkpoint_path: str) -> CheckpointConfig:
        """As `set_checkpoint_storage`, under a name of Flink 1."""
        return self.set_checkpoint_storage(checkpoint_path)

    def get_checkpoint_storage(self) -> FileSystemCheckpointStorage | None:
        """The location that was set; None: it comes from the configuration."""
        location = self._setting(DIRECTORY.key)
        return None if location is None else FileSystemCheckpointStorage(location)

    def set_num_retained_checkpoints(self, count: int) -> CheckpointConfig:
        """Keep this many checkpoints complete, the newest included; at least 2."""
        self._configure(RETAINED.key, count)
        return self

    # --- when ---

    def set_checkpoint_interval(self, checkpoint_interval: int) -> CheckpointConfig:
        """Set the milliseconds from one batch, which ends with a checkpoint, to the next. A trigger of the writer wins.

        Only sources that do not end have such batches. Raises `InvalidRequestError` below 1.
        """
        if not isinstance(checkpoint_interval, int) or checkpoint_interval < 1:
            problem = f"a checkpoint interval is a number of milliseconds of at least 1: {checkpoint_interval!r}"
            raise InvalidRequestError(problem)
        self._configure(CHECKPOINT_INTERVAL.key, checkpoint_interval)
        return self

    def get_checkpoint_interval(self) -> int:
        """The milliseconds that were set; -1, as in PyFlink: they come from the configuration."""
        interval_ms = self._setting(CHECKPOINT_INTERVAL.key)
        return -1 if interval_ms is None else interval_ms

    def is_checkpointing_enabled(self) -> bool:
        """True: a batch is acknowledged only after its checkpoint."""
        return True

    def disable_checkpointing(self) -> CheckpointConfig:
        """Not possible. Raises `InvalidRequestError` always."""
        raise InvalidRequestError(
            "checkpoints cannot be switched off: a batch is acknowledged only after its checkpoint; remove the call"
        )

    # --- how ---

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> CheckpointConfig:
        """Accepts any mode; it is always exactly once. Raises `InvalidRequestError` for something that is no mode."""
        if not isinstance(checkpointing_mode, CheckpointingMode):
            raise InvalidRequestError(f"{checkpointing_mode!r} is no CheckpointingMode")
        return self._keep("checkpointing_mode", checkpointing_mode)

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """The mode that was set; EXACTLY_ONCE."""
        return self._kept.get("checkpointing_mode", CheckpointingMode.EXACTLY_ONCE)

    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> CheckpointConfig:
        """One at a time; a higher number has no effect, and causes a warning."""
        if max_concurrent_checkpoints != 1:
            warn_useless("max_concurrent_checkpoints", "one batch, and so one checkpoint, is under way at a time")
        return self._keep("max_concurrent_checkpoints", max_concurrent_checkpoints)

    def get_max_concurrent_checkpoints(self) -> int:
        """The number that was set; 1."""
        return self._kept.get("max_concurrent_checkpoints", 1)

    def set_tolerable_checkpoint_failure_number(self, tolerable_checkpoint_failure_number: int) -> CheckpointConfig:
        """No failure is tolerated: the batch is executed again. A higher number has no effect, and causes a warning."""
        if tolerable_checkpoint_failure_number != 0:
            warn_useless("tolerable_checkpoint_failure_number", "a batch whose checkpoint fails is not acknowledged")
        return self._keep("tolerable_checkpoint_failure_number", tolerable_checkpoint_failure_number)

    def get_tolerable_checkpoint_failure_number(self) -> int:
        """The number that was set; 0."""
        return self._kept.get("tolerable_checkpoint_failure_number", 0)

    def set_fail_on_checkpointing_errors(self, fail_on_checkpointing_errors: bool) -> CheckpointConfig:
        """A batch without a checkpoint is never acknowledged; False has no effect, and causes a warning."""
        if not fail_on_checkpointing_errors:
            warn_useless("fail_on_checkpointing_errors", "a batch whose checkpoint fails is not acknowledged")
        return self._keep("fail_on_checkpointing_errors", fail_on_checkpointing_errors)

    def is_fail_on_checkpointing_errors(self) -> bool:
        """The setting; True."""
        return self._kept.get("fail_on_checkpointing_errors", True)

    def set_min_pause_between_checkpoints(self, min_pause_between_checkpoints: int) -> CheckpointConfig:
        """No pause is kept; any number but 0 causes a warning."""
        if min_pause_between_checkpoints != 0:
            warn_useless("min_pause_between_checkpoints", "set a longer checkpoint interval or trigger")
        return self._keep("min_pause_between_checkpoints", min_pause_between_checkpoints)

    def get_min_pause_between_checkpoints(self) -> int:
        """The milliseconds that were set; 0."""
        return self._kept.get("min_pause_between_checkpoints", 0)

    def set_checkpoint_timeout(self, checkpoint_timeout: int) -> CheckpointConfig:
        """Without effect, and causes a warning."""
        warn_useless("checkpoint_timeout", f"uploads have {UPLOAD_DEADLINE.key}")
        return self._keep("checkpoint_timeout", checkpoint_timeout)

    def get_checkpoint_timeout(self) -> int:
        """The milliseconds that were set; 600,000, as in PyFlink."""
        return self._kept.get("checkpoint_timeout", 600_000)

    def enable_unaligned_checkpoints(self, enabled: bool = True) -> CheckpointConfig:
        """Without effect; True causes a warning."""
        if enabled:
            warn_useless("enable_unaligned_checkpoints", _NO_BARRIERS)
        return self._keep("unaligned_checkpoints", enabled)

    def disable_unaligned_checkpoints(self) -> CheckpointConfig:
        """Without effect: there are none."""
        return self._keep("unaligned_checkpoints", False)

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """The setting; False."""
        return self._kept.get("unaligned_checkpoints", False)

    def set_force_unaligned_checkpoints(self, force_unaligned_checkpoints: bool = True) -> CheckpointConfig:
        """Without effect; True causes a warning."""
        if force_unaligned_checkpoints:
            warn_useless("force_unaligned_checkpoints", _NO_BARRIERS)
        return self._keep("force_unaligned_checkpoints", force_unaligned_checkpoints)

    def is_force_unaligned_checkpoints(self) -> bool:
        """The setting; False."""
        return self._kept.get("force_unaligned_checkpoints", False)

    def set_aligned_checkpoint_timeout(self, alignment_timeout: Duration) -> CheckpointConfig:
        """Without effect, and causes a warning."""
        warn_useless("alignment_timeout", _NO_BARRIERS)
        return self._keep("alignment_timeout", alignment_timeout)

    def get_aligned_checkpoint_timeout(self) -> Duration:
        """The time that was set; 0."""
        return self._kept.get("alignment_timeout", Duration.of_millis(0))

    set_alignment_timeout = set_aligned_checkpoint_timeout
    """The same, under Flink's older name."""
    get_alignment_timeout = get_aligned_checkpoint_timeout
    """The same, under Flink's older name."""

    def set_externalized_checkpoint_retention(
        self, retention_mode: ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        """Checkpoints always stay; any other mode causes a warning."""
        if retention_mode is not ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION:
            warn_useless(str(retention_mode), "checkpoints stay when a query is stopped; delete the job's directory")
        return self._keep("externalized_checkpoint_retention", retention_mode)

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention:
        """The mode that was set; RETAIN_ON_CANCELLATION."""
        return self._kept.get(
            "externalized_checkpoint_retention", ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
        )

    def enable_externalized_checkpoints(self, cleanup_mode: ExternalizedCheckpointRetention) -> CheckpointConfig:
        """As `set_externalized_checkpoint_retention`, under a name of Flink 1."""
        return self.set_externalized_checkpoint_retention(cleanup_mode)

    set_externalized_checkpoint_cleanup = enable_externalized_checkpoints
    """The same, under another name of Flink 1."""
    get_externalized_checkpoint_cleanup = get_externalized_checkpoint_retention
    """The same, under a name of Flink 1."""

    def is_externalized_checkpoints_enabled(self) -> bool:
        """True unless the mode is NO_EXTERNALIZED_CHECKPOINTS."""
        mode = self.get_externalized_checkpoint_retention()
        return mode is not ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS

    def _keep(self, name: str, value: Any) -> CheckpointConfig:
        self._kept[name] = value
        return self
