"""The driver and the materializer give one answer to the question whether a snapshot may be adopted."""

from __future__ import annotations

from itertools import product
from typing import Literal

from varvite.changelog.chain.view import LineView
from varvite.changelog.commit.adopt_decision import decide_adoption
from varvite.changelog.commit.adoption_rules import is_adoptable, shared_files
from varvite.materializer.fold.publication import RangeView, may_be_adopted
from varvite.materializer.ranges import LogLength
from varvite.storage.format import layout
from varvite.storage.format.layout import SnapshotName
from varvite.storage.format.records import ORIGIN, Link, SnapshotDescriptor, SnapshotFile, SnapshotFloor, Tile

LINE = tuple(Link(seq, f"t{seq}") for seq in range(3, 9))
TILE_FILE = layout.snapshot_file("op", 0, 8, 4, "u", "a.sst")
OTHER_FILE = layout.snapshot_file("op", 0, 8, 3, "u", "b.sst")


def snapshot(
    number: int,
    at: Link,
    base: Link = LINE[0],
    status: Literal["published", "aborted"] = "published",
    shared: tuple[str, ...] = (),
) -> SnapshotDescriptor:
    names = (layout.snapshot_file("op", 0, 8, number, "u", "own.sst"), *shared)
    return SnapshotDescriptor(
        status=status, job_id="j", token="t", uid="u", operator="op", low=0, high=8, number=number, at=at, base=base,
        files=tuple(SnapshotFile(name, name, 1, 1) for name in names), created_ms=0,
    )  # fmt: skip


def driver_adopts(d: SnapshotDescriptor, tile: Tile, floor: int, files: frozenset[str]) -> bool:
    view = LineView(max_parallelism=8, base=LINE[-1], full=LINE[0], tiles=(tile,), line=LINE)
    floors = (SnapshotFloor("op", 0, 8, floor),) if floor else ()
    tile_files = {SnapshotName("op", 0, 8, tile.snapshot or 0): files}
    return bool(decide_adoption(view, floors, [d], tile_files, "j").tiles)


def materializer_waits(d: SnapshotDescriptor, tile: Tile, floor: int, files: frozenset[str]) -> bool:
    log = LogLength(1, 1, 1)
    view = RangeView(tile=tile, floor=floor, target=LINE[-1], line=frozenset(LINE), tile_log=log)
    return may_be_adopted(view, d, files)


def test_driver_and_materializer_agree_on_every_snapshot() -> None:
    """All combinations of what the rule looks at."""
    answers: set[bool] = set()
    for status, number, at, base, shared in product(
        ("published", "aborted"),
        (4, 5),
        (LINE[0], LINE[2], LINE[-1], Link(5, "of another line"), Link(11, "t11"), ORIGIN),
        (LINE[0], LINE[1], ORIGIN),
        ((), (TILE_FILE,), (OTHER_FILE,), (TILE_FILE, OTHER_FILE)),
    ):
        for tile_at, floor, files in product((LINE[0], LINE[3], ORIGIN), (0, 4, 9), ((), (TILE_FILE,))):
            tile = Tile(operator="op", low=0, high=8, at=tile_at, snapshot=None if tile_at == ORIGIN else 4)
            d = snapshot(number, at, base, status, shared)
            adopts = driver_adopts(d, tile, floor, frozenset(files))
            assert adopts == materializer_waits(d, tile, floor, frozenset(files)), (d, tile, floor, files)
            answers.add(adopts)
    assert answers == {False, True}


def test_a_snapshot_of_several_tiles_is_built_on_all_of_them_and_may_share_the_files_of_each() -> None:
    tiles = [Tile(operator="op", low=low, high=low + 4, at=LINE[0], snapshot=low) for low in (0, 4)]
    files = {0: frozenset({TILE_FILE}), 4: frozenset({OTHER_FILE})}

    def may(d: SnapshotDescriptor, *replaced: Tile) -> bool:
        return is_adoptable(d, replaced, floor=0, is_on_line=LINE.__contains__, files_of=lambda tile: files[tile.low])

    both = snapshot(5, LINE[2], shared=(TILE_FILE, OTHER_FILE))
    assert shared_files(both) == {TILE_FILE, OTHER_FILE}
    assert may(both, *tiles)
    assert not may(both, tiles[0]), "the other tile's files may be deleted"
    later = Tile(operator="op", low=4, high=8, at=LINE[1], snapshot=4)
    assert not may(both, tiles[0], later), "it does not hold what the later tile does"
    assert not may(both), "an operator that the job no longer has"
