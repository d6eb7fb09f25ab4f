from __future__ import annotations

import pytest

from varvite.changelog.chain.reader import head_seq, newest_commit
from varvite.changelog.commit.rules import ProtocolRules
from varvite.changelog.commit.start_decision import Own, Retry, decide_ownership, plan_fence
from varvite.storage.errors import FencedError
from varvite.storage.format.records import ORIGIN, Commit, Fence, Link, SnapshotFloor

FLOORS = (SnapshotFloor("op", 0, 8, 3),)


def commit(seq: int, epoch: int = 1, **fields: object) -> Commit:
    values: dict[str, object] = {
        "seq": seq, "token": f"c{seq}", "job_id": "j", "epoch": epoch, "parent": ORIGIN, "keep_from": 2,
        "floors": FLOORS, "batch": 0, "query_id": "q", "source_hash": "h", "time_ms": 50, "max_parallelism": 8,
        "operators": (), "needs_from": 2, "parts": (), "full": Link(seq, f"c{seq}"),
    }  # fmt: skip
    return Commit(**{**values, **fields})  # type: ignore[arg-type]


def fence(seq: int, **fields: object) -> Fence:
    values: dict[str, object] = {
        "seq": seq, "token": f"f{seq}", "job_id": "j", "parent": ORIGIN, "keep_from": 2, "time_ms": 60
    }  # fmt: skip
    return Fence(**{**values, **fields})  # type: ignore[arg-type]


def test_the_first_fence_of_a_job_is_seq_1_after_the_origin() -> None:
    made = plan_fence(None, job_id="j", token="t", now_ms=7)
    assert made == Fence(seq=1, token="t", job_id="j", parent=ORIGIN, keep_from=0, time_ms=7)


def test_a_fence_after_a_commit_takes_its_slot_and_carries_on_what_only_rises() -> None:
    made = plan_fence(commit(9, keep_from=5), job_id="j", token="t", now_ms=70, restore=4)
    assert (made.seq, made.epoch, made.parent, made.commit) == (10, 10, Link(9, "c9"), Link(9, "c9"))
    assert (made.keep_from, made.floors, made.time_ms, made.restore) == (5, FLOORS, 70, 4)


def test_a_fence_after_a_fence_remembers_the_newest_commit_below() -> None:
    made = plan_fence(fence(10, commit=Link(9, "c9"), floors=FLOORS), job_id="j", token="t", now_ms=1)
    assert (made.seq, made.parent, made.commit, made.floors) == (11, Link(10, "f10"), Link(9, "c9"), FLOORS)
    assert made.time_ms == 60


def test_the_head_is_the_highest_listed_seq() -> None:
    assert [head_seq([]), head_seq([1, 7, 3])] == [0, 7]
    assert newest_commit(None) == ORIGIN


@pytest.mark.parametrize(
    ("above", "expected"),
    [
        pytest.param([], Own(fence(5)), id="nothing above"),
        pytest.param([commit(9, epoch=3)], Retry(), id="an older run's commit: the fence stands in a hole"),
        pytest.param([None], Retry(), id="an entry that was collected before it was read"),
        pytest.param([None, commit(9, epoch=3)], Retry(), id="both"),
    ],
)
def test_who_owns_the_chain(above: list[Commit | None], expected: Own | Retry) -> None:
    assert decide_ownership(fence(5), above) == expected


@pytest.mark.parametrize("above", [[fence(6)], [commit(7, epoch=6)], [commit(6, epoch=3), fence(8)], [None, fence(8)]])
def test_an_entry_of_a_newer_run_fences(above: list[Commit | Fence | None]) -> None:
    with pytest.raises(FencedError, match="newer run"):
        decide_ownership(fence(5), above)


def test_without_the_rule_a_fence_in_a_hole_would_own() -> None:
    rules = ProtocolRules(list_after_claim=False)
    assert decide_ownership(fence(5), [commit(9, epoch=3)], rules) == Own(fence(5))


class TestChosenAhead:
    """`varvite restore` writes a fence with the choice; the run that comes next takes it over."""

    def choice(self, restore: int | None) -> Fence:
        return plan_fence(commit(9), job_id="j", token="c", now_ms=0, restore=restore, chosen_ahead=True)

    def test_every_run_takes_it_over_until_a_commit_follows(self) -> None:
        first = plan_fence(self.choice(3), job_id="j", token="d", now_ms=0)
        second = plan_fence(first, job_id="j", token="e", now_ms=0)
        assert [(f.restore, f.chosen_ahead) for f in (first, second)] == [(3, True)] * 2
        after = plan_fence(commit(9), job_id="j", token="f", now_ms=0)
        assert (after.restore, after.chosen_ahead) == (None, False)

    def test_it_wins_over_an_option_that_is_still_set(self) -> None:
        own = plan_fence(self.choice(3), job_id="j", token="d", now_ms=0, restore=5)
        assert (own.restore, own.chosen_ahead) == (3, True)

    def test_what_a_run_chose_for_itself_is_not_taken_over(self) -> None:
        own = plan_fence(commit(9), job_id="j", token="d", now_ms=0, restore=5)
        assert plan_fence(own, job_id="j", token="e", now_ms=0).restore is None

    def test_it_can_be_taken_back(self) -> None:
        cancelled = plan_fence(self.choice(3), job_id="j", token="d", now_ms=0, chosen_ahead=True)
        assert plan_fence(cancelled, job_id="j", token="e", now_ms=0).restore is None

    def test_an_empty_chain_begins_where_the_job_says(self) -> None:
        assert plan_fence(None, job_id="j", token="d", now_ms=0, begins_after=9).seq == 10
