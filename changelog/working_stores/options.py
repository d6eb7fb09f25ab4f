"""Options that choose the working store."""

from __future__ import annotations

from typing import Final

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
