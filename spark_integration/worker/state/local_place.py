"""The local copy of one operator's key groups that a state worker uses and leaves behind, with local recovery on.

Invariants: I9 (a copy is only used if its version is on the line; `BaseRestorer` decides), I10 (what a crash makes it
lose is bounded by the flush interval, unused copies are swept).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from varvite.changelog.restore.local import LocalCopies
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from varvite.changelog.restore.local import CopyRange, LocalCopy, LocalRecovery
    from varvite.changelog.working_stores.contract import WorkingStore
    from varvite.storage.clock import Clock
    from varvite.storage.format.records import Link

_log: Final = logging.getLogger(__name__)
LOCK_WAIT_S: Final = 2.0
"""A process that is ending lets go of the copy within this time."""
BRIEF_WAIT_S: Final = 30.0
"""Timeout of waiting for a standby that is bringing the copy up."""
_LOCK_TICK_S: Final = 0.02


class LocalPlace:
    """Finds, holds and keeps up one copy; for the worker's main thread."""

    def __init__(self, policy: LocalRecovery, key: CopyRange, partition: int, clock: Clock) -> None:
        self._policy = policy
        self._key = key
        self._clock = clock
        self._copies = LocalCopies(policy.root(partition))
        self._held: LocalCopy | None = None
        self._flushed: Link | None = None
        self._flush_at_s = 0.0
        self._is_swept = False

    @property
    def directory(self) -> Path:
        """Of the copy that is held; an empty one is taken if none is. Raises `InvalidRequestError` if there is none."""
        return self.occupy().directory

    def occupy(self) -> LocalCopy:
        """Hold a copy, be it an empty one, which tells a standby of this host that the state is in use here."""
        if self._held is None:
            self._held = self._copies.new(self._key)
        return self._held

    def candidates(self) -> Sequence[LocalCopy]:
        """The copies that may be kept; `keep` must follow. Waits a moment for those of processes that are ending."""
        if self._held is not None:
            return [self._held]
        began_s = self._clock.monotonic_s()
        while True:
            free = self._copies.free(self._key)
            waited_s = self._clock.monotonic_s() - began_s
            is_long = waited_s > (BRIEF_WAIT_S if self._copies.is_held_briefly(self._key) else LOCK_WAIT_S)
            if free or is_long or not self._copies.directories(self._key):
                return free
            self._clock.sleep(_LOCK_TICK_S)

    def keep(self, chosen: LocalCopy | None, candidates: Sequence[LocalCopy]) -> None:
        """Hold one of the candidates; the others are older copies of the same state, and are removed."""
        self._held = chosen
        for copy in candidates:
            if copy is not chosen:
                copy.remove()

    def reusable(self) -> tuple[Path, ...]:
        """Directories of other copies, which processes may be using, whose files may be the wanted ones."""
        held = self._held.directory if self._held is not None else None
        return tuple(path for path in self._copies.directories(self._key) if path != held)

    def discard(self) -> None:
        """Remove the state of the copy; its store must be closed."""
        self._flushed = None
        if self._held is not None:
            self._held.discard()

    def keep_up(self, store: WorkingStore | None) -> None:
        """Flush what a crash would lose, and remove unused copies; called between requests."""
        now_s = self._clock.monotonic_s()
        if isinstance(store, RocksDBStore) and self._flushed != store.version and now_s >= self._flush_at_s:
            store.flush()
            self._flushed = store.version
            self._flush_at_s = now_s + self._policy.flush_interval_ms / 1000
        if not self._is_swept:
            self._is_swept = True
            policy, now_ms = self._policy, self._clock.now_ms()
            for path in self._copies.sweep(policy.unused_age_max_ms, policy.unused_bytes_max, now_ms):
                _log.info("removed the local state in %s, which nobody uses", path)

    def close(self) -> None:
        """Let others have the copy; its store must be closed."""
        if self._held is not None:
            self._held.release()
            self._held = None
