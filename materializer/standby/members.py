"""A standby among those of its job: what the others have, and which partitions are its own to follow.

The standbys share the partitions by a rendezvous hash, as materializers share ranges, each partition as often as is
wanted. Hosts on which a process uses a partition's state come last: with such a host goes what uses the state as well.
All operators' copies of a partition are on the same hosts. Who is alive is judged by one's own monotonic clock; who is
wrong about it follows too much or too little, which costs a restore at most.
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
"""By the second one the standbys that began at the same time know each other."""


class StandbyMember:
    """See the module; for one thread."""

    def __init__(
        self, store: ObjectStore, job_id: str, names: Sequence[str], clock: Clock, followers: int | None
    ) -> None:
        """Nothing is told yet.

        Args:
            store: The job's.
            job_id: Its id.
            names: What this host is called; the first is its own among the standbys of the job.
            clock: Its monotonic time counts.
            followers: How many standbys follow a partition; None: all of them.
        """
        self._store = store
        self._record = StandbyRecord(job_id=job_id, host=names[0], names=tuple(names))
        self._clock = clock
        self._followers = followers
        self._membership = Membership(names[0])
        self._known: list[tuple[str, frozenset[tuple[int, int]]]] = []
        """The hosts of the living standbys, this one included, and the partitions that are in use there."""
        self._share: dict[tuple[int, int], bool] = {}

    @property
    def is_due(self) -> bool:
        """Whether to tell again what is here."""
        return self._membership.is_due(self._now_ms)

    @property
    def knows_its_share(self) -> bool:
        """Whether the others had the time to tell of themselves."""
        return self._followers is None or self._membership.counter >= _BEATS_MIN

    def beat(self, operators: Sequence[OperatorCopies]) -> None:
        """Tell what is on this host, and read what the others tell; forgotten ones go. Errors are the store's."""
        record, now_ms = self._record, self._now_ms
        records = read_standbys(self._store, record.job_id)
        after = self._membership.observe({one.host: one.counter for one in records}, now_ms)
        self._record = msgspec.structs.replace(record, counter=after.counter, operators=tuple(operators))
        self._store.put(layout.standby(record.host), encode_standby(self._record))
        self._store.delete([layout.standby(host) for host in after.forgotten(now_ms)])
        self._membership = after
        others, alive = (one for one in records if one.host != record.host), after.alive(now_ms)
        self._known = [(one.host, used_partitions(one)) for one in (self._record, *others) if one.host in alive]
        self._share.clear()

    def follows(self, parallelism: int, partition: int) -> bool:
        """Whether the partition of the operators with this parallelism is to be followed here, as of the last beat."""
        if self._followers is None:
            return True
        key = parallelism, partition
        if key not in self._share:
            hosts = {host: key in used for host, used in self._known}
            chosen = chosen_hosts(f"{self._record.job_id}|{parallelism}|{partition}", hosts, self._followers)
            self._share[key] = self._record.host in chosen
        return self._share[key]

    @property
    def _now_ms(self) -> int:
        return round(self._clock.monotonic_s() * 1000)


def chosen_hosts(what: str, hosts: Mapping[str, bool], followers: int) -> list[str]:
    """The hosts whose standbys follow a partition: so many, by weight; those that use its state only if need be.

    Args:
        what: Another text for each partition.
        hosts: All that have a standby, and whether they use the partition's state.
        followers: How many to choose.
    """
    return sorted(by_weight(what, hosts), key=lambda host: hosts[host])[:followers]


def used_partitions(record: StandbyRecord) -> frozenset[tuple[int, int]]:
    """`(parallelism, partition)` of each partition whose state is in use on the standby's host."""
    return frozenset(
        (one.parallelism, partition)
        for one in record.operators
        for first, end in one.in_use
        for partition in range(first, end)
    )
