"""Division of ranges among standbys, and their messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.stores.manual_clock import ManualClock
from varvite.materializer.service.sharing import DEAD_AFTER_MS, FORGOTTEN_AFTER_MS, HEARTBEAT_MS
from varvite.materializer.standby.members import StandbyMember, chosen_hosts
from varvite.materializer.standby.record import (
    OperatorCopies,
    StandbyRecord,
    decode_standby,
    encode_standby,
    read_standbys,
    runs,
)
from varvite.storage.errors import CorruptDataError
from varvite.storage.format import layout
from varvite.storage.format.frame import frame
from varvite.storage.object_stores.memory import MemoryStore

JOB = "0123"
PARTITIONS = 40
HOSTS = ("a", "b", "c", "d")


class Members:
    """Standbys on hosts, over one storage and clock."""

    def __init__(self, followers: int | None) -> None:
        self.store = MemoryStore()
        self.clock = ManualClock()
        self.followers = followers
        self.by_host: dict[str, StandbyMember] = {}
        self.in_use: dict[str, tuple[tuple[int, int], ...]] = {}

    def begin(self, *hosts: str) -> None:
        for host in hosts:
            given = JOB, (host, f"{host}.example"), self.clock, self.followers
            self.by_host[host] = StandbyMember(self.store, *given)

    def beat(self, *, times: int = 2) -> None:
        """All tell what is there, and the time of a heartbeat passes."""
        for _ in range(times):
            for host, member in self.by_host.items():
                member.beat([OperatorCopies(operator="o", parallelism=PARTITIONS, in_use=self.in_use.get(host, ()))])
            self.clock.sleep(HEARTBEAT_MS / 1000)

    def shares(self) -> dict[int, set[str]]:
        """By partition: the hosts that follow it."""
        return {
            p: {host for host, member in self.by_host.items() if member.follows(PARTITIONS, p)}
            for p in range(PARTITIONS)
        }


def test_each_partition_has_as_many_followers_as_wanted_and_they_are_spread() -> None:
    members = Members(2)
    members.begin(*HOSTS)
    members.beat()
    shares = members.shares()
    assert {len(hosts) for hosts in shares.values()} == {2}
    assert all(10 <= n <= 30 for n in Counter(host for hosts in shares.values() for host in hosts).values())


def test_without_a_number_every_standby_follows_everything() -> None:
    members = Members(None)
    members.begin(*HOSTS)
    assert all(member.knows_its_share for member in members.by_host.values())
    assert all(hosts == set(HOSTS) for hosts in members.shares().values())


def test_hosts_on_which_a_partition_runs_do_not_follow_it_while_there_are_others() -> None:
    members = Members(2)
    members.in_use = {"a": ((0, 20),), "b": ((20, 40),), "c": ((5, 6),)}
    members.begin(*HOSTS)
    members.beat()
    for partition, hosts in members.shares().items():
        running = {"a" if partition < 20 else "b", *({"c"} if partition == 5 else ())}
        assert hosts.isdisjoint(running)
        assert len(hosts) == 2
    assert chosen_hosts("p", {"a": True, "b": False}, 2) == ["b", "a"]


def test_when_a_standby_goes_only_its_partitions_get_another_follower() -> None:
    members = Members(2)
    members.begin(*HOSTS)
    members.beat()
    before = members.shares()
    del members.by_host["d"]
    members.beat(times=1 + DEAD_AFTER_MS // HEARTBEAT_MS)
    after = members.shares()
    assert all(after[p] >= hosts - {"d"} for p, hosts in before.items())
    assert {len(hosts) for hosts in after.values()} == {2}


def test_a_standby_that_begins_again_soon_keeps_its_partitions() -> None:
    members = Members(1)
    members.begin(*HOSTS)
    members.beat(times=5)
    before = members.shares()
    members.begin("b")
    assert not members.by_host["b"].knows_its_share
    members.beat()
    assert members.shares() == before


def test_a_share_is_known_when_those_that_began_at_the_same_time_have_told_of_themselves() -> None:
    members = Members(1)
    members.begin(*HOSTS)
    members.beat(times=1)
    assert not any(member.knows_its_share for member in members.by_host.values())
    assert not any(member.is_due for member in members.by_host.values()) or members.clock.monotonic_s() >= 5
    members.beat(times=1)
    assert all(member.knows_its_share for member in members.by_host.values())


def test_what_is_told_is_read_and_what_is_silent_for_long_goes() -> None:
    members = Members(None)
    members.begin("a", "b")
    members.beat()
    (a, b) = read_standbys(members.store, JOB)
    assert (a.host, a.names, a.counter, b.host) == ("a", ("a", "a.example"), 2, "b")
    del members.by_host["b"]
    members.beat(times=1 + FORGOTTEN_AFTER_MS // HEARTBEAT_MS)
    assert [one.host for one in read_standbys(members.store, JOB)] == ["a"]


RECORD = StandbyRecord(job_id=JOB, host="x", names=("x",), counter=1)


@pytest.mark.parametrize(
    "spoiled",
    [
        lambda: b"not a frame",
        lambda: frame(b"STBY", 1, b"[]"),
        lambda: frame(b"STBY", 9, b"{}"),
        lambda: encode_standby(StandbyRecord(job_id="another", host="x", names=("x",))),
        lambda: encode_standby(StandbyRecord(job_id=JOB, host="y", names=("y",))),
    ],
    ids=["no frame", "another form", "newer", "another job's", "another host's"],
)
def test_a_record_that_cannot_count_is_passed_over(spoiled: Callable[[], bytes]) -> None:
    store = MemoryStore()
    store.put(layout.standby("a"), encode_standby(StandbyRecord(job_id=JOB, host="a", names=("a",))))
    store.put(layout.standby("x"), spoiled())
    assert [one.host for one in read_standbys(store, JOB)] == ["a"]


@pytest.mark.parametrize("told", [{"copies": ((0, 5, 7),)}, {"copies": ((2, 2, 7),)}, {"in_use": ((-1, 2),)}])
def test_partitions_that_an_operator_does_not_have_are_damage(told: dict[str, tuple[tuple[int, ...], ...]]) -> None:
    operator = OperatorCopies(operator="o", parallelism=4, **told)  # type: ignore[arg-type]
    record = StandbyRecord(job_id=JOB, host="x", names=("x",), operators=(operator,))
    with pytest.raises(CorruptDataError) as raised:
        decode_standby(encode_standby(record), "standbys/x")
    assert raised.value.context["object_name"] == "standbys/x"


def test_equal_neighbours_are_one_run() -> None:
    assert runs([]) == runs([None, None]) == ()
    assert runs([7, 7, None, 8, 7, 7, 7]) == ((0, 2, 7), (3, 4, 8), (4, 7, 7))
