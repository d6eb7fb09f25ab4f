"""The collaborators of a fold: configuration, clock, tokens, local directory, metrics and bandwidth."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from varvite.materializer.monitoring.metrics import MaterializerMetrics

if TYPE_CHECKING:
    from varvite.materializer.options.materializer_config import MaterializerConfig
    from varvite.materializer.resources.bandwidth import TokenBucket
    from varvite.materializer.resources.workspace import Workspace
    from varvite.storage.clock import Clock, TokenSource


@dataclass(frozen=True, kw_only=True)
class FoldContext:
    """The collaborators that the folds of all ranges share."""

    config: MaterializerConfig
    clock: Clock
    tokens: TokenSource
    workspace: Workspace
    metrics: MaterializerMetrics = field(default_factory=MaterializerMetrics)
    bandwidth: TokenBucket | None = None
    """The bucket that log and snapshot files take their bytes from; None: no limit."""

    def now_ms(self) -> int:
        """Time for schedules and durations, monotonic."""
        return round(self.clock.monotonic_s() * 1_000)
