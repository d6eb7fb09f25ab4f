"""The options of the materializer; they stand among those of `options`."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from varvite.materializer.options.materializer_config import FOLLOWER_MEMORY_MIN_BYTES, PORT_MAX, MaterializerConfig
from varvite.spark_integration.options.types import ConfigOption
from varvite.storage.options.kinds import BOOLEAN, DURATION, INTEGER, MEMORY_SIZE, STRING, URL, number_above


def _defaults(of: type[Any]) -> dict[str, Any]:
    """Default of each field of a dataclass that has one."""
    return {f.name: f.default for f in dataclasses.fields(of) if f.default is not dataclasses.MISSING}


MATERIALIZER_DEFAULTS: Final = _defaults(MaterializerConfig)
"""By field of the configuration."""

MATERIALIZER_OPTIONS: Final[tuple[ConfigOption, ...]] = (
    ConfigOption(
        key="materializer.log-bytes",
        type=MEMORY_SIZE,
        default=MATERIALIZER_DEFAULTS["log_bytes"],
        at_least=1 << 10,
        field="log_bytes",
        description="Log of a range of key groups from which on it is materialized at once.",
    ),
    ConfigOption(
        key="materializer.log-batches",
        type=INTEGER,
        default=MATERIALIZER_DEFAULTS["log_batches"],
        at_least=1,
        field="log_batches",
        description="Batches after its last snapshot from which on a range of key groups is materialized at once.",
    ),
    ConfigOption(
        key="materializer.log-ratio",
        type=number_above(0),
        default=MATERIALIZER_DEFAULTS["log_ratio"],
        field="log_ratio",
        description="Bytes of log per byte of the last snapshot from which on a range of key groups is materialized at "
        "once, if its log has at least 1 mb; what changes little within the interval is sooner. Smaller: less storage, "
        "more background work.",
    ),
    ConfigOption(
        key="materializer.replay-time",
        type=DURATION,
        default=MATERIALIZER_DEFAULTS["replay_ms"],
        at_least=1,
        field="replay_ms",
        description="Estimated time of replaying the log of a range of key groups from which on it is materialized at "
        "once. Shorter: shorter recovery, more background work.",
    ),
    ConfigOption(
        key="materializer.space-ratio",
        type=number_above(1),
        default=MATERIALIZER_DEFAULTS["space_ratio"],
        field="space_ratio",
        description="Bytes of snapshot per byte of live state, as estimated, from which on the files of a range of key "
        "groups are rewritten before they are uploaded; above 1. Smaller: less storage, more uploaded.",
    ),
    ConfigOption(
        key="materializer.retention",
        type=DURATION,
        default=MATERIALIZER_DEFAULTS["retention_ms"],
        at_least=0,
        field="retention_ms",
        description="Checkpoints of the newest so long stay complete, by the job's own times, besides those of "
        "`execution.checkpointing.num-retained`. Longer: longer back, and more storage. 0: only those. Not "
        "set: as 0, but what another materializer keeps so stays.",
    ),
    ConfigOption(
        key="materializer.parallel",
        type=INTEGER,
        default=MATERIALIZER_DEFAULTS["parallel"],
        at_least=1,
        field="parallel",
        description="Ranges of key groups materialized at the same time: about so many CPUs are used.",
    ),
    ConfigOption(
        key="materializer.memory",
        type=MEMORY_SIZE,
        default=MATERIALIZER_DEFAULTS["memory_bytes"],
        at_least=FOLLOWER_MEMORY_MIN_BYTES,
        field="memory_bytes",
        description="Memory of the RocksDB stores of all ranges that are being materialized, in equal parts.",
    ),
    ConfigOption(
        key="materializer.disk",
        type=MEMORY_SIZE,
        default=None,
        at_least=1 << 20,
        field="disk_bytes",
        description="Size of the materializer's local copies above which those that were longest not used are removed; "
        "they are fetched again when they are needed. Not set: no limit.",
    ),
    ConfigOption(
        key="materializer.bandwidth",
        type=MEMORY_SIZE,
        default=None,
        at_least=64 << 10,
        field="bandwidth_bytes_per_s",
        description="Bytes per second that the materializer exchanges with the storage, log and snapshots, both "
        "directions together. Not set: no limit.",
    ),
    ConfigOption(
        key="materializer.metrics-port",
        type=INTEGER,
        default=None,
        at_least=0,
        at_most=PORT_MAX,
        field="metrics_port",
        description="Port on which the materializer serves `/metrics`, `/healthz` and `/readyz`; 0 takes a free one. "
        "Not set: it serves nothing.",
    ),
    ConfigOption(
        key="materializer.metrics-host",
        type=STRING,
        default=None,
        field="metrics_host",
        description="Address that they are served on. Not set: all addresses of the machine.",
    ),
    ConfigOption(
        key="materializer.poll-interval",
        type=DURATION,
        default=MATERIALIZER_DEFAULTS["poll_ms"],
        at_least=1,
        field="poll_ms",
        description="Time between two looks of the materializer at the job's chain.",
    ),
    ConfigOption(
        key="materializer.discovery-interval",
        type=DURATION,
        default=MATERIALIZER_DEFAULTS["discovery_ms"],
        at_least=1,
        field="discovery_ms",
        description="Time between two listings of the storage for new jobs, where the materializer follows all jobs.",
    ),
    ConfigOption(
        key="materializer.collect-interval",
        type=DURATION,
        default=MATERIALIZER_DEFAULTS["collect_ms"],
        at_least=1,
        field="collect_ms",
        description="Time between two garbage collections of a job's objects.",
    ),
    ConfigOption(
        key="materializer.grace",
        type=DURATION,
        default=MATERIALIZER_DEFAULTS["grace_ms"],
        at_least=0,
        field="grace_ms",
        description="Age from which on an upload that was never published counts as abandoned.",
    ),
    ConfigOption(
        key="materializer.working-directory",
        type=URL,
        default=None,
        field="working_directory",
        description="Local directory of the materializer's RocksDB copies, a cache. Not set: a temporary directory.",
    ),
    ConfigOption(
        key="materializer.share",
        type=BOOLEAN,
        default=MATERIALIZER_DEFAULTS["share"],
        field="share",
        description="Share the work with other materializers of the same storage.",
    ),
)
