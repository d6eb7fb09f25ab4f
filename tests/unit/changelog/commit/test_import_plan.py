from __future__ import annotations

import msgspec
import pytest

from tests.jobs.chain_job import MAX_PARALLELISM, layout_of
from tests.unit.changelog.commit.test_base_decision import C0, C2, commit
from varvite.changelog.chain.view import StoredCommit, resolve
from varvite.changelog.commit.import_plan import (
    CopiedState,
    GoOn,
    Import,
    UseImport,
    decide_import,
    plan_import,
    source_of,
)
from varvite.storage.errors import CorruptDataError, InvalidRequestError, InvariantError, LineageError
from varvite.storage.format import layout
from varvite.storage.format.records import (
    ORIGIN,
    Fence,
    Link,
    ObjectSlice,
    SegmentRef,
    SnapshotFile,
    Tile,
    decode_entry,
)

SOURCE = msgspec.structs.replace(commit(4, 6), job_id="other", operators=(layout_of(2),))
IMPORTED = msgspec.structs.replace(commit(4, 9), source=source_of(SOURCE))


def fence(seq: int = 7) -> Fence:
    return Fence(seq=seq, token="f", job_id="j", parent=ORIGIN, keep_from=1, time_ms=5)


def copied(slot: int = 8) -> CopiedState:
    file = SnapshotFile("1.sst", layout.segment(slot, "imported", 0, "t", 0), 1, 1)
    data = ObjectSlice(layout.pack(slot, "p"), 0, 1, 1)
    at = Link(3, "t3")
    return CopiedState(
        tiles=(
            Tile(operator="op", low=4, high=MAX_PARALLELISM, at=at),
            Tile(operator="op", low=0, high=4, at=at, files=(file,)),
        ),
        log=(SegmentRef("op", 0, 4, 4, 6, data),),
        line=(at, SOURCE.link),
    )


class TestDecision:
    def test_a_job_without_state_gets_the_copy(self) -> None:
        for query in (None, "q"):
            assert decide_import(None, source_of(SOURCE), "j", query) == Import()

    def test_a_copy_that_nothing_has_followed_is_used_again(self) -> None:
        for query in (None, "q", "new"):
            assert decide_import(IMPORTED, source_of(SOURCE), "j", query) == UseImport(9)

    def test_a_query_that_has_begun_goes_on(self) -> None:
        assert decide_import(C2, source_of(SOURCE), "j", "q") == GoOn()

    @pytest.mark.parametrize("query", [None, "q", "new"])
    def test_a_copy_that_nothing_has_followed_gives_way_to_a_later_one(self, query: str | None) -> None:
        """The source may be a running job's newest checkpoint, and a start may be interrupted after the copy."""
        later = msgspec.structs.replace(SOURCE, seq=8, token="t8")
        assert decide_import(IMPORTED, source_of(later), "j", query) == Import()

    @pytest.mark.parametrize("query", [None, "new"])
    def test_a_copy_of_the_jobs_own_state_is_not_given_up_for_another_jobs(self, query: str | None) -> None:
        own = msgspec.structs.replace(IMPORTED, source=source_of(msgspec.structs.replace(C0, job_id="j")))
        with pytest.raises(LineageError, match="state of its own"):
            decide_import(own, source_of(SOURCE), "j", query)

    @pytest.mark.parametrize("query", [None, "new"])
    def test_another_query_gets_a_copy_only_of_the_jobs_own_state(self, query: str | None) -> None:
        own = source_of(C0)
        assert decide_import(C2, own, own.job_id, query) == Import()
        assert decide_import(IMPORTED, own, own.job_id, query) == Import()
        with pytest.raises(LineageError, match="state of its own"):
            decide_import(C2, source_of(SOURCE), "j", query)


class TestPlan:
    def test_the_import_is_a_full_commit_that_resolves_by_itself(self) -> None:
        plan = plan_import(fence(), SOURCE, copied(), "token")
        entry, blob = decode_entry(plan.body, layout.chain(8))
        assert (entry, bytes(blob)) == (plan.commit, b"")
        made = plan.commit
        assert (made.seq, made.epoch, made.job_id, made.parent, made.source) == (8, 7, "j", ORIGIN, source_of(SOURCE))
        assert (made.batch, made.query_id, made.source_hash) == (SOURCE.batch, SOURCE.query_id, SOURCE.source_hash)
        assert (made.needs_from, made.keep_from, made.is_full) == (8, 1, True)
        view = resolve(StoredCommit(made, 0), StoredCommit(made, 0), ())
        assert [tile.low for tile in view.tiles] == [0, 4]
        assert view.segments == copied().log
        assert view.line == (Link(3, "t3"), SOURCE.link, made.link)

    def test_the_numbers_of_the_source_must_be_below(self) -> None:
        assert plan_import(fence(6), SOURCE, copied(7), "token").commit.seq == 7
        with pytest.raises(InvalidRequestError, match="numbers must"):
            plan_import(fence(5), SOURCE, copied(6), "token")

    def test_everything_is_of_the_slot(self) -> None:
        right = copied()
        snapshot = Tile(operator="op", low=0, high=8, at=Link(3, "t3"), snapshot=1)
        inline = SegmentRef("op", 0, 4, 4, 4, ObjectSlice(layout.chain(8), 0, 1, 1))
        wrong = (copied(7), copied(9), CopiedState((snapshot,)), CopiedState(right.tiles, (inline,), right.line))
        for state in wrong:
            with pytest.raises(InvariantError):
                plan_import(fence(), SOURCE, state, "token")

    def test_tiles_cover_all_key_groups(self) -> None:
        state = CopiedState(copied().tiles[:1])
        with pytest.raises(CorruptDataError, match="cover"):
            plan_import(fence(), SOURCE, state, "token")
