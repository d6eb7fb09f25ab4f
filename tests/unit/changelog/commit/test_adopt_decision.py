from __future__ import annotations

import itertools

import msgspec
import pytest

from varvite.changelog.chain.view import LineView
from varvite.changelog.commit.adopt_decision import ADOPTED_MAX, decide_adoption, tile_snapshots
from varvite.storage.format import layout
from varvite.storage.format.layout import SnapshotName
from varvite.storage.format.records import ORIGIN, Link, SnapshotDescriptor, SnapshotFile, SnapshotFloor, Tile

JOB = "j"


def link(seq: int) -> Link:
    return Link(seq, f"t{seq}") if seq else ORIGIN


def tile(low: int, high: int, at: int = 0, snapshot: int | None = None) -> Tile:
    return Tile(operator="op", low=low, high=high, at=link(at), snapshot=snapshot)


def view(*tiles: Tile) -> LineView:
    return LineView(max_parallelism=8, base=link(9), full=link(2), tiles=tiles, line=tuple(map(link, range(2, 10))))


def snapshot(
    low: int, high: int, number: int, at: int, base: int = 0, files: tuple[str, ...] = ()
) -> SnapshotDescriptor:
    own = layout.snapshot_file("op", low, high, number, "u", "own.sst")
    return SnapshotDescriptor(
        status="published", job_id=JOB, token="t", uid="u", operator="op", low=low, high=high, number=number,
        at=link(at), base=link(base), files=tuple(SnapshotFile(n, n, 1, 1) for n in (own, *files)), created_ms=0,
    )  # fmt: skip


def adopted(
    state: LineView,
    *candidates: SnapshotDescriptor,
    floors: tuple[SnapshotFloor, ...] = (),
    shared: dict[SnapshotName, frozenset[str]] | None = None,
    at_once: int = ADOPTED_MAX,
) -> tuple[list[tuple[int, int, int, int | None]], dict[tuple[int, int], int]]:
    """(low, high, at, number) of the new tiles, and the floors raised by range."""
    found = decide_adoption(state, floors, candidates, shared or {}, JOB, at_once)
    raised = {(f.low, f.high): f.number for f in found.floors}
    return [(t.low, t.high, t.at.seq, t.snapshot) for t in found.tiles], raised


def test_a_newer_snapshot_of_a_tile_is_adopted_and_raises_the_floor() -> None:
    assert adopted(view(tile(0, 8)), snapshot(0, 8, 1, at=5)) == ([(0, 8, 5, 1)], {(0, 8): 1})


def test_the_newest_of_several_is_adopted() -> None:
    found = adopted(view(tile(0, 8)), snapshot(0, 8, 1, 4), snapshot(0, 8, 3, 7), snapshot(0, 8, 2, 5))
    assert found == ([(0, 8, 7, 3)], {(0, 8): 3})


def test_each_range_is_decided_for_itself() -> None:
    found = adopted(view(tile(0, 4), tile(4, 8, 3, 1)), snapshot(0, 4, 1, 5), snapshot(4, 8, 2, 6, base=3))
    assert found == ([(0, 4, 5, 1), (4, 8, 6, 2)], {(0, 4): 1, (4, 8): 2})


@pytest.mark.parametrize(
    ("state", "candidate", "floors"),
    [
        pytest.param(
            view(tile(0, 8)), msgspec.structs.replace(snapshot(0, 8, 1, 5), job_id="other"), (), id="other job"
        ),
        pytest.param(view(tile(0, 8)), snapshot(0, 8, 1, 5), (SnapshotFloor("op", 0, 8, 1),), id="not above the floor"),
        pytest.param(view(tile(0, 8)), snapshot(0, 8, 1, at=11), (), id="not on the line yet"),
        pytest.param(
            view(tile(0, 8)),
            msgspec.structs.replace(snapshot(0, 8, 1, 5), at=Link(5, "of another line")),
            (),
            id="same seq on another line",
        ),
        pytest.param(view(tile(0, 8, 6, 1)), snapshot(0, 8, 2, at=6, base=6), (), id="not newer than the tile"),
        pytest.param(view(tile(0, 8, 3, 1)), snapshot(0, 8, 2, at=6, base=4), (), id="built on a tile of the future"),
        pytest.param(view(tile(0, 8)), snapshot(0, 4, 1, 5), (), id="part of a tile"),
        pytest.param(view(tile(0, 4), tile(4, 8)), snapshot(2, 6, 1, 5), (), id="parts of two tiles"),
        pytest.param(view(tile(0, 4), tile(4, 8, 3, 1)), snapshot(0, 8, 1, 5, base=3), (), id="tiles of different age"),
        pytest.param(view(tile(0, 8)), snapshot(0, 8, 1, 5, files=("snapdata/x/y",)), (), id="shares what it may not"),
    ],
)
def test_what_does_not_fit_is_not_adopted(
    state: LineView, candidate: SnapshotDescriptor, floors: tuple[SnapshotFloor, ...]
) -> None:
    assert adopted(state, candidate, floors=floors) == ([], {})


def test_a_snapshot_built_on_a_tile_that_was_replaced_is_passed_over_for_ever() -> None:
    """Its number goes under the floor, so that the collector may delete it."""
    assert adopted(view(tile(0, 8, 5, 2)), snapshot(0, 8, 3, at=7)) == ([], {(0, 8): 3})


def test_a_snapshot_of_an_operator_that_the_job_no_longer_has_is_passed_over_for_ever() -> None:
    """A fold that was under way while the operator was removed publishes it; nobody would ever take or delete it."""
    other = [msgspec.structs.replace(snapshot(0, 8, number, at=5), operator="other") for number in (3, 4)]
    found = decide_adoption(view(tile(0, 8)), (SnapshotFloor("op", 0, 8, 9),), other, {}, JOB)
    assert found == ((), (SnapshotFloor("other", 0, 8, 4),))


def test_numbers_given_up_go_under_the_floor_but_never_past_one_that_is_still_possible() -> None:
    aborted = msgspec.structs.replace(snapshot(0, 8, 3, 0), status="aborted", files=())
    later = msgspec.structs.replace(snapshot(0, 8, 5, 0), status="aborted", files=())
    not_yet = snapshot(0, 8, 4, at=11)
    assert adopted(view(tile(0, 8)), aborted, not_yet, later) == ([], {(0, 8): 3})
    assert adopted(view(tile(0, 8)), aborted, later) == ([], {(0, 8): 5})


def test_one_snapshot_may_replace_several_tiles_of_one_age() -> None:
    state = view(tile(0, 4, 3, 1), tile(4, 8, 3, 1))
    assert adopted(state, snapshot(0, 8, 1, 6, base=3)) == ([(0, 8, 6, 1)], {(0, 8): 1})


def test_several_snapshots_may_replace_one_tile_if_they_cover_it() -> None:
    state = view(tile(0, 8, 3, 1))
    parts = [snapshot(0, 4, 1, 6, base=3), snapshot(4, 8, 1, 5, base=3)]
    assert adopted(state, *parts) == ([(0, 4, 6, 1), (4, 8, 5, 1)], {(0, 4): 1, (4, 8): 1})
    assert adopted(state, parts[0]) == ([], {})
    assert adopted(state, parts[0], snapshot(5, 8, 1, 5, base=3)) == ([], {})
    thirds = [snapshot(0, 3, 1, 7, base=3), snapshot(3, 8, 1, 4, base=3)]
    assert adopted(state, *thirds, *parts)[0] == [(0, 3, 7, 1), (3, 8, 4, 1)]
    assert adopted(state, thirds[0], *parts)[0] == [(0, 4, 6, 1), (4, 8, 5, 1)]


def test_of_overlapping_choices_the_newest_is_taken() -> None:
    state = view(tile(0, 4, 3, 1), tile(4, 8, 3, 1))
    whole, half = snapshot(0, 8, 1, 6, base=3), snapshot(0, 4, 2, 7, base=3)
    assert adopted(state, whole, half)[0] == [(0, 4, 7, 2)]
    assert adopted(state, whole, snapshot(0, 4, 2, 6, base=3))[0] == [(0, 8, 6, 1)]


def test_many_candidates_that_fit_nowhere_are_no_trouble() -> None:
    """The search for a tiling must not try all combinations."""
    state = LineView(max_parallelism=512, base=link(9), tiles=(tile(0, 512),), line=tuple(map(link, range(2, 10))))
    candidates = [snapshot(n, n + 1, k, 3 + k) for n in range(511) for k in (1, 2, 3)]
    assert adopted(state, *candidates) == ([], {})


class TestSharedFiles:
    """Only files of the very tile that is replaced are safe from a stalled collector."""

    def test_files_of_the_tiles_snapshot_may_be_shared(self) -> None:
        state = view(tile(0, 8, 3, 1))
        names = {SnapshotName("op", 0, 8, 1): frozenset({"old.sst"})}
        assert tile_snapshots(state) == (SnapshotName("op", 0, 8, 1),)
        candidate = snapshot(0, 8, 2, 6, base=3, files=("old.sst",))
        assert adopted(state, candidate, shared=names)[0] == [(0, 8, 6, 2)]
        assert adopted(state, candidate)[0] == []

    def test_files_of_another_upload_may_not(self) -> None:
        other = layout.snapshot_file("op", 0, 8, 1, "u", "x.sst")
        twin = layout.snapshot_file("op", 0, 8, 2, "another", "x.sst")
        for name in (other, twin):
            assert adopted(view(tile(0, 8)), snapshot(0, 8, 2, 6, files=(name,)))[0] == []

    def test_one_for_several_may_share_files_of_all_of_them(self) -> None:
        state = view(tile(0, 4, 3, 1), tile(4, 8, 3, 2))
        names = {SnapshotName("op", 0, 4, 1): frozenset({"a"}), SnapshotName("op", 4, 8, 2): frozenset({"b"})}
        assert adopted(state, snapshot(0, 8, 1, 6, base=3, files=("a", "b")), shared=names)[0] == [(0, 8, 6, 1)]


EIGHT = view(*(tile(n, n + 1) for n in range(8)))


def test_of_many_snapshots_a_commit_takes_some_and_the_next_ones_the_rest() -> None:
    published = [snapshot(n, n + 1, 1, at=3 + n % 5) for n in reversed(range(8))]
    state, floors, found = EIGHT, (), []
    while (step := decide_adoption(state, floors, published, {}, JOB, 3)).tiles:
        found.append([t.low for t in step.tiles])
        assert [f.low for f in step.floors] == found[-1]
        new = {t.low: t for t in step.tiles}
        state, floors = view(*(new.get(t.low, t) for t in state.tiles)), (*floors, *step.floors)
    assert found == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_floors_are_found_among_many() -> None:
    floors = tuple(SnapshotFloor("op", n, n + 1, 5) for n in range(8))
    for low in range(8):
        assert adopted(EIGHT, snapshot(low, low + 1, 5, 6), floors=floors) == ([], {})
        assert adopted(EIGHT, snapshot(low, low + 1, 6, 6), floors=floors)[0] == [(low, low + 1, 6, 6)]
    assert adopted(EIGHT, snapshot(0, 8, 1, 6), floors=floors)[0] == [(0, 8, 6, 1)], "a range that never had any"
    assert adopted(EIGHT, snapshot(2, 8, 1, 6), floors=floors)[0] == [(2, 8, 6, 1)]


def test_what_is_not_possible_does_not_keep_the_others_waiting() -> None:
    waiting = [snapshot(n, n + 1, 1, at=11) for n in range(6)]  # of a commit that is not there yet
    found, _ = adopted(EIGHT, *waiting, snapshot(6, 7, 1, 5), snapshot(7, 8, 1, 5), at_once=1)
    assert found == [(6, 7, 5, 1)]


def test_snapshots_that_only_together_replace_a_tile_are_adopted_together() -> None:
    state = view(tile(0, 6), tile(6, 8))
    parts = [snapshot(n, n + 2, 1, at=5) for n in (0, 2, 4, 6)]
    assert adopted(state, *parts, at_once=1)[0] == [(0, 2, 5, 1), (2, 4, 5, 1), (4, 6, 5, 1)]


def test_of_snapshots_that_exclude_one_another_the_best_is_taken_whatever_the_limit() -> None:
    state = view(tile(0, 4, 3, 1), tile(4, 8, 3, 1))
    rivals = [snapshot(0, 4, 1, 5, base=3), snapshot(0, 8, 1, 6, base=3), snapshot(4, 8, 1, 7, base=3)]
    assert adopted(state, *rivals, at_once=1) == adopted(state, *rivals)


def test_a_floor_never_passes_a_number_that_was_not_looked_at() -> None:
    """Numbers of one range are looked at together, or a later commit could not take the lower one any more."""
    aborted = msgspec.structs.replace(snapshot(1, 2, 5, 0), status="aborted", files=())
    first = snapshot(0, 1, 1, 5)
    assert adopted(EIGHT, first, aborted, snapshot(1, 2, 4, 6), at_once=1) == ([(0, 1, 5, 1)], {(0, 1): 1})
    found, raised = adopted(EIGHT, aborted, snapshot(1, 2, 4, 6), snapshot(5, 6, 1, 6), at_once=1)
    assert (found, raised) == ([(1, 2, 6, 4)], {(1, 2): 5})


def test_ranges_that_get_snapshots_as_fast_as_commits_take_them_do_not_keep_the_others_waiting() -> None:
    """The lowest ranges of the first operator were adopted for ever, and nothing else."""
    line = tuple(map(link, range(2, 60)))
    state = {(uid, low): msgspec.structs.replace(tile(low, low + 1), operator=uid) for uid in "ab" for low in range(8)}
    floors: dict[tuple[str, int, int], SnapshotFloor] = {}
    adopted_at: dict[tuple[str, int], list[int]] = {place: [] for place in state}
    for seq in range(10, 50):
        published = [
            msgspec.structs.replace(
                snapshot(t.low, t.high, number=seq, at=seq - 1, base=t.at.seq), operator=t.operator, files=()
            )
            for t in state.values()
        ]
        base = LineView(max_parallelism=8, base=line[-1], tiles=tuple(state.values()), line=line)
        step = decide_adoption(base, [floors[r] for r in sorted(floors)], published, {}, JOB, 4)
        assert len(step.tiles) == 4
        for found in step.tiles:
            state[found.operator, found.low] = found
            adopted_at[found.operator, found.low].append(seq)
        floors.update({(f.operator, f.low, f.high): f for f in step.floors})
    assert {len(seqs) for seqs in adopted_at.values()} == {10}
    assert {later - seq for seqs in adopted_at.values() for seq, later in itertools.pairwise(seqs)} == {4}


def test_parts_that_wait_for_the_rest_of_their_tile_do_not_keep_the_others_waiting() -> None:
    state = view(tile(0, 6), tile(6, 7, 3, 1), tile(7, 8, 3, 1))
    parts = [snapshot(n, n + 1, 1, at=5) for n in range(5)]
    others = [snapshot(n, n + 1, 2, 5, base=3) for n in (6, 7)]
    assert adopted(state, *parts, *others, at_once=1) == ([(6, 7, 5, 2)], {(6, 7): 2})
    assert adopted(state, *parts, snapshot(5, 6, 1, 5), *others, at_once=1)[0] == [(n, n + 1, 5, 1) for n in range(6)]


def test_a_floor_never_passes_a_possible_number_of_another_base() -> None:
    """A snapshot that was given up names no base, so it is looked at first."""
    state = view(tile(0, 1, 3, 1), tile(1, 2, 4, 1))
    aborted = msgspec.structs.replace(snapshot(1, 2, 5, 0), status="aborted", files=())
    found = adopted(state, aborted, snapshot(1, 2, 4, 6, base=4), snapshot(0, 1, 2, 5, base=3), at_once=1)
    assert found == ([(0, 1, 5, 2)], {(0, 1): 2})
