"""The choice of the executor that each partition's tasks ask for; pure.

A partition stays with its executor, and so with its state worker, for as long as the executor lives and has no more
than its share. What has to move goes to where a copy of its state is: to a host whose standby has one, the freshest if
it can be had, or to the host that it was on. Correctness never depends on any of this (I9).
"""

from __future__ import annotations

import enum
import hashlib
from collections import Counter, defaultdict
from dataclasses import dataclass
from operator import ne
from typing import TYPE_CHECKING, Final

from varvite.spark_integration.driver.placement.standbys import NO_COPIES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from varvite.spark_integration.driver.placement.standbys import StandbyCopies
    from varvite.spark_integration.messages.operator_summaries import OperatorSummaries

REDUCE_LOCALITY: Final = "spark.shuffle.reduceLocality.enabled"
"""Spark's setting, fixed when the application starts: reduce tasks prefer hosts with much of their input."""


class JoinForm(enum.Enum):
    """The form of the join of rows with the anchor, so that the anchor's wishes are the first that Spark finds."""

    HASH = "hash"
    """Rows stream past the anchor and keep their order. Only where reduce tasks have no wishes of their own."""
    MERGE = "merge"
    """The anchor comes first, and a partition's rows are buffered, on disk if need be."""


@dataclass(frozen=True, slots=True, order=True)
class Executor:
    """A process that runs tasks."""

    id: str
    """As Spark calls it; never used again within an application."""
    host: str


@dataclass(frozen=True, slots=True)
class Placement:
    """The executors of the partitions of operators with one parallelism."""

    executors: tuple[Executor, ...] = ()
    """All that can run tasks, in order of preference."""
    by_partition: tuple[Executor, ...] = ()
    came_from: tuple[str, ...] = ()
    """By partition: the host that it was on before it last moved; "" if it never did."""

    @property
    def needs_anchor(self) -> bool:
        """Could a task run somewhere else?"""
        return len(self.executors) > 1


def is_one_process(master: str) -> bool:
    """Are driver and executor one process, so that there is nothing to choose?"""
    return master == "local" or master.startswith("local[")


def join_form(reduce_locality: str) -> JoinForm:
    """The form that holds under that value of `REDUCE_LOCALITY`."""
    return JoinForm.HASH if reduce_locality.strip().lower() == "false" else JoinForm.MERGE


def next_placement(
    before: Placement,
    partitions: int,
    executors: Collection[Executor],
    salt: str,
    copies: StandbyCopies = NO_COPIES,
) -> Placement:
    """The placement on these executors that moves the fewest partitions and is even: numbers differ by at most one.

    Args:
        before: The placement so far.
        partitions: How many there are; as many as before, if there was a placement.
        executors: Those that can run tasks now. Without any nothing is placed, but where partitions were is kept.
        salt: Another one for each job, so that small jobs do not all begin with the same executor.
        copies: Where standbys have copies: as many partitions as possible that must move go there.
    """
    ranked = tuple(sorted(executors, key=lambda e: (hashlib.sha256(f"{salt}/{e.id}".encode()).digest(), e)))
    if ranked == before.executors:
        return before
    if not ranked:
        return Placement((), before.by_partition, before.came_from)
    held: dict[Executor, list[int]] = {executor: [] for executor in ranked}
    for partition, executor in enumerate(before.by_partition):
        if executor in held:
            held[executor].append(partition)
    fresh = copies.by_partition(partitions)
    came_from = before.came_from or ("",) * partitions
    room = _shares(held, partitions, fresh)
    new_hosts = {executor.host for executor in ranked if not held[executor]}
    chosen: dict[int, Executor] = {}
    for executor, partitions_held in held.items():
        by_ties = sorted(partitions_held, key=lambda p: (not new_hosts.isdisjoint(fresh[p]), came_from[p] in new_hosts))
        kept = by_ties[: room[executor]]
        chosen.update(dict.fromkeys(kept, executor))
        room[executor] -= len(kept)
    homeless = [partition for partition in range(partitions) if partition not in chosen]
    last_hosts = {p: (*(e.host for e in before.by_partition[p : p + 1]), came_from[p]) for p in homeless}
    chosen |= most_wishes({p: _wishes(fresh[p], last_hosts[p], ranked) for p in homeless}, room)
    for partition in homeless:
        if partition not in chosen:
            target = chosen[partition] = max(ranked, key=lambda e: room[e])
            room[target] -= 1
    by_partition = tuple(chosen[partition] for partition in range(partitions))
    moved = [p for p, executor in enumerate(before.by_partition) if executor != by_partition[p]]
    left = {partition: before.by_partition[partition].host for partition in moved}
    return Placement(ranked, by_partition, tuple(left.get(p, host) for p, host in enumerate(came_from)))


def most_wishes(wishes: Mapping[int, Sequence[Executor]], room: dict[Executor, int]) -> dict[int, Executor]:
    """An executor for as many partitions as can have one that they wish for, rather an earlier wish than a later one.

    Partitions that have one give it up for another of their wishes, if a later one can have a wish that way (augmenting
    paths; so no other choice fulfils more).

    Args:
        wishes: By partition.
        room: How many partitions the executors take; what is taken is subtracted.
    """
    chosen: dict[int, Executor] = {}
    taken: dict[Executor, set[int]] = defaultdict(set)
    hopeless: set[Executor] = set()
    for partition, wished in wishes.items():
        # Executors that can be had by moving partitions from one to the next, each with who would come and from where.
        reached: dict[Executor, tuple[int, Executor | None]] = {
            e: (partition, None) for e in wished if e not in hopeless
        }
        to_look_at = list(reached)
        for executor in to_look_at:
            if room[executor]:
                break
            for other in sorted(taken[executor]):
                for next_one in wishes[other]:
                    if next_one not in reached and next_one not in hopeless:
                        reached[next_one] = other, executor
                        to_look_at.append(next_one)
        else:
            hopeless |= reached.keys()
            continue
        room[executor] -= 1
        step: Executor | None = executor
        while step is not None:
            comes, leaves = reached[step]
            chosen[comes] = step
            taken[step].add(comes)
            if leaves is not None:
                taken[leaves].discard(comes)
            step = leaves
    return chosen


def _shares(
    held: Mapping[Executor, Sequence[int]], partitions: int, fresh: Sequence[Mapping[str, int]]
) -> dict[Executor, int]:
    """Partitions for each executor; one more for those that have the most, then for those with the freshest copies."""
    least, larger = divmod(partitions, len(held))
    homeless = set(range(partitions)).difference(*held.values())
    freshest = Counter(host for p in homeless for host, seq in fresh[p].items() if seq == max(fresh[p].values()))
    fullest = sorted(held, key=lambda e: (-max(len(held[e]), least), -freshest[e.host]))
    return {executor: least + (place < larger) for place, executor in enumerate(fullest)}


def _wishes(fresh: Mapping[str, int], last_hosts: Sequence[str], executors: Sequence[Executor]) -> list[Executor]:
    """Executors on hosts with a copy of a partition, the freshest first, then those where it has been."""
    if not fresh and not any(last_hosts):
        return []
    places = dict.fromkeys([*sorted(fresh, key=lambda host: -fresh[host]), *last_hosts])
    return [executor for host in places for executor in executors if executor.host == host]


class PartitionMoves:
    """Counts the partitions that ran on another executor than in the batch before."""

    def __init__(self) -> None:
        self._executors: dict[str, list[str]] = {}
        """By operator: the executor of each partition."""

    def after(self, summaries: Iterable[OperatorSummaries]) -> int:
        """Note a batch that has ended, by its operators' summaries; answers the number of partitions that moved."""
        now = {operator.operator: operator.executor_of() for operator in summaries}
        before, self._executors = self._executors, now
        return sum(sum(map(ne, executors, before.get(operator, executors))) for operator, executors in now.items())
