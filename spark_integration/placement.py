"""Which executor each partition's tasks ask for, and when that changes; pure (design 9).

A partition stays with its executor, and so with its state worker, for as long as the executor lives and has no more
than its share. What has to move goes to where an older copy of its state may lie: to an executor on the same host.
Correctness never depends on any of this (I9).
"""

from __future__ import annotations

import enum
import hashlib
from collections import defaultdict
from dataclasses import dataclass
from operator import ne
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from varve.spark_integration.protocol import Summary

REDUCE_LOCALITY: Final = "spark.shuffle.reduceLocality.enabled"
"""Spark's setting, fixed when the application starts: reduce tasks prefer hosts with much of their input."""


class JoinForm(enum.Enum):
    """How rows are joined with the anchor, so that its wishes are the first that Spark finds."""

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
    """Where the partitions of operators with one parallelism belong."""

    executors: tuple[Executor, ...] = ()
    """All that can run tasks, the one that is first asked for first."""
    by_partition: tuple[Executor, ...] = ()
    came_from: tuple[str, ...] = ()
    """By partition: the host that it was on before it last moved; "" if it never did."""

    @property
    def needs_anchor(self) -> bool:
        """Whether a task could run somewhere else."""
        return len(self.executors) > 1


def is_one_process(master: str) -> bool:
    """Whether driver and executor are one process, so that there is nothing to choose."""
    return master == "local" or master.startswith("local[")


def join_form(reduce_locality: str) -> JoinForm:
    """The form that holds under that value of `REDUCE_LOCALITY`."""
    return JoinForm.HASH if reduce_locality.strip().lower() == "false" else JoinForm.MERGE


def next_placement(before: Placement, partitions: int, executors: Collection[Executor], salt: str) -> Placement:
    """The placement on these executors that moves the fewest partitions and is even: numbers differ by at most one.

    Args:
        before: The placement so far.
        partitions: How many there are; as many as before, if there was a placement.
        executors: Those that can run tasks now. Without any nothing is placed, but where partitions were is kept.
        salt: Another one for each job, so that small jobs do not all begin with the same executor.
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
    least, larger = divmod(partitions, len(ranked))
    fullest = sorted(ranked, key=lambda e: -len(held[e]))
    room = {executor: least + (place < larger) for place, executor in enumerate(fullest)}
    came_from = before.came_from or ("",) * partitions
    new_hosts = {executor.host for executor in ranked if not held[executor]}
    chosen: dict[int, Executor] = {}
    for executor, own in held.items():
        kept = sorted(own, key=lambda p: came_from[p] in new_hosts)[: room[executor]]
        chosen.update(dict.fromkeys(kept, executor))
        room[executor] -= len(kept)
    for partition in range(partitions):
        if partition not in chosen:
            hosts = {came_from[partition], *(e.host for e in before.by_partition[partition : partition + 1])}
            target = min((e for e in ranked if room[e]), key=lambda e: (e.host not in hosts, -room[e]))
            chosen[partition] = target
            room[target] -= 1
    by_partition = tuple(chosen[partition] for partition in range(partitions))
    moved = [p for p, executor in enumerate(before.by_partition) if executor != by_partition[p]]
    left = {partition: before.by_partition[partition].host for partition in moved}
    return Placement(ranked, by_partition, tuple(left.get(p, host) for p, host in enumerate(came_from)))


def executor_key(home: Path) -> str:
    """What tells the executor of a state workers' directory from all others: its block-manager directory's name."""
    return home.parent.name


class PartitionMoves:
    """Counts the partitions that ran on another executor than in the batch before."""

    def __init__(self) -> None:
        self._executors: dict[str, list[str]] = {}
        """By operator: the executor of each partition."""

    def after(self, summaries: Iterable[Summary]) -> int:
        """Note a batch that has ended, by its summaries, of each operator in order of partition; how many moved."""
        now: dict[str, list[str]] = defaultdict(list)
        for summary in summaries:
            now[summary.operator].append(summary.executor)
        before, self._executors = self._executors, now
        return sum(sum(map(ne, executors, before.get(operator, executors))) for operator, executors in now.items())
