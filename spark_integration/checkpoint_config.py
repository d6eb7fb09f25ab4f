"""Where checkpoints go: `CheckpointConfig` and `FileSystemCheckpointStorage`, with PyFlink's names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

CHECKPOINT_DIR: str = "execution.checkpointing.dir"
RETAINED: str = "execution.checkpointing.num-retained"


@dataclass(frozen=True)
class FileSystemCheckpointStorage:
    """Checkpoints below a path or URL.

    Args:
        checkpoint_path: A path, `file:///path`, `s3://bucket/path` or any other fsspec URL.
    """

    checkpoint_path: str | PathLike[str]

    def get_checkpoint_path(self) -> str:
        """The path or URL."""
        return str(self.checkpoint_path)


class CheckpointConfig:
    """The checkpoint settings of an environment; sets options of the level code."""

    def __init__(self, configure: Callable[[str, Any], Any], settings: Callable[[str], Any]) -> None:
        self._configure = configure
        self._setting = settings

    def set_checkpoint_storage(self, storage: FileSystemCheckpointStorage | str | PathLike[str]) -> CheckpointConfig:
        """Keep checkpoints there. Raises `InvalidRequestError` for something that is no location."""
        location = storage.checkpoint_path if isinstance(storage, FileSystemCheckpointStorage) else storage
        self._configure(CHECKPOINT_DIR, location)
        return self

    def get_checkpoint_storage(self) -> FileSystemCheckpointStorage | None:
        """What `set_checkpoint_storage` set; None: it comes from the configuration."""
        location = self._setting(CHECKPOINT_DIR)
        return None if location is None else FileSystemCheckpointStorage(location)

    def set_num_retained_checkpoints(self, count: int) -> CheckpointConfig:
        """Keep this many checkpoints complete, the newest included; at least 2."""
        self._configure(RETAINED, count)
        return self
