"""A standby among those of its job: the copies of the others, and the partitions that it follows.

The standbys share the partitions by a rendezvous hash, as materializers share ranges; `followers` of them follow each
partition. Hosts on which a process uses a partition's state come last: the loss of such a host loses both. All
operators' copies of a partition are on the same hosts. A standby judges by its own monotonic clock which others are
alive. An error makes it follow too much or too little, which costs a restore at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from varvite.materializer.service.sharing import Membership, by_weight
from varvite.materializer.standby.record import StandbyRecord, encode_standby, read_standbys
from varvite.storage.format import layout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from varvite.materializer.standby.record import OperatorCopies
    from varvite.storage.clock import Clock
    from varvite.storage.object_stores.contract import ObjectStore

_BEATS_MIN: Final = 2
"""Heartbeats after which standbys that started at the same time have seen each other."""


class StandbyMember:
    """This host's standby, and its observations of the others; for one thread."""

    def __init__(
        self, store: ObjectStore, job_id: str, names: Sequence[str], clock: Clock, followers: int | None
    ) -> None:
        """Write nothing yet.

        Args:
            store: The job's store.
            job_id: Its id.
            names: Names of this host; the first is unique among the standbys of the job.
            clock: Source of monotonic time.
            followers: Number of standbys that follow a partition; None: all of them.
        """
        self._store = store
        self._record = StandbyRecord(job_id=job_id, host=names[0], names=tuple(names))
        self._clock = clock
        self._followers = followers
        self._membership = Membership(names[0])
        self._alive: list[tuple[str, frozenset[tuple[int, int]]]] = []
        """The hosts of the living standbys, this one included, and the partitions that are in use there."""
        self._share: dict[tuple[int, int], bool] = {}

    @property
    def is_due(self) -> bool:
        """Is the next heartbeat due?"""
        return self._membership.is_due(self._now_ms)

    @property
    def knows_its_share(self) -> bool:
        """Have the others had the time to write their records?"""
        return self._followers is None or self._membership.counter >= _BEATS_MIN

    def beat(self, operators: Sequence[OperatorCopies]) -> None:
        """Write this host's record, read the others', delete forgotten ones. Errors are those of the store."""
        record, now_ms = self._record, self._now_ms
        records = read_standbys(self._store, record.job_id)
        after = self._membership.observe({peer.host: peer.counter for peer in records}, now_ms)
        self._record = msgspec.structs.replace(record, counter=after.counter, operators=tuple(operators))
        self._store.put(layout.standby(record.host), encode_standby(self._record))
        self._store.delete([layout.standby(host) for host in after.forgotten(now_ms)])
        self._membership = after
        peers, alive = (peer for peer in records if peer.host != record.host), after.alive(now_ms)
        self._alive = [(peer.host, used_partitions(peer)) for peer in (self._record, *peers) if peer.host in alive]
        self._share.clear()

    def follows(self, parallelism: int, partition: int) -> bool:
        """Does this standby follow the partition of the operators with this parallelism, by the last heartbeat?"""
        if self._followers is None:
            return True
        key = parallelism, partition
        if key not in self._share:
            hosts = {host: key in used for host, used in self._alive}
            chosen = chosen_hosts(f"{self._record.job_id}|{parallelism}|{partition}", hosts, self._followers)
            self._share[key] = self._record.host in chosen
        return self._share[key]

    @property
    def _now_ms(self) -> int:
        return round(self._clock.monotonic_s() * 1000)


def chosen_hosts(partition: str, hosts: Mapping[str, bool], followers: int) -> list[str]:
    """The hosts whose standbys follow a partition, by weight; hosts that use its state come last.

    Args:
        partition: A text that is different for each partition.
        hosts: All hosts that have a standby; True for a host that uses the partition's state.
        followers: Number of hosts to choose.
    """
    return sorted(by_weight(partition, hosts), key=lambda host: hosts[host])[:followers]


def used_partitions(record: StandbyRecord) -> frozenset[tuple[int, int]]:
    """`(parallelism, partition)` of each partition whose state is in use on the standby's host."""
    return frozenset(
        (operator.parallelism, partition)
        for operator in record.operators
        for first, end in operator.in_use
        for partition in range(first, end)
    )
