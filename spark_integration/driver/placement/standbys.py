"""On which hosts standbys have copies of the state of which partition, as placement asks for it; pure (design 9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from varve.materializer.standby.record import OperatorCopies, StandbyRecord

IN_USE: Final = 0
"""How fresh the copy is that a process of the host uses: older than any that says its seq."""


@dataclass(frozen=True, slots=True)
class StandbyCopies:
    """What the standbys of a job have told."""

    records: tuple[StandbyRecord, ...] = ()
    operators: frozenset[tuple[str, int]] = frozenset()
    """Uid and parallelism of the job's operators."""

    def by_partition(self, partitions: int) -> tuple[Mapping[str, int], ...]:
        """For each partition of the operators with that parallelism: how fresh its copies are, by name of the host.

        A host has a copy if it has one for each of the operators; it is as fresh as the oldest of these.
        """
        wanted = {uid for uid, parallelism in self.operators if parallelism == partitions}
        found: tuple[dict[str, int], ...] = tuple({} for _ in range(partitions))
        for record in self.records:
            told = [one for one in record.operators if one.parallelism == partitions and one.operator in wanted]
            if not wanted or len(told) < len(wanted):
                continue
            for partition, seqs in enumerate(zip(*map(_seqs, told), strict=True)):
                oldest: int = min(seqs)
                if oldest >= IN_USE:
                    found[partition].update(dict.fromkeys(record.names, oldest))
        return found


def _seqs(told: OperatorCopies) -> list[int]:
    """By partition: how fresh the copy is; below `IN_USE`, there is none."""
    seqs = [IN_USE - 1] * told.parallelism
    ranges: Iterable[tuple[int, int, int]] = (*((first, end, IN_USE) for first, end in told.in_use), *told.copies)
    for first, end, seq in ranges:
        seqs[first:end] = [seq] * (end - first)
    return seqs


NO_COPIES: Final = StandbyCopies()
