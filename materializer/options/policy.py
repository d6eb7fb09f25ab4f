"""The limits that decide when a range is materialized."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from varvite.storage.object_stores.backoff import Backoff
from varvite.storage.options.declaration import ConfigOption, check_options
from varvite.storage.options.kinds import DURATION, INTEGER, MEMORY_SIZE, number_above

FAILURE_BACKOFF: Final = Backoff(attempts=1, initial_s=1.0, maximum_s=300.0)


@dataclass(frozen=True)
class MaterializePolicy:
    """Triggers of a materialization, and the backoff after failures."""

    interval_ms: int | None = ConfigOption(
        key="state.changelog.periodic-materialize.interval",
        type=DURATION,
        default=600_000,
        at_least=1,
        command_name="--interval",
        description="Time from one materialization to the next. Shorter: shorter replay at a restart, more background "
        "work.",
    ).field()
    """None: no periodic materialization, only the other triggers."""
    log_bytes: int | None = ConfigOption(
        key="materializer.log-bytes",
        type=MEMORY_SIZE,
        default=256 << 20,
        at_least=1,
        command_name="--log-bytes",
        description="Materialize a range of key groups at once when its log has this size.",
    ).field()
    """None: no limit."""
    log_batches: int | None = ConfigOption(
        key="materializer.log-batches",
        type=INTEGER,
        default=1_000,
        at_least=1,
        command_name="--log-batches",
        description="Materialize a range of key groups at once when this many batches follow its last snapshot, "
        "changed or not.",
    ).field()
    """None: no limit."""
    log_ratio: float | None = ConfigOption(
        key="materializer.log-ratio",
        type=number_above(0),
        default=0.05,
        command_name="--log-ratio",
        description="Materialize a range of key groups at once when its log has this many bytes per byte of its last "
        "snapshot, and at least 1 mb; sooner if it changes little within the interval. Smaller: less storage, more "
        "background work.",
    ).field()
    """None: no limit."""
    space_min_bytes: int = ConfigOption(
        key="materializer.space-min",
        type=MEMORY_SIZE,
        default=16 << 20,
        at_least=0,
        command_name="--space-min",
        description="Space that is not worth the requests that would free it: a shorter log of an operator is not "
        "materialized for `materializer.log-ratio`, and less garbage waits for `materializer.collect-interval`. "
        "Smaller: less storage of small states, more requests.",
    ).field()
    replay_ms: int | None = ConfigOption(
        key="materializer.replay-time",
        type=DURATION,
        default=60_000,
        at_least=1,
        command_name="--replay-time",
        description="Materialize a range of key groups at once when replaying its log would take about this time. "
        "Shorter: shorter recovery, more background work.",
    ).field()
    """None: no limit."""
    backoff: Backoff = FAILURE_BACKOFF
    """Pauses after failures; the number of retries is not limited."""
    max_failures_allowed: int = ConfigOption(
        key="state.changelog.max-failures-allowed",
        type=INTEGER,
        default=3,
        at_least=0,
        command_name="--max-failures-allowed",
        description="Report the state as failing after more consecutive failed materializations than this. Unlike in "
        "Flink the job continues: its log only gets longer.",
    ).field()

    def __post_init__(self) -> None:
        check_options(self)
