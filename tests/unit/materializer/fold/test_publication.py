from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from varvite.changelog.commit.adoption_rules import shared_files
from varvite.materializer.fold.publication import (
    Publish,
    RangeView,
    awaited_of,
    decide_publication,
    may_be_adopted,
    plan_upload,
    skip_without_listing,
)
from varvite.materializer.monitoring.events import Skip
from varvite.materializer.ranges import LogLength
from varvite.storage.format.records import ORIGIN, Link, SnapshotDescriptor, SnapshotFile, Tile

LINE = tuple(Link(seq, f"t{seq}") for seq in range(2, 9))
TILE = Tile(operator="op", low=0, high=64, at=LINE[0], snapshot=4)
NOTHING: frozenset[str] = frozenset()
VIEW = RangeView(tile=TILE, floor=4, target=LINE[-1], line=frozenset(LINE), tile_log=LogLength(6, 3, 300))


def snapshot(
    number: int = 5,
    at: Link = LINE[3],
    base: Link = LINE[0],
    status: str = "published",
    files: Sequence[str] = ("snapdata/op/00000-00064/00000000000000000005-u/own.sst",),
) -> SnapshotDescriptor:
    return msgspec.convert(
        {
            "status": status,
            "job_id": "job",
            "token": "t",
            "uid": "u",
            "operator": "op",
            "low": 0,
            "high": 64,
            "number": number,
            "at": [at.seq, at.token],
            "base": [base.seq, base.token],
            "files": [[name, name, 1, 0] for name in files],
            "created_ms": 0,
        },
        SnapshotDescriptor,
    )


def test_the_next_number_is_above_everything_that_exists_and_above_the_floor() -> None:
    assert decide_publication(VIEW, [], None, None) == Publish(5)
    assert decide_publication(VIEW, [3, 4], None, None) == Publish(5)
    assert decide_publication(VIEW, [4, 5, 9], None, None) == Publish(10)


def test_a_snapshot_that_the_job_may_still_adopt_is_waited_for() -> None:
    awaited = awaited_of(VIEW, [snapshot(status="aborted"), snapshot()], NOTHING)
    assert awaited == snapshot()
    assert decide_publication(VIEW, [4, 5], awaited, None) is Skip.AWAITING_ADOPTION


def test_a_snapshot_that_shares_files_is_waited_for_only_if_the_tile_names_them() -> None:
    """The job may have been set back to files of an import: then it never adopts what shares those it had before."""
    shares = snapshot(files=["snapdata/op/00000-00064/00000000000000000004-u/old.sst"])
    assert may_be_adopted(VIEW, shares, shared_files(shares))
    assert awaited_of(VIEW, [shares], shared_files(shares)) == shares
    assert awaited_of(VIEW, [shares], NOTHING) is None
    assert awaited_of(VIEW, [shares], frozenset({"snapdata/op/00000-00064/00000000000000000003-u/old.sst"})) is None


@pytest.mark.parametrize(
    "dead",
    [
        pytest.param(snapshot(number=4), id="not above the floor"),
        pytest.param(snapshot(base=LINE[1]), id="built on another tile"),
        pytest.param(snapshot(base=ORIGIN), id="built on the empty state"),
        pytest.param(snapshot(at=Link(5, "other")), id="of a commit off the line"),
        pytest.param(snapshot(at=LINE[0]), id="not newer than the tile"),
        pytest.param(snapshot(status="aborted"), id="aborted"),
    ],
)
def test_a_snapshot_that_can_no_longer_be_adopted_is_replaced(dead: SnapshotDescriptor) -> None:
    assert not may_be_adopted(VIEW, dead, shared_files(dead))
    assert awaited_of(VIEW, [dead], NOTHING) is None


def test_nothing_is_done_when_nothing_is_final_or_nothing_changed_or_the_changelog_is_off() -> None:
    def skip(**changes: object) -> Skip | None:
        fields = {name: getattr(VIEW, name) for name in VIEW.__dataclass_fields__}
        return skip_without_listing(RangeView(**{**fields, **changes}), 100)

    assert skip() is None
    assert skip(target=ORIGIN) is Skip.NOTHING_FINAL
    assert skip(target=LINE[0]) is Skip.NOTHING_FINAL
    assert skip(tile_log=LogLength(6, 0, 0)) is Skip.NOTHING_CHANGED
    assert skip(changelog=False) is Skip.CHANGELOG_OFF


def test_the_base_of_an_idle_range_moves_up_after_many_batches() -> None:
    """The line is kept from the oldest base on, so a range without changes must not hold it back for ever (I10)."""
    fields = {name: getattr(VIEW, name) for name in VIEW.__dataclass_fields__}
    idle = RangeView(**{**fields, "tile_log": LogLength(100, 0, 0)})
    assert decide_publication(idle, [], None, 100) == Publish(5)
    assert decide_publication(idle, [], None, 101) is Skip.NOTHING_CHANGED
    assert decide_publication(idle, [], None, None) is Skip.NOTHING_CHANGED


def test_only_equal_files_of_an_earlier_snapshot_are_reused() -> None:
    def file(file: str, name: str = "", size_bytes: int = 10, crc32: int = 1) -> SnapshotFile:
        return SnapshotFile(file, name, size_bytes, crc32)

    earlier = [file("a.sst", "old/a"), file("b.sst", "old/b"), file("c.sst", "old/c")]
    files = [file("a.sst"), file("b.sst", size_bytes=11), file("c.sst", crc32=2), file("d.sst")]
    plan = plan_upload(files, earlier)
    assert plan.reused == (earlier[0],)
    assert plan.missing == tuple(files[1:])
