"""Completeness of the checkpoints of a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.jobs.committing_job import NumberedTokens
from tests.jobs.materializer_world import World
from varvite.changelog.reading.checkpoints import complete_checkpoints
from varvite.changelog.retention.pins import create_pin
from varvite.storage.format import layout

if TYPE_CHECKING:
    from pathlib import Path


def test_only_what_may_be_complete_is_read(tmp_path: Path) -> None:
    """A job without a materializer has its whole log in the chain, which was read entry after entry."""
    world = World(tmp_path)
    world.commit(12)
    newest = world.newest()
    retained = [newest.seq - 1, newest.seq]
    before = {name: world.store.get(name) for name in world.names(layout.CHAIN)}

    def damage_below(seq: int) -> None:
        for name, data in before.items():
            world.store.put(name, data if name >= layout.chain(seq) else b"damaged")

    damage_below(retained[0])
    assert [commit.seq for commit in complete_checkpoints(world.reader)][::-1] == retained
    damage_below(0)
    pin = create_pin(world.reader, newest, "retention", world.clock, NumberedTokens("pin"), for_others=True)
    world.commit(5)
    damage_below(pin.commit.seq)
    pinned = range(pin.commit.seq, world.newest().seq + 1)
    assert [commit.seq for commit in complete_checkpoints(world.reader)][::-1] == list(pinned)
    world.close()
