"""Copies of partitions' state that standbys have on their hosts; placement prefers these hosts."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from varvite.materializer.service.sharing import Membership
from varvite.materializer.standby.record import read_standbys
from varvite.storage.errors import VarviteError
from varvite.storage.format import layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from varvite.materializer.standby.record import OperatorCopies, StandbyRecord
    from varvite.storage.clock import Clock
    from varvite.storage.object_stores.contract import ObjectStore

IN_USE: Final = 0
"""Freshness of a copy that a process of the host uses: older than any that has a seq."""


@dataclass(frozen=True, slots=True)
class StandbyCopies:
    """The copies of a job's standbys, as they have reported them."""

    records: tuple[StandbyRecord, ...] = ()
    operators: frozenset[tuple[str, int]] = frozenset()
    """Uid and parallelism of the job's operators."""

    def by_partition(self, partitions: int) -> tuple[Mapping[str, int], ...]:
        """For each partition of the operators with that parallelism: freshness of its copies, by name of the host.

        A host has a copy if it has report for each of the operators; it is as fresh as the oldest of these.
        """
        uids = {uid for uid, parallelism in self.operators if parallelism == partitions}
        fresh: tuple[dict[str, int], ...] = tuple({} for _ in range(partitions))
        for record in self.records:
            reports = [
                report for report in record.operators if report.parallelism == partitions and report.operator in uids
            ]
            if not uids or len(reports) < len(uids):
                continue
            for partition, seqs in enumerate(zip(*map(_seqs, reports), strict=True)):
                oldest: int = min(seqs)
                if oldest >= IN_USE:
                    fresh[partition].update(dict.fromkeys(record.names, oldest))
        return fresh


def _seqs(report: OperatorCopies) -> list[int]:
    """By partition: the freshness of the copy; below `IN_USE`, there is none."""
    seqs = [IN_USE - 1] * report.parallelism
    ranges: Iterable[tuple[int, int, int]] = (*((first, end, IN_USE) for first, end in report.in_use), *report.copies)
    for first, end, seq in ranges:
        seqs[first:end] = [seq] * (end - first)
    return seqs


NO_COPIES: Final = StandbyCopies()


_log: Final = logging.getLogger(__name__)
_NOT_A_MEMBER: Final = ""


class StandbyWatch:
    """Reads the reports of standbys. `look` is called by one thread at a time, `copies` by any."""

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
        """The reports at the last look, of standbys that are not forgotten."""
        return self._copies

    def look(self) -> None:
        """Read the reports if it is time: one LIST, and one GET per standby."""
        now_ms = round(self._clock.monotonic_s() * 1000)
        if not self._operators or not self._membership.is_due(now_ms):
            return
        try:
            records = read_standbys(self._store, self._job_id)
            self._membership = self._membership.observe({record.host: record.counter for record in records}, now_ms)
            forgotten = self._membership.forgotten(now_ms)
            self._store.delete([layout.standby(host) for host in forgotten])
        except VarviteError as error:
            if not self._is_blind:
                _log.warning("what standbys have cannot be read, partitions are placed without it: %s", error)
            self._is_blind = True
            return
        self._is_blind = False
        self._copies = StandbyCopies(
            tuple(record for record in records if record.host not in forgotten), self._operators
        )
