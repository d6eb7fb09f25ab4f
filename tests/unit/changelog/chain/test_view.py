"""Single cases; random chains are in tests/property/log/test_line_view.py."""

from __future__ import annotations

import msgspec
import pytest

from tests.jobs.chain_job import MAX_PARALLELISM, OPERATOR, ChainJob, results_of
from varvite.changelog.chain import view as line_view
from varvite.changelog.chain.view import LineView, StoredCommit, advance, resolve
from varvite.changelog.commit.plan import Adoption
from varvite.changelog.commit.state import CommitPolicy
from varvite.storage.errors import CorruptDataError
from varvite.storage.format import layout
from varvite.storage.format.layout import object_slot
from varvite.storage.format.records import ORIGIN, Link, Tile


def commits(count: int, policy: CommitPolicy | None = None) -> list[StoredCommit]:
    driver = ChainJob(policy).driver(0)
    return [driver.commit(n, results_of([b"%d" % n, b"y"])).stored for n in range(count)]


def test_the_empty_beginning() -> None:
    view = LineView(max_parallelism=8)
    assert view.tiles_for("op", 2, 4) == (Tile(operator="op", low=0, high=8),)
    assert view.segments_for("op", 0, 8) == ()
    assert view.holds(ORIGIN)
    assert not view.holds(Link(1, "t"))


def test_path_and_full_entry_make_the_view() -> None:
    first, second, third = commits(3)
    view = resolve(third, first, [second])
    assert [s.ref.seq_first for s in view.segments_for(OPERATOR, 0, 1)] == [2, 3, 4]
    assert (view.full, view.path) == (first.commit.link, (second.commit.link, third.commit.link))
    assert view.line == (first.commit.link, second.commit.link, third.commit.link)
    assert all(view.holds(link) for link in view.line)
    assert not view.holds(Link(3, "another token"))


def test_a_segment_that_straddles_tiles_counts_where_it_is_newer() -> None:
    driver = ChainJob().driver(0)
    links = [driver.commit(n, results_of([b"x"])).commit.link for n in range(3)]
    tiles = tuple(
        Tile(operator=OPERATOR, low=low, high=high, at=links[at], snapshot=1)
        for low, high, at in ((0, 2, 0), (2, 8, 1))
    )
    driver.commit(3, results_of([b"x"]), Adoption(tiles, ()))
    view = driver.state.view
    found = [(s.ref.seq_first, [tuple(f) for f in s.floors]) for s in view.segments_for(OPERATOR, 1, 4)]
    assert found == [(3, [(1, 2, 2)]), (4, [(1, 2, 2), (2, 4, 3)]), (5, [(1, 2, 2), (2, 4, 3)])]
    assert view.segments_for(OPERATOR, 2, 4)[0].ref.seq_first == 4
    assert view.segments_for("other", 0, 8) == ()


def test_entries_that_do_not_belong_together_are_corrupt_data_with_a_name() -> None:
    first, second, third = commits(3)
    for full, path in ((second, [second]), (first, []), (first, [third]), (first, [second, second])):
        with pytest.raises(CorruptDataError) as caught:
            resolve(third, full, path)
        assert caught.value.context["object_name"] == layout.chain(4)


def test_a_commit_of_another_line_is_not_followed() -> None:
    first, second, third = commits(3)
    view = resolve(first, first, [])
    with pytest.raises(CorruptDataError, match="does not follow"):
        advance(view, third)
    stray = msgspec.structs.replace(second.commit, parent=Link(2, "another token"))
    with pytest.raises(CorruptDataError, match="does not follow"):
        advance(view, StoredCommit(stray, 0))


@pytest.mark.parametrize(
    "tiles",
    [
        (),
        (Tile(operator=OPERATOR, low=0, high=4),),
        (Tile(operator=OPERATOR, low=0, high=8), Tile(operator="gone", low=0, high=8)),
    ],
)
def test_a_full_entry_without_an_exact_cover_is_corrupt_data(tiles: tuple[Tile, ...]) -> None:
    (first,) = commits(1)
    damaged = StoredCommit(msgspec.structs.replace(first.commit, tiles=tiles), 0)
    with pytest.raises(CorruptDataError) as caught:
        resolve(damaged, damaged, [])
    assert caught.value.context["object_name"] == layout.chain(2)


def test_tile_changes_that_leave_a_hole_are_corrupt_data() -> None:
    first, second = commits(2)
    changed = msgspec.structs.replace(second.commit, tiles=(Tile(operator=OPERATOR, low=0, high=4, at=Link(2, "t")),))
    with pytest.raises(CorruptDataError, match="part of the tile") as caught:
        advance(resolve(first, first, []), StoredCommit(changed, 0))
    assert caught.value.context == {"object_name": layout.chain(3), "batch": 1, "operator": OPERATOR}


def test_the_line_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_view, "LINE_MAX", 3)
    stored = commits(6, CommitPolicy(full_every=2, path_max=2))
    view = LineView(max_parallelism=MAX_PARALLELISM)
    for one in stored:
        view = advance(view, one)
    assert view.line == tuple(s.commit.link for s in stored[-3:])


def test_a_view_can_be_sent() -> None:
    first, second = commits(2)
    view = resolve(second, first, [])
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(view), type=LineView) == view


def test_the_slot_of_a_name() -> None:
    names = layout.chain(7), layout.segment(8, "a/b", 0, "t", 0), layout.pack(9, "t")
    assert [object_slot(n) for n in names] == [7, 8, 9]
