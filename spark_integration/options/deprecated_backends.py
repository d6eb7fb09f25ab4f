"""State backends of Flink before 1.13, which said both where state is and where checkpoints go: they warn and map."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from varve.spark_integration.options.checkpoint_storage import (
    CheckpointStorage,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
    warn_useless,
)
from varve.spark_integration.options.state_backends import EmbeddedRocksDBStateBackend, HashMapStateBackend

if TYPE_CHECKING:
    from os import PathLike


@dataclass(frozen=True, init=False)
class MemoryStateBackend(HashMapStateBackend):
    """Deprecated: use `HashMapStateBackend` and `JobManagerCheckpointStorage`.

    Args:
        checkpoint_path: Of the checkpoint storage.
        savepoint_path, max_state_size, using_asynchronous_snapshots: Without effect, which a warning says.
    """

    checkpoint_path: str | PathLike[str] | None

    def __init__(
        self,
        checkpoint_path: str | PathLike[str] | None = None,
        savepoint_path: str | None = None,
        max_state_size: int | None = None,
        using_asynchronous_snapshots: bool | None = None,
    ) -> None:
        _deprecated("MemoryStateBackend", "HashMapStateBackend() and JobManagerCheckpointStorage()")
        _useless(
            savepoint_path=savepoint_path,
            max_state_size=max_state_size,
            using_asynchronous_snapshots=using_asynchronous_snapshots,
        )
        object.__setattr__(self, "checkpoint_path", checkpoint_path)

    def checkpoint_storage(self) -> CheckpointStorage:
        return JobManagerCheckpointStorage(self.checkpoint_path)


@dataclass(frozen=True, init=False)
class FsStateBackend(HashMapStateBackend):
    """Deprecated: use `HashMapStateBackend` and `FileSystemCheckpointStorage`.

    Args:
        checkpoint_directory_uri: Of the checkpoint storage; None: it comes from elsewhere.
        default_savepoint_directory_uri, file_state_size_threshold, write_buffer_size, using_asynchronous_snapshots:
            Without effect, which a warning says.
    """

    checkpoint_directory_uri: str | PathLike[str] | None

    def __init__(
        self,
        checkpoint_directory_uri: str | PathLike[str] | None = None,
        default_savepoint_directory_uri: str | None = None,
        file_state_size_threshold: int | None = None,
        write_buffer_size: int | None = None,
        using_asynchronous_snapshots: bool | None = None,
    ) -> None:
        _deprecated("FsStateBackend", "HashMapStateBackend() and FileSystemCheckpointStorage(...)")
        _useless(
            default_savepoint_directory_uri=default_savepoint_directory_uri,
            file_state_size_threshold=file_state_size_threshold,
            write_buffer_size=write_buffer_size,
            using_asynchronous_snapshots=using_asynchronous_snapshots,
        )
        object.__setattr__(self, "checkpoint_directory_uri", checkpoint_directory_uri)

    def checkpoint_storage(self) -> CheckpointStorage | None:
        return _file_system(self.checkpoint_directory_uri)

    def get_checkpoint_path(self) -> str | None:
        """As given."""
        return None if self.checkpoint_directory_uri is None else str(self.checkpoint_directory_uri)


class RocksDBStateBackend(EmbeddedRocksDBStateBackend):
    """Deprecated: use `EmbeddedRocksDBStateBackend` and `FileSystemCheckpointStorage`.

    Args:
        checkpoint_data_uri: Of the checkpoint storage; None: it comes from elsewhere.
        enable_incremental_checkpointing: As in `EmbeddedRocksDBStateBackend`.
        checkpoint_stream_backend: Another of these backends, whose checkpoint storage is used.
    """

    def __init__(
        self,
        checkpoint_data_uri: str | PathLike[str] | None = None,
        enable_incremental_checkpointing: bool | None = None,
        checkpoint_stream_backend: MemoryStateBackend | FsStateBackend | None = None,
    ) -> None:
        _deprecated("RocksDBStateBackend", "EmbeddedRocksDBStateBackend() and FileSystemCheckpointStorage(...)")
        super().__init__(enable_incremental_checkpointing)
        self._storage = _file_system(checkpoint_data_uri)
        if self._storage is None and checkpoint_stream_backend is not None:
            self._storage = checkpoint_stream_backend.checkpoint_storage()

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and isinstance(other, RocksDBStateBackend) and self._storage == other._storage

    __hash__ = None

    def checkpoint_storage(self) -> CheckpointStorage | None:
        return self._storage


def _file_system(path: str | PathLike[str] | None) -> FileSystemCheckpointStorage | None:
    return None if path is None else FileSystemCheckpointStorage(path)


def _deprecated(name: str, instead: str) -> None:
    warnings.warn(f"{name} is deprecated; use {instead}", DeprecationWarning, stacklevel=3)


def _useless(**given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            warn_useless(name, "leave it out", stacklevel=4)
