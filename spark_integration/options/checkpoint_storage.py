"""Locations of checkpoints, with PyFlink's names: `FileSystemCheckpointStorage`, `JobManagerCheckpointStorage`."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from varvite.changelog.commit.options import INLINE_SIZE
from varvite.storage.errors import InvalidRequestError
from varvite.storage.private_directories import TemporaryDirectory

if TYPE_CHECKING:
    from os import PathLike


class CheckpointStorage(ABC):
    """A place for checkpoints; a small value that can be pickled."""

    @abstractmethod
    def location(self) -> str | PathLike[str]:
        """The path or URL; a temporary directory is created by this call."""


@dataclass(frozen=True)
class FileSystemCheckpointStorage(CheckpointStorage):
    """Checkpoints below a path or URL.

    Args:
        checkpoint_path: A path, `file:///path`, `s3://bucket/path` or any other fsspec URL.
        file_state_size_threshold: Without effect, and causes a warning; `checkpoint.inline-size-max` is similar.
        write_buffer_size: Without effect, and causes a warning.

    Raises:
        InvalidRequestError: There is no path.
    """

    MAX_FILE_STATE_THRESHOLD: ClassVar[int] = 1 << 20

    checkpoint_path: str | PathLike[str]
    file_state_size_threshold: int | None = None
    write_buffer_size: int = -1

    def __post_init__(self) -> None:
        path: Any = self.checkpoint_path
        if path is None or not str(path):
            raise InvalidRequestError("FileSystemCheckpointStorage needs a path or URL, such as 's3://bucket/varvite'")
        if self.file_state_size_threshold is not None:
            warn_useless("file_state_size_threshold", f"set the option {INLINE_SIZE.key}", stacklevel=4)
        if self.write_buffer_size != -1:
            warn_useless("write_buffer_size", "leave it out", stacklevel=4)

    def location(self) -> str | PathLike[str]:
        return self.checkpoint_path

    def get_checkpoint_path(self) -> str:
        """The path or URL, without a slash at its end."""
        return _trimmed(self.checkpoint_path)

    def get_savepoint_path(self) -> None:
        """None: savepoints lie in the job's directory."""
        return

    def get_min_file_size_threshold(self) -> int:
        """The threshold that was set; else the 20 KiB of Flink."""
        return 20 << 10 if self.file_state_size_threshold is None else self.file_state_size_threshold

    def get_write_buffer_size(self) -> int:
        """The size that was set; else the 4 KiB of Flink."""
        return 4096 if self.write_buffer_size == -1 else self.write_buffer_size


@dataclass(frozen=True)
class JobManagerCheckpointStorage(CheckpointStorage):
    """Checkpoints for tests and first steps: in a temporary directory of the driver's machine.

    Flink keeps such checkpoints in the memory of its job manager. Here state workers are processes of their own, so a
    directory replaces that memory: it is created when the storage is set, and deleted when the driver's Python process
    ends. A query that starts again in a new process finds no state, which is an error (I11). It works only where
    driver and executors share a machine (`local[...]`).

    Args:
        checkpoint_path: Keep checkpoints there instead, as `FileSystemCheckpointStorage` does.
        max_state_size: Without effect, and causes a warning: nothing is kept in the driver's memory.
    """

    DEFAULT_MAX_STATE_SIZE: ClassVar[int] = 5 << 20

    checkpoint_path: str | PathLike[str] | None = None
    max_state_size: int | None = None

    def __post_init__(self) -> None:
        if self.max_state_size is not None:
            warn_useless("max_state_size", "leave it out: nothing is kept in the driver's memory", stacklevel=4)

    @property
    def is_temporary(self) -> bool:
        """True if checkpoints end with the driver."""
        return self.checkpoint_path is None

    def location(self) -> str | PathLike[str]:
        """The path; without one a new temporary directory, with a warning."""
        if self.checkpoint_path is not None:
            return self.checkpoint_path
        warnings.warn(
            "JobManagerCheckpointStorage keeps checkpoints in a temporary directory of this machine until the driver "
            "ends; for state that must survive use FileSystemCheckpointStorage",
            UserWarning,
            stacklevel=4,
        )
        return temporary_directory()

    def get_checkpoint_path(self) -> str | None:
        """The path, if there is one."""
        return None if self.checkpoint_path is None else _trimmed(self.checkpoint_path)

    def get_savepoint_path(self) -> None:
        """None: savepoints lie in the job's directory."""
        return

    def get_max_state_size(self) -> int:
        """The size that was set; else `DEFAULT_MAX_STATE_SIZE`."""
        return self.DEFAULT_MAX_STATE_SIZE if self.max_state_size is None else self.max_state_size


class CustomCheckpointStorage(CheckpointStorage):
    """A storage that a Java class makes: not possible here."""

    def __init__(self, j_custom_checkpoint_storage: Any = None) -> None:
        """Raises `InvalidRequestError` always."""
        del j_custom_checkpoint_storage
        raise InvalidRequestError(
            "CustomCheckpointStorage wraps a Java object, and there is none here: take FileSystemCheckpointStorage "
            "with a path or a URL that fsspec knows, or register an object store (varvite.extending)"
        )

    def location(self) -> str:
        raise NotImplementedError


def _trimmed(path: str | PathLike[str]) -> str:
    return str(path).rstrip("/") or str(path)


def temporary_directory() -> str:
    """Creates a directory on this machine; it is deleted when the driver's Python process ends."""
    directory = TemporaryDirectory("state")
    _kept.append(directory)
    return str(directory.path)


_kept: Final[list[TemporaryDirectory]] = []
"""Directories that live as long as this process."""


def warn_useless(name: str, advice: str, stacklevel: int = 3) -> None:
    """Warn, at the line of the caller's caller, that a setting of PyFlink's has no effect."""
    warnings.warn(f"{name} has no effect in varvite; {advice}", UserWarning, stacklevel=stacklevel)
