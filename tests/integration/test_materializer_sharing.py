"""`--share` with real processes: members divide the ranges, and take over those of a member that is killed."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.integration.sidecar_site import PATIENCE_S, Sidecar, Site
from tests.state_model import KEY_GROUPS
from varve.materializer.events import Materialized
from varve.materializer.sharing import decode_heartbeat
from varve.storage import layout
from varve.storage.errors import CorruptDataError, MissingObjectError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.sidecar, pytest.mark.timeout(300)]
MEMBERS = 3
BEATS = 3
"""With the third one, each has seen the others' first."""
RANGES = {(low, low + 1) for low in range(KEY_GROUPS)}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    site.job.parallelism = KEY_GROUPS
    yield site
    site.close()


def beats(site: Site) -> list[int]:
    """How often each member has told that it lives."""
    found: list[int] = []
    for meta in site.store.list(layout.MEMBERS):
        try:
            found.append(decode_heartbeat(site.store.get(meta.name), meta.name)[1])
        except (CorruptDataError, MissingObjectError):  # it is being written, or has left
            continue
    return found


def materialized(sidecar: Sidecar, since: int) -> set[tuple[int, int]]:
    """Ranges that a member materialized in its events from number `since` on."""
    return {(e.low, e.high) for e in sidecar.events()[since:] if isinstance(e, Materialized)}


def commit_until(site: Site, condition: Callable[[], bool]) -> None:
    """As `Site.commit_until`, with time for heartbeats, which come every 5 s."""
    deadline = time.monotonic() + 2 * PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, site.logs()
        site.commit()
        time.sleep(0.2)


def test_members_divide_the_ranges_and_take_over_those_of_one_that_is_killed(site: Site) -> None:
    site.job.start()
    members = [site.sidecar("--share", name=f"member-{number}") for number in range(MEMBERS)]
    commit_until(site, lambda: sum(beat >= BEATS for beat in beats(site)) == MEMBERS)
    before = [len(member.events()) for member in members]

    def shares(of: list[Sidecar]) -> list[set[tuple[int, int]]]:
        return [materialized(member, before[members.index(member)]) for member in of]

    # A range that was under way when the members saw each other may still come from the member that had it.
    commit_until(site, lambda: set[tuple[int, int]]().union(*shares(members)) == RANGES)
    before = [len(member.events()) for member in members]
    commit_until(site, lambda: set[tuple[int, int]]().union(*shares(members)) == RANGES)
    owned = shares(members)
    assert sum(len(share) for share in owned) == len(RANGES), f"each has one owner: {owned}"
    killed = max(members, key=lambda member: len(owned[members.index(member)]))
    assert killed.end(signal.SIGKILL) == -signal.SIGKILL
    before = [len(member.events()) for member in members]
    rest = [member for member in members if member is not killed]
    commit_until(site, lambda: set[tuple[int, int]]().union(*shares(rest)) == RANGES)
    site.check()
    for member in rest:
        assert member.end() == 0, site.logs()
    assert len(site.store.list(layout.MEMBERS)) == 1, "who ends in order leaves; who was killed is forgotten later"
