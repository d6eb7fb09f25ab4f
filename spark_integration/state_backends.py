"""State backends as the user chooses them: small values that stand for settings, with PyFlink's names.

What a backend object does not say comes from the configuration, as in Flink (`state.backend.rocksdb.*`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from varve.storage.errors import InvalidRequestError


class StateBackend(ABC):
    """Where the state workers keep working state."""

    @abstractmethod
    def configuration(self) -> dict[str, Any]:
        """The options that choosing this backend sets."""


@dataclass(frozen=True)
class HashMapStateBackend(StateBackend):
    """Working state as Python objects in memory: the fastest; it must fit into memory. The default.

    Snapshots are RocksDB files as for the other backend, so they are incremental, and a job may change its backend at a
    restart.
    """

    def configuration(self) -> dict[str, Any]:
        return {"state.backend.type": "hashmap"}


@dataclass(frozen=True)
class EmbeddedRocksDBStateBackend(StateBackend):
    """Working state in a RocksDB on the executor's local disk: may be larger than memory.

    Args:
        enable_incremental_checkpointing: None or True; only there for PyFlink's signature.

    Raises:
        InvalidRequestError: `enable_incremental_checkpointing` is False: every snapshot of varve is incremental.
    """

    enable_incremental_checkpointing: bool | None = None

    def __post_init__(self) -> None:
        if self.enable_incremental_checkpointing not in (None, True):
            raise InvalidRequestError(
                f"enable_incremental_checkpointing={self.enable_incremental_checkpointing!r} is not possible: varve's "
                "snapshots always reuse the files of the one before; leave the argument out"
            )

    def configuration(self) -> dict[str, Any]:
        return {"state.backend.type": "rocksdb"}

    def is_incremental_checkpoints_enabled(self) -> bool:
        """True: snapshots upload new files only."""
        return True
