"""Reads what the job's standbys tell, for the placement of partitions; in the thread that looks for snapshots.

Nothing waits for it but the first placement of a run. What cannot be read, or has not moved for long by this process's
own clock, does not count.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from varve.materializer.service.sharing import Membership
from varve.materializer.standby.record import read_standbys
from varve.spark_integration.driver.placement.standbys import NO_COPIES, StandbyCopies
from varve.storage.errors import VarveError
from varve.storage.format import layout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from varve.storage.clock import Clock
    from varve.storage.object_stores.contract import ObjectStore

_log: Final = logging.getLogger(__name__)
_NOT_A_MEMBER: Final = ""


class StandbyWatch:
    """See the module. `look` is called by one thread at a time, `copies` by any."""

    def __init__(self, store: ObjectStore, job_id: str, operators: Mapping[str, int], clock: Clock) -> None:
        """Nothing is read yet.

        Args:
            store: The job's.
            job_id: Its id.
            operators: Those whose state workers take copies over, each with its parallelism; without any nothing is
                ever read.
            clock: Its monotonic time counts.
        """
        self._store = store
        self._job_id = job_id
        self._operators = frozenset(operators.items())
        self._clock = clock
        self._membership = Membership(_NOT_A_MEMBER)
        self._copies = NO_COPIES
        self._is_blind = False

    def copies(self) -> StandbyCopies:
        """What was told at the last look, by standbys that are not forgotten."""
        return self._copies

    def look(self) -> None:
        """Read what is told, if it is time: one LIST, and one GET per standby."""
        now_ms = round(self._clock.monotonic_s() * 1000)
        if not self._operators or not self._membership.is_due(now_ms):
            return
        try:
            records = read_standbys(self._store, self._job_id)
            self._membership = self._membership.observe({one.host: one.counter for one in records}, now_ms)
            forgotten = self._membership.forgotten(now_ms)
            self._store.delete([layout.standby(host) for host in forgotten])
        except VarveError as error:
            if not self._is_blind:
                _log.warning("what standbys have cannot be read, partitions are placed without it: %s", error)
            self._is_blind = True
            return
        self._is_blind = False
        self._copies = StandbyCopies(tuple(one for one in records if one.host not in forgotten), self._operators)
