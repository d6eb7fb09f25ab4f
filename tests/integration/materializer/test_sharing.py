"""`--share` with real processes: members divide the ranges, and take over those of a member that is killed."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.integration.sidecar_site import PATIENCE_S, Sidecar, Site
from tests.jobs.state_model import KEY_GROUPS
from varvite.materializer.monitoring.events import Materialized
from varvite.materializer.service.sharing import decode_heartbeat
from varvite.storage.errors import CorruptDataError, MissingObjectError
from varvite.storage.format import layout

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.sidecar, pytest.mark.timeout(300)]
MEMBERS = 3
BEATS = 3
"""With the third one, each has seen the others' first."""
RANGES = {(low, low + 1) for low in range(KEY_GROUPS)}


def beats(site: Site) -> list[int]:
    """Heartbeats of each member."""
    found: list[int] = []
    for meta in site.store.list(layout.MEMBERS):
        try:
            found.append(decode_heartbeat(site.store.get(meta.name), meta.name)[1])
        except (CorruptDataError, MissingObjectError):  # it is being written, or has left
            continue
    return found


def shares(site: Site, members: list[Sidecar]) -> list[set[tuple[int, int]]]:
    """Ranges that each of these members materializes from now on, until these are all; it commits meanwhile."""
    before = [len(member.events()) for member in members]

    def since_then() -> list[set[tuple[int, int]]]:
        return [
            {(e.low, e.high) for e in member.events()[count:] if isinstance(e, Materialized)}
            for member, count in zip(members, before, strict=True)
        ]

    commit_until(site, lambda: set[tuple[int, int]]().union(*since_then()) == RANGES)
    return since_then()


def commit_until(site: Site, condition: Callable[[], bool]) -> None:
    """With time for heartbeats, which come every 5 s."""
    site.commit_until(condition, patience_s=2 * PATIENCE_S, pause_s=0.2)


@pytest.mark.long
def test_members_divide_the_ranges_and_take_over_those_of_one_that_is_killed(site: Site) -> None:
    site.job.parallelism = KEY_GROUPS
    site.job.start()
    members = [site.sidecar("--share", name=f"member-{number}") for number in range(MEMBERS)]
    commit_until(site, lambda: sum(beat >= BEATS for beat in beats(site)) == MEMBERS)
    shares(site, members)  # one that was under way when they saw each other may still come from who had it
    owned = shares(site, members)
    assert sum(len(share) for share in owned) == len(RANGES), f"each has one owner: {owned}"
    killed = members.pop(owned.index(max(owned, key=len)))
    assert killed.end(signal.SIGKILL) == -signal.SIGKILL
    shares(site, members)
    site.check()
    for member in members:
        assert member.end() == 0, site.logs()
    assert len(site.store.list(layout.MEMBERS)) == 1, "who ends in order leaves; who was killed is forgotten later"
