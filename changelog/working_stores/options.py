"""Options that choose the working store, and the settings that a state worker gets of them."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from varvite.storage.options.declaration import ConfigOption
from varvite.storage.options.kinds import PARAMETERS, word_or_name

HASHMAP: Final = "hashmap"
ROCKSDB: Final = "rocksdb"

BACKEND_TYPE: Final = ConfigOption(
    key="state.backend.type",
    type=word_or_name(HASHMAP, ROCKSDB, what="a factory of working stores"),
    default=HASHMAP,
    deprecated_keys=("state.backend",),
    description="Working state of a state worker: Python objects (`hashmap`: fast, must fit into memory), a local "
    "RocksDB (`rocksdb`), or a store of your own, by the name of its factory.",
)
CUSTOM_OPTIONS: Final = ConfigOption(
    key="state.backend.custom.options",
    type=PARAMETERS,
    description="Options for the factory of a store of your own.",
)


class MemoryShare(msgspec.Struct, frozen=True):
    """The memory that the RocksDB stores of one state worker share."""

    size_bytes: int
    write_buffer_ratio: float
    """Part of RocksDB's own memory for memtables."""
    stores: int
    """Stores that share it."""


class BackendSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings with which a state worker opens its working stores."""

    factory: dict[str, Any] = {}
    """Options for the factory of a store of the user's."""
    rocksdb: dict[str, Any] = {}
    """Fields of `RocksDBOptions`."""
    memory: MemoryShare | None = None
    """None: each RocksDB store has memory of its own."""
