"""`MaterializerContext`: the collaborators that all parts of a materializer share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from varvite.materializer.fold.context import FoldContext
from varvite.materializer.monitoring.health import Health
from varvite.materializer.service.announcements import Announcements

if TYPE_CHECKING:
    from varvite.materializer.monitoring.events import Reporter
    from varvite.materializer.resources.stop_signal import StopSignal


@dataclass(frozen=True, kw_only=True)
class MaterializerContext(FoldContext):
    """The context of a fold, and what the service adds to it: a reporter, the stop flag and the health."""

    reporter: Reporter
    stop: StopSignal
    health: Health = field(default_factory=Health)
    announcements: Announcements = field(default_factory=Announcements)
    """Entries that the driver announces, if it runs this materializer."""
