"""Following a chain: requests, and what is seen of it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.jobs.materializer_world import World
from varvite.changelog.chain.reader import ChainReader
from varvite.materializer.fold.chain_view import IN_TURN_MAX, LIST_S, ChainFollower
from varvite.storage.format import layout
from varvite.storage.object_stores.pass_through import PassThroughStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from varvite.storage.object_stores.contract import ObjectMeta, ObjectStore


class Counted(PassThroughStore):
    """Counts requests."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.requests: Counter[str] = Counter()

    def get(self, name: str) -> bytes:
        self.requests["GET"] += 1
        return super().get(name)

    def list(self, prefix: str, *, start_after: str = "") -> Sequence[ObjectMeta]:
        self.requests["LIST"] += 1
        return super().list(prefix, start_after=start_after)


class Followed:
    """A world, and a follower of its chain."""

    def __init__(self, directory: Path) -> None:
        self.world = World(directory)
        self.store = Counted(self.world.store)
        assert self.world.job.run is not None
        record = self.world.job.run.record
        self.last_seq = 10_000
        reader = ChainReader(self.store, record.job_id)
        self.follower = ChainFollower(
            reader, record.max_parallelism, self.world.clock, lambda seq: seq <= self.last_seq
        )

    def read(self) -> dict[str, int]:
        """Read, and return the requests; what is read must be what is there."""
        self.store.requests.clear()
        view = self.follower.read()
        assert view is not None
        assert view.newest.commit == self.world.newest()
        return dict(self.store.requests)


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[Followed]:
    followed = Followed(tmp_path)
    followed.world.commit(3)
    followed.read()
    yield followed
    followed.world.close()


def test_a_poll_is_a_request_for_the_next_entry_and_one_for_each_new_one(followed: Followed) -> None:
    assert followed.read() == {"GET": 2}, "the next entry, and the job's record"
    followed.world.commit()
    assert followed.read() == {"GET": 2}, "the new entry, and the next one"
    followed.world.commit(3)
    requests = followed.read()
    assert requests["GET"] <= 6
    assert "LIST" not in requests


def test_an_entry_that_cannot_be_there_is_not_asked_for(followed: Followed) -> None:
    followed.last_seq = followed.world.newest().seq
    assert followed.read() == {}


def test_many_new_entries_are_listed(followed: Followed) -> None:
    followed.world.commit(3 * IN_TURN_MAX)
    assert followed.read()["LIST"] == 1


def test_without_a_new_entry_the_chain_is_listed_now_and_then(followed: Followed) -> None:
    followed.world.clock.advance(LIST_S)
    assert followed.read()["LIST"] == 1
    followed.world.clock.advance(LIST_S - 1)
    assert followed.read() == {"GET": 2}


def test_while_there_are_new_entries_the_chain_is_not_listed(followed: Followed) -> None:
    for _ in range(6):
        followed.world.clock.advance(LIST_S / 2)
        followed.world.commit()
        assert "LIST" not in followed.read()


def test_it_goes_on_after_the_next_entries_were_collected(followed: Followed) -> None:
    """Another materializer may have done it while this one was stopped."""
    before = followed.world.newest().seq
    for _ in range(3):
        followed.world.commit(10)  # a second each
        followed.world.sidecar().fold()
    missing = [layout.chain(seq) for seq in range(before, followed.world.newest().seq - 15)]
    followed.world.store.delete(missing)
    old = followed.follower.read()
    assert old is not None
    assert old.newest.commit.seq == before
    followed.world.clock.advance(LIST_S)
    followed.read()


def test_a_job_that_was_deleted_has_no_chain(followed: Followed) -> None:
    followed.world.root.delete([meta.name for meta in followed.world.root.list("")])
    assert followed.follower.read() is None
    assert not followed.follower.is_there()
    assert followed.follower.read() is None
