"""Options of a job's storage: its location, encryption, and the place of its log data."""

from __future__ import annotations

from typing import Final

from varvite.storage.job.log_store import FILESYSTEM
from varvite.storage.object_stores.encrypted.keys import ENVIRONMENT
from varvite.storage.options.declaration import ConfigOption
from varvite.storage.options.kinds import URL, word_or_name

DIRECTORY: Final = ConfigOption(
    key="execution.checkpointing.dir",
    type=URL,
    deprecated_keys=("state.checkpoints.dir",),
    description="Root of the storage: a path or URL; the job's objects are in the directory named like the query. "
    "Required.",
)
KEY_PROVIDER: Final = ConfigOption(
    key="storage.encryption.key-provider",
    type=word_or_name(ENVIRONMENT, what="a key provider"),
    description="Encrypt what a new job stores, with keys from the environment of each process (`environment`), or "
    "from a provider of your own.",
    unset="a new job is not encrypted; one that is stays so, with keys from the environment",
)
LOG_STORAGE: Final = ConfigOption(
    key="state.changelog.storage",
    type=word_or_name(FILESYSTEM, what="a factory of log stores"),
    default=FILESYSTEM,
    description="Storage of a new job's log data: an object store, or a log store of your own, by the name of its "
    "factory (docs/operate/log-stores.md). Holds for the life of the job.",
)
LOG_BASE_PATH: Final = ConfigOption(
    key="state.changelog.dstl.dfs.base-path",
    type=URL,
    description="Root of a new job's log data, such as a faster bucket. It is opened with the options of the storage "
    "if both are of one kind. Holds for the life of the job.",
    unset="in the storage itself",
)
