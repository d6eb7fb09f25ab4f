"""State backends with PyFlink's names: small values that stand for settings.

They hold only settings, so they can be pickled, and used by several environments and threads. A setting that a backend
object does not have comes from the configuration, as in Flink (`state.backend.rocksdb.*`).
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from varvite.changelog.working_stores.options import BACKEND_TYPE, CUSTOM_OPTIONS, HASHMAP, ROCKSDB
from varvite.changelog.working_stores.rocksdb.settings.memory_options import PREDEFINED
from varvite.changelog.working_stores.rocksdb.settings.predefined import PredefinedOptions
from varvite.spark_integration.options.checkpoint_storage import (
    CheckpointStorage,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
    warn_useless,
)
from varvite.storage.errors import InvalidRequestError
from varvite.storage.named_objects import QUALIFIED_NAME
from varvite.storage.transfer.options import DOWNLOAD_THREADS, UPLOAD_THREADS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from os import PathLike

    from varvite.changelog.working_stores.contract import WorkingStore


class StateBackend(ABC):
    """The kind of store in which state workers keep working state."""

    @abstractmethod
    def configuration(self) -> dict[str, Any]:
        """The options that choosing this backend sets."""

    def checkpoint_storage(self) -> CheckpointStorage | None:
        """Location of checkpoints, for deprecated backends, which set it too; else None."""
        return None


@dataclass(frozen=True)
class HashMapStateBackend(StateBackend):
    """Working state as Python objects in memory: the fastest; it must fit into memory. The default.

    Snapshots are RocksDB files as for the other backend, so they are incremental, and a job may change its backend at a
    restart.

    Args:
        j_hashmap_state_backend: None; only there for PyFlink's signature.
    """

    j_hashmap_state_backend: None = None

    def configuration(self) -> dict[str, Any]:
        return {BACKEND_TYPE.key: HASHMAP}


@dataclass
class EmbeddedRocksDBStateBackend(StateBackend):
    """Working state in a RocksDB on the executor's local disk: may be larger than memory.

    Args:
        enable_incremental_checkpointing: Only there for PyFlink's signature. False causes a warning: every snapshot of
            varvite is incremental.
    """

    enable_incremental_checkpointing: bool | None = None
    _predefined: PredefinedOptions | None = field(default=None, init=False)
    _transfer_threads: int | None = field(default=None, init=False)
    _storage_paths: tuple[str, ...] = field(default=(), init=False)
    _options_factory: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.enable_incremental_checkpointing not in (None, True):
            warn_useless(
                f"enable_incremental_checkpointing={self.enable_incremental_checkpointing!r}",
                "snapshots always reuse the files of the one before; leave the argument out",
                stacklevel=4,
            )

    def configuration(self) -> dict[str, Any]:
        settings: dict[str, Any] = {BACKEND_TYPE.key: ROCKSDB}
        if self._predefined is not None:
            settings[PREDEFINED.key] = self._predefined
        if self._transfer_threads is not None:
            settings[UPLOAD_THREADS.key] = settings[DOWNLOAD_THREADS.key] = self._transfer_threads
        return settings

    def is_incremental_checkpoints_enabled(self) -> bool:
        """The setting; without one True: snapshots upload new files only, whatever it is."""
        return self.enable_incremental_checkpointing is not False

    def set_predefined_options(self, options: PredefinedOptions) -> None:
        """Choose settings for a kind of disk; options that are set explicitly win. Raises `InvalidRequestError`."""
        if not isinstance(options, PredefinedOptions):
            raise InvalidRequestError(f"{options!r} is none of PredefinedOptions")
        self._predefined = options

    def get_predefined_options(self) -> PredefinedOptions:
        """The set that was chosen here, else DEFAULT; the configuration does not count."""
        return self._predefined or PredefinedOptions.DEFAULT

    def set_number_of_transfer_threads(self, number_of_transfering_threads: int) -> None:
        """Set the number of concurrent requests with which a state worker uploads, or restores.

        Raises `InvalidRequestError` below 1.
        """
        if number_of_transfering_threads < 1:
            raise InvalidRequestError(f"{number_of_transfering_threads} transfer threads; use at least 1")
        self._transfer_threads = number_of_transfering_threads

    def get_number_of_transfer_threads(self) -> int | None:
        """The number that was set; None: it comes from the configuration."""
        return self._transfer_threads

    def set_db_storage_paths(self, *paths: str) -> None:
        """Without effect, and causes a warning: working state is in Spark's local directories."""
        warn_useless(
            f"set_db_storage_paths{paths}",
            "working state is in Spark's local directories, so that it is removed with its executor; set "
            "spark.local.dir (on YARN the node manager's local directories)",
        )
        self._storage_paths = paths

    def get_db_storage_paths(self) -> list[str] | None:
        """The paths that were set, without effect; None: Spark's local directories."""
        return list(self._storage_paths) if self._storage_paths else None

    def set_options(self, options_factory_class_name: str) -> None:
        """Without effect, and causes a warning: such a factory is a Java class."""
        warn_useless(
            f"set_options({options_factory_class_name!r})",
            "a factory is a Java class; set the options state.backend.rocksdb.* or predefined options",
        )
        self._options_factory = options_factory_class_name

    def get_options(self) -> str | None:
        """The name that was set, without effect."""
        return self._options_factory


@dataclass(frozen=True)
class CustomStateBackend(StateBackend):
    """Working state in stores of your own.

    Args:
        factory: Creates an empty `WorkingStore` for a `StoreTarget`: a function or a class (such as a `TableStore`) of
            a module that driver and executors can import, or its name as `module:qualified.name`.
        options: The factory gets them as `StoreTarget.options`, all as text.

    Raises:
        InvalidRequestError: The factory has no name by which a state worker could import it.
    """

    factory: str | Callable[..., WorkingStore]
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        _ = self.factory_name

    @property
    def factory_name(self) -> str:
        """`module:qualified.name`."""
        factory: Any = self.factory
        name = factory if isinstance(factory, str) else _name_of(factory)
        if not QUALIFIED_NAME.fullmatch(name) or name.startswith("__main__:"):
            raise InvalidRequestError(
                f"{factory!r} cannot be imported by state workers; give a function or class at the top of a module "
                "that they can import, or its name as module:qualified.name"
            )
        return name

    def configuration(self) -> dict[str, Any]:
        options = {str(key): str(value) for key, value in self.options.items()}
        return {BACKEND_TYPE.key: self.factory_name, CUSTOM_OPTIONS.key: options}


def _name_of(factory: Any) -> str:
    return f"{getattr(factory, '__module__', '')}:{getattr(factory, '__qualname__', '')}"


@dataclass(frozen=True, init=False)
class MemoryStateBackend(HashMapStateBackend):
    """Deprecated: use `HashMapStateBackend` and `JobManagerCheckpointStorage`.

    Args:
        checkpoint_path: Path of the checkpoint storage.
        savepoint_path, max_state_size, using_asynchronous_snapshots: Without effect, and cause a warning.
    """

    checkpoint_path: str | PathLike[str] | None

    def __init__(
        self,
        checkpoint_path: str | PathLike[str] | None = None,
        savepoint_path: str | None = None,
        max_state_size: int | None = None,
        using_asynchronous_snapshots: bool | None = None,
    ) -> None:
        _warn_deprecated("MemoryStateBackend", "HashMapStateBackend() and JobManagerCheckpointStorage()")
        _warn_useless(
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
        checkpoint_directory_uri: Location of the checkpoint storage; None: it is set elsewhere.
        default_savepoint_directory_uri, file_state_size_threshold, write_buffer_size, using_asynchronous_snapshots:
            Without effect, and cause a warning.
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
        _warn_deprecated("FsStateBackend", "HashMapStateBackend() and FileSystemCheckpointStorage(...)")
        _warn_useless(
            default_savepoint_directory_uri=default_savepoint_directory_uri,
            file_state_size_threshold=file_state_size_threshold,
            write_buffer_size=write_buffer_size,
            using_asynchronous_snapshots=using_asynchronous_snapshots,
        )
        object.__setattr__(self, "checkpoint_directory_uri", checkpoint_directory_uri)

    def checkpoint_storage(self) -> CheckpointStorage | None:
        return _file_system(self.checkpoint_directory_uri)

    def get_checkpoint_path(self) -> str | None:
        """The location, if there is one."""
        return None if self.checkpoint_directory_uri is None else str(self.checkpoint_directory_uri)


class RocksDBStateBackend(EmbeddedRocksDBStateBackend):
    """Deprecated: use `EmbeddedRocksDBStateBackend` and `FileSystemCheckpointStorage`.

    Args:
        checkpoint_data_uri: Location of the checkpoint storage; None: it is set elsewhere.
        enable_incremental_checkpointing: As in `EmbeddedRocksDBStateBackend`.
        checkpoint_stream_backend: Another of these backends, whose checkpoint storage is used.
    """

    def __init__(
        self,
        checkpoint_data_uri: str | PathLike[str] | None = None,
        enable_incremental_checkpointing: bool | None = None,
        checkpoint_stream_backend: MemoryStateBackend | FsStateBackend | None = None,
    ) -> None:
        _warn_deprecated("RocksDBStateBackend", "EmbeddedRocksDBStateBackend() and FileSystemCheckpointStorage(...)")
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


def _warn_deprecated(name: str, instead: str) -> None:
    warnings.warn(f"{name} is deprecated; use {instead}", DeprecationWarning, stacklevel=3)


def _warn_useless(**arguments: Any) -> None:
    for name, value in arguments.items():
        if value is not None:
            warn_useless(name, "leave it out", stacklevel=4)
