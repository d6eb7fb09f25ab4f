"""Looks for published snapshots in the background, so that the driver adopts them without listing when it commits.

The same thread reads the reports of standbys, where partitions are placed.

Invariants: I7 (only what `decide_adoption` allows is adopted; one that is seen late is adopted by a later commit).
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from varvite.changelog.commit.adopt_decision import TileSnapshot, decide_adoption
from varvite.changelog.commit.adoption_rules import shared_files
from varvite.changelog.commit.plan import NOTHING_ADOPTED, Adoption
from varvite.changelog.retention.snapshots import SnapshotReader
from varvite.storage.errors import VarviteError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from varvite.changelog.chain.view import LineView
    from varvite.spark_integration.driver.placement.standbys import StandbyWatch
    from varvite.storage.format.records import SnapshotDescriptor, SnapshotFloor
    from varvite.storage.object_stores.contract import ObjectStore

_log: Final = logging.getLogger(__name__)
POLL_S: Final = 2.0
"""Shortest interval of the LIST requests, which are off the acknowledge path."""
RARE_POLL_S: Final = 60.0
"""Longest interval."""


@dataclass(frozen=True)
class LookPause:
    """The pause between two looks: a fifth of the time between two new snapshots, or the time since the last one.

    The next fold waits for the adoption, so a late look makes the log longer: with a fifth by a quarter. A look costs a
    LIST.
    """

    quiet_s: float = 0.0
    """Time since the last new snapshot."""
    gap_s: float = 0.0
    """Time between the last two."""

    def seconds(self, shortest_s: float, longest_s: float) -> float:
        """The pause before the next look."""
        is_expected = self.quiet_s < 2 * self.gap_s
        return min(max(self.gap_s / 5 if is_expected else self.quiet_s, shortest_s), longest_s)

    def after(self, pause_s: float, *, is_new: bool) -> LookPause:
        """The state after this pause and a look, which has seen a new snapshot or none."""
        quiet_s = self.quiet_s + pause_s
        return LookPause(0.0, quiet_s) if is_new else LookPause(quiet_s, self.gap_s)


class BaseSize(NamedTuple):
    """Stored bytes of a snapshot."""

    full_bytes: int
    inc_bytes: int
    """Bytes that were uploaded for it; the rest was there already."""


class SnapshotWatch:
    """A thread that reads new descriptors. `adoption` is called by the committing thread and does no I/O."""

    def __init__(
        self, store: ObjectStore, job_id: str, poll_s: float = POLL_S, rare_poll_s: float = RARE_POLL_S
    ) -> None:
        self._reader = SnapshotReader(store, job_id)
        self._job_id = job_id
        self._poll_s = poll_s
        self._rare_poll_s = rare_poll_s
        self._lock = threading.Lock()
        self._candidates: tuple[SnapshotDescriptor, ...] = ()
        self._tile_files: dict[TileSnapshot, frozenset[str]] = {}
        self._base_sizes: dict[TileSnapshot, BaseSize] = {}
        self._view: LineView | None = None
        self._floors: tuple[SnapshotFloor, ...] = ()
        self._standbys: StandbyWatch | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="varvite-snapshot-watch", daemon=True)

    def start(self, view: LineView, floors: tuple[SnapshotFloor, ...], standbys: StandbyWatch | None = None) -> None:
        """Begin to look, from this state on; reads the reports of standbys once, if given, before it returns."""
        self._view, self._floors, self._standbys = view, floors, standbys
        if standbys is not None:
            standbys.look()
        self._thread.start()

    def adoption(self, view: LineView, floors: tuple[SnapshotFloor, ...]) -> Adoption:
        """The snapshots that the next commit adopts, of those that the last look has seen."""
        with self._lock:
            self._view, self._floors = view, floors
            candidates, tile_files = self._candidates, self._tile_files
        if not candidates:
            return NOTHING_ADOPTED
        return decide_adoption(view, floors, candidates, tile_files, self._job_id)

    @property
    def base_sizes(self) -> Mapping[TileSnapshot, BaseSize]:
        """Of the snapshots that the view's tiles name, as of the last look."""
        return self._base_sizes

    def close(self) -> None:
        """End the thread."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(self._poll_s + 30)

    def _run(self) -> None:
        self._look()  # at once: a query that processes what there is and ends may not last until the next time
        pause, waited_s = LookPause(), 0.0
        while not self._stopped.wait(self._poll_s):
            waited_s += self._poll_s
            if self._standbys is not None:
                self._standbys.look()
            if waited_s >= pause.seconds(self._poll_s, self._rare_poll_s):
                pause, waited_s = pause.after(waited_s, is_new=self._look()), 0.0

    def _look(self) -> bool:
        """Read what is new; True if there is a snapshot that was not there before."""
        with self._lock:
            view, floors, before = self._view, self._floors, self._candidates
        if view is None:
            return False
        try:
            bases = self._reader.tile_snapshots(view)
            candidates = self._reader.candidates(floors)
        except VarviteError as error:
            _log.warning("looking for snapshots failed, the log stays longer: %s", error)
            return False
        with self._lock:
            self._candidates = candidates
            self._tile_files = {name: frozenset(file.name for file in base.files) for name, base in bases.items()}
            self._base_sizes = {name: base_size(base) for name, base in bases.items()}
        return any(candidate not in before for candidate in candidates)


def base_size(d: SnapshotDescriptor) -> BaseSize:
    """The size of a snapshot."""
    shared = shared_files(d)
    return BaseSize(
        sum(file.size_bytes for file in d.files),
        sum(file.size_bytes for file in d.files if file.name not in shared),
    )
