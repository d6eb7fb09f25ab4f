"""Options of uploads and downloads."""

from __future__ import annotations

from typing import Final

from varvite.storage.options.declaration import ConfigOption
from varvite.storage.options.kinds import DURATION, INTEGER, MEMORY_SIZE

UPLOAD_THREADS: Final = ConfigOption(
    key="state.changelog.dstl.dfs.upload.num-threads",
    type=INTEGER,
    default=4,
    at_least=1,
    description="Objects that one state worker uploads at the same time.",
)
UPLOAD_TIMEOUT: Final = ConfigOption(
    key="state.changelog.dstl.dfs.upload.timeout",
    type=DURATION,
    default=10_000,
    at_least=1,
    description="Start a second attempt of an upload that has no answer after this time; the first success counts. "
    "Shorter: a slow server delays a batch less, and gets more load.",
)
UPLOAD_DEADLINE: Final = ConfigOption(
    key="state.changelog.dstl.dfs.upload.deadline",
    type=DURATION,
    default=120_000,
    at_least=1,
    description="Fail an upload, and with it the batch, if it is not done this long after it was queued, or if it "
    "waits this long for room in flight. The batch is then executed again.",
)
UPLOAD_ATTEMPTS: Final = ConfigOption(
    key="state.changelog.dstl.dfs.upload.max-attempts",
    type=INTEGER,
    default=4,
    at_least=1,
    description="Attempts of one upload, the first included; then the batch fails.",
)
UPLOAD_IN_FLIGHT: Final = ConfigOption(
    key="state.changelog.dstl.dfs.upload.max-in-flight",
    type=MEMORY_SIZE,
    default=256 << 20,
    at_least=1 << 20,
    description="Bytes that all state workers of the job on one executor have queued for upload and not yet stored. "
    "Each has an equal part; above it the function waits, until a larger object can go alone. Attempts that hang count "
    "until they end.",
)
DOWNLOAD_THREADS: Final = ConfigOption(
    key="execution.state-recovery.download.num-threads",
    type=INTEGER,
    default=8,
    at_least=1,
    description="Concurrent requests with which a state worker fetches a snapshot, and again as many for the "
    "log. More: a faster restore where the storage has the bandwidth, more load on it when all workers restore.",
)
DOWNLOAD_IN_FLIGHT: Final = ConfigOption(
    key="execution.state-recovery.download.max-in-flight",
    type=MEMORY_SIZE,
    default=64 << 20,
    at_least=1 << 20,
    description="Bytes that a restoring state worker has requested and not yet written, for the snapshot and again for "
    "the log. Less: less memory, and fewer concurrent requests.",
)
