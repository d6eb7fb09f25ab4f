from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tests.jobs.chain_job import ChainJob, results_of
from varvite.changelog.chain.invariants import (
    check_commit,
    violations_of_commit,
    violations_of_needed,
    violations_of_succession,
    violations_of_view,
)
from varvite.changelog.chain.view import LineView
from varvite.storage.errors import InvariantError
from varvite.storage.format.records import Commit, Link, SnapshotFloor

OTHER = Link(99, "other")


def commits() -> tuple[Commit, Commit, LineView]:
    """Two commits of a run, and the view of the second."""
    driver = ChainJob().driver(0)
    first = driver.commit(0).commit
    second = driver.commit(1, results_of([b"x", b"y"])).commit
    return first, second, driver.state.view


def test_a_run_violates_nothing() -> None:
    first, second, view = commits()
    assert violations_of_succession(second, first) == []
    assert violations_of_commit(second, first) == []
    assert violations_of_commit(first, None) == []
    assert violations_of_view(view, second) == []
    check_commit(second, first, view)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"seq": 7}, "does not follow entry .*I6"),
        ({"epoch": 7}, "had taken over .*I6"),
        ({"keep_from": -1}, "lowers the bounds .*I7"),
        ({"retained_from": -1}, "lowers the bounds .*I7"),
    ],
)
def test_what_two_neighbours_violate(changes: dict[str, Any], found: str) -> None:
    first, second, _ = commits()
    with pytest.raises(AssertionError, match=found):
        _fail(violations_of_succession(replace(second, **changes), first))


def test_a_floor_never_falls() -> None:
    first, second, _ = commits()
    floors = (SnapshotFloor("op", 0, 8, 3),)
    assert violations_of_succession(replace(second, floors=floors), replace(first, floors=floors)) == []
    assert "I7" in violations_of_succession(second, replace(first, floors=floors))[0]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda c: replace(c, parent=OTHER), "as its parent.*I3"),
        (lambda c: replace(c, batch=5), "not on the batch before .*I3"),
        (lambda c: replace(c, time_ms=-1), "time went back .*I5"),
        (lambda c: replace(c, parts=c.parts[:1]), "one attempt for each partition .*I2"),
        (lambda c: replace(c, parts=(replace(c.parts[0], high=1), *c.parts[1:])), "cover the key groups .*I2"),
        (lambda c: replace(c, keep_from=c.needs_from + 1), "gives itself up.*I7"),
    ],
)
def test_what_a_commit_violates(change: Callable[[Commit], Commit], found: str) -> None:
    first, second, view = commits()
    with pytest.raises(AssertionError, match=found):
        _fail(violations_of_commit(change(second), first))
    with pytest.raises(InvariantError, match=found):
        check_commit(change(second), first, view)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda v: replace(v, base=OTHER), "the view is of .*I5"),
        (lambda v: replace(v, tiles=v.tiles[1:]), "tiles of .*I5"),
        (lambda v: replace(v, tiles=(replace(v.tiles[0], high=1), *v.tiles[1:])), "cover key groups .*I5"),
        (lambda v: replace(v, tiles=tuple(replace(t, at=v.base) for t in v.tiles)), "counts for no tile .*I5"),
        (lambda v: replace(v, line=()), "does not lead there .*I5"),
        (lambda v: replace(v, path=(OTHER,)), "does not lead there from the full entry .*I5"),
        (lambda v: replace(v, needs_from=v.base.seq), "needs nothing below .*I7"),
        (lambda v: replace(v, segments=v.segments[::-1]), "^$|follows a newer one .*I5"),
    ],
)
def test_what_a_view_violates(change: Callable[[LineView], LineView], found: str) -> None:
    _, second, view = commits()
    with pytest.raises(AssertionError, match=found):
        _fail(violations_of_view(change(view), second))


def test_what_is_needed_is_there() -> None:
    assert violations_of_needed({"a", "b"}, {"a", "b", "c"}, "commit 3") == []
    assert violations_of_needed({"a", "b"}, {"b"}, "commit 3") == ["commit 3 names ['a'], which are not there (I1, I7)"]


def _fail(violations: list[str]) -> None:
    raise AssertionError("; ".join(violations))
