"""What every part of a materializer is given: configuration, clock, tokens, and where to report, work and stop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from varvite.materializer.monitoring.health import Health
from varvite.materializer.monitoring.metrics import MaterializerMetrics

if TYPE_CHECKING:
    from varvite.materializer.monitoring.events import Reporter
    from varvite.materializer.options.materializer_config import MaterializerConfig
    from varvite.materializer.resources.bandwidth import TokenBucket
    from varvite.materializer.resources.stop_signal import StopSignal
    from varvite.materializer.resources.workspace import Workspace
    from varvite.storage.clock import Clock, TokenSource


@dataclass(frozen=True)
class Surroundings:
    """See the module."""

    config: MaterializerConfig
    clock: Clock
    tokens: TokenSource
    reporter: Reporter
    workspace: Workspace
    stop: StopSignal
    metrics: MaterializerMetrics = field(default_factory=MaterializerMetrics)
    health: Health = field(default_factory=Health)
    bandwidth: TokenBucket | None = None
    """What log and snapshot files pay for their bytes with; None: no limit."""

    def now_ms(self) -> int:
        """Time for schedules and durations, monotonic."""
        return round(self.clock.monotonic_s() * 1_000)
