"""Sharing of a storage's ranges by several materializers: heartbeats and a rendezvous hash.

Each member increments a counter in `members/<id>`. It is alive to the others while its counter moves, by their own
monotonic clocks. An error of judgement only repeats or delays work: publishing is put-if-absent, and the driver decides
on adoption. So no correctness depends on this module.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import msgspec

from varvite.storage.errors import CorruptDataError
from varvite.storage.format import layout
from varvite.storage.format.frame import decode_json, frame, unframe
from varvite.storage.format.identity import check_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from varvite.materializer.ranges import RangeKey
    from varvite.storage.object_stores.contract import ObjectStore

HEARTBEAT_MS: Final = 5_000
DEAD_AFTER_MS: Final = 20_000
FORGOTTEN_AFTER_MS: Final = 600_000
"""Silence after which a member's object is deleted."""
_KIND: Final = b"MEMB"
_VERSION: Final = 1


@dataclass(frozen=True)
class Peer:
    """The last observation of another member."""

    counter: int
    moved_ms: int
    """Time at which its counter was last seen to move, by this process's clock."""


@dataclass(frozen=True)
class Membership:
    """This member and its observations of the others."""

    member_id: str
    counter: int = 0
    beaten_ms: int | None = None
    peers: tuple[tuple[str, Peer], ...] = ()

    def observe(self, counters: Mapping[str, int], now_ms: int) -> Membership:
        """The membership after reading all counters. A peer counts as alive from its first sighting on."""
        last = dict(self.peers)
        peers = {
            member: last[member] if member in last and last[member].counter == counter else Peer(counter, now_ms)
            for member, counter in counters.items()
            if member != self.member_id
        }
        return replace(self, counter=self.counter + 1, beaten_ms=now_ms, peers=tuple(sorted(peers.items())))

    def alive(self, now_ms: int) -> tuple[str, ...]:
        """The members that share the work now, this one included."""
        peers = (member for member, peer in self.peers if now_ms - peer.moved_ms < DEAD_AFTER_MS)
        return (self.member_id, *peers)

    def forgotten(self, now_ms: int) -> tuple[str, ...]:
        """Members that have been silent so long that their object can be deleted."""
        return tuple(member for member, peer in self.peers if now_ms - peer.moved_ms >= FORGOTTEN_AFTER_MS)

    def owns(self, key: RangeKey, now_ms: int) -> bool:
        """Does this member materialize the range?"""
        return owner(key, self.alive(now_ms)) == self.member_id

    def is_due(self, now_ms: int) -> bool:
        """Is the next heartbeat due?"""
        return self.beaten_ms is None or now_ms - self.beaten_ms >= HEARTBEAT_MS


def owner(key: RangeKey, members: Iterable[str]) -> str:
    """The member with the highest hash for this range: when members come or go, only their own ranges move."""
    return by_weight(f"{key.job_id}|{key.operator}|{key.low}-{key.high}", members)[0]


def by_weight(subject: str, members: Iterable[str]) -> list[str]:
    """The members by their hash for this text, the highest first (a rendezvous hash)."""
    return sorted(members, key=lambda m: (hashlib.sha256(f"{m}|{subject}".encode()).digest(), m), reverse=True)


def beat(store: ObjectStore, membership: Membership, now_ms: int) -> Membership:
    """Read the other members' counters, write this one's, delete forgotten ones. Errors are those of the store."""
    counters: dict[str, int] = {}
    for meta in store.list(layout.MEMBERS):
        try:
            member, counter = decode_heartbeat(store.get(meta.name), meta.name)
            check_name(meta.name, layout.member, member)
        except CorruptDataError:  # deleted meanwhile, or damaged: its member will write it again
            continue
        counters[member] = counter
    after = membership.observe(counters, now_ms)
    store.put(layout.member(after.member_id), encode_heartbeat(after.member_id, after.counter))
    store.delete([layout.member(member) for member in after.forgotten(now_ms)])
    return after


def leave(store: ObjectStore, membership: Membership) -> None:
    """End the membership, so that the others take over at once."""
    store.delete([layout.member(membership.member_id)])


def encode_heartbeat(member_id: str, counter: int) -> bytes:
    """A member's object (docs/reference/formats/members.md)."""
    return frame(_KIND, _VERSION, msgspec.json.encode([member_id, counter]))


def decode_heartbeat(data: bytes, name: str) -> tuple[str, int]:
    """Member and counter of an object. Raises `CorruptDataError`, `IncompatibleError`."""
    return decode_json(unframe(_KIND, _VERSION, data, name).header, tuple[str, int], "the heartbeat", name)
