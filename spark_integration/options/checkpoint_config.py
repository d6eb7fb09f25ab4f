"""`CheckpointConfig`: the checkpoint settings of an environment, with PyFlink's names.

A checkpoint of varvite is the end of a micro-batch: there is one at a time, it is exactly-once, and it cannot time out
by itself. Setters of what that already promises do nothing, those of what it cannot do warn or raise.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

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
        self, configure: Callable[[str, Any], Any], settings: Callable[[str], Any], is_one_machine: Callable[[], bool]
    ) -> None:
        self._configure = configure
        self._setting = settings
        self._is_one_machine = is_one_machine

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
        return self

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """EXACTLY_ONCE."""
        return CheckpointingMode.EXACTLY_ONCE

    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> CheckpointConfig:
        """One at a time; a higher number has no effect, and causes a warning."""
        if max_concurrent_checkpoints != 1:
            warn_useless("max_concurrent_checkpoints", "one batch, and so one checkpoint, is under way at a time")
        return self

    def get_max_concurrent_checkpoints(self) -> int:
        """One."""
        return 1

    def set_tolerable_checkpoint_failure_number(self, tolerable_checkpoint_failure_number: int) -> CheckpointConfig:
        """No failure is tolerated: the batch is executed again. A higher number has no effect, and causes a warning."""
        if tolerable_checkpoint_failure_number != 0:
            warn_useless("tolerable_checkpoint_failure_number", "a batch whose checkpoint fails is not acknowledged")
        return self

    def get_tolerable_checkpoint_failure_number(self) -> int:
        """Zero."""
        return 0

    def set_min_pause_between_checkpoints(self, min_pause_between_checkpoints: int) -> CheckpointConfig:
        """No pause is kept; any number but 0 causes a warning."""
        if min_pause_between_checkpoints != 0:
            warn_useless("min_pause_between_checkpoints", "set a longer checkpoint interval or trigger")
        return self

    def get_min_pause_between_checkpoints(self) -> int:
        """Zero."""
        return 0

    def set_checkpoint_timeout(self, checkpoint_timeout: int) -> CheckpointConfig:
        """Without effect, and causes a warning."""
        _ = checkpoint_timeout
        warn_useless("checkpoint_timeout", f"uploads have {UPLOAD_DEADLINE.key}")
        return self

    def enable_unaligned_checkpoints(self, enabled: bool = True) -> CheckpointConfig:
        """Without effect; True causes a warning."""
        if enabled:
            warn_useless("enable_unaligned_checkpoints", "micro-batches have no barriers that could wait")
        return self

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """False."""
        return False

    def set_externalized_checkpoint_retention(self, cleanup_mode: ExternalizedCheckpointRetention) -> CheckpointConfig:
        """Checkpoints always stay; any other mode causes a warning."""
        if cleanup_mode is not ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION:
            warn_useless(str(cleanup_mode), "checkpoints stay when a query is stopped; delete the job's directory")
        return self

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention:
        """RETAIN_ON_CANCELLATION."""
        return ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
