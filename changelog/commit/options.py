"""Options of what a commit holds, and of how many commits stay complete."""

from __future__ import annotations

from typing import Final

from varvite.changelog.commit.batch_result import INLINE_BYTES_MAX
from varvite.changelog.commit.gathered_segments import GATHERED_BYTES_MAX
from varvite.storage.options.declaration import ConfigOption
from varvite.storage.options.kinds import BOOLEAN, INTEGER, MEMORY_SIZE

RETAINED_MIN: Final = 2
"""The newest commit and the one before must stay: Spark may ask for the newest batch again."""
PATH_MAX: Final = 128
"""Commits after which a full entry is written in any case."""

CHANGELOG_ENABLED: Final = ConfigOption(
    key="state.changelog.enabled",
    type=BOOLEAN,
    deprecated_keys=("state.backend.changelog.enabled",),
    description="Write state changes to the changelog, and snapshots in the background. Off: every checkpoint writes "
    "a snapshot before it is acknowledged.",
    unset="off",
)
PERSIST_THRESHOLD: Final = ConfigOption(
    key="state.changelog.dstl.dfs.preemptive-persist-threshold",
    type=MEMORY_SIZE,
    default=5 << 20,
    at_least=1,
    description="Upload the changes of one operator and partition during the batch when they have about this size in "
    "the log. Smaller: less to upload at the end of a long batch, more objects.",
)
GATHERED_SIZE: Final = ConfigOption(
    key="state.changelog.dstl.dfs.batch.persist-size-threshold",
    type=MEMORY_SIZE,
    default=10 << 20,
    at_least=0,
    at_most=GATHERED_BYTES_MAX,
    description="Changes of all partitions together that the driver gathers and stores as one object, if they are too "
    "large for the checkpoint's entry. A partition above its share, or above 1 mb, uploads an object of its own. "
    "Larger: fewer requests with many partitions, more bytes through the driver. 0: nothing is gathered.",
)
RETAINED: Final = ConfigOption(
    key="execution.checkpointing.num-retained",
    type=INTEGER,
    default=3,
    at_least=RETAINED_MIN,
    deprecated_keys=("state.checkpoints.num-retained",),
    description="Checkpoints that stay complete, the newest included. More: further back, more storage.",
)
FULL_EVERY: Final = ConfigOption(
    key="checkpoint.full-every",
    type=INTEGER,
    default=32,
    at_least=1,
    at_most=PATH_MAX,
    description="Write a full entry every N checkpoints, and soon after a snapshot is adopted. A full entry lists the "
    "whole state and packs small segments. Smaller: fewer reads at a restart, more bytes written.",
)
INLINE_SIZE: Final = ConfigOption(
    key="checkpoint.inline-size-max",
    type=MEMORY_SIZE,
    default=INLINE_BYTES_MAX,
    at_least=0,
    at_most=INLINE_BYTES_MAX,
    description="Changes of all partitions together that travel inside the checkpoint's own entry; a partition above "
    "its share uploads an object. Smaller: a smaller entry, more objects per checkpoint.",
)
