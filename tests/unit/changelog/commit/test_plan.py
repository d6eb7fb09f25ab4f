from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from tests.jobs.chain_job import MAX_PARALLELISM, OPERATOR, ChainJob, Driver, layout_of, results_of
from varvite.changelog.chain.retention_bounds import bounds_of
from varvite.changelog.commit import plan as commit_plan
from varvite.changelog.commit.batch_result import (
    INLINE_BYTES_MAX,
    BatchFacts,
    PartitionResult,
    entry_time,
    files_to_rewrite,
)
from varvite.changelog.commit.pack import Pack, PackHeader, plan_pack
from varvite.changelog.commit.plan import Adoption, adopts_now, plan_commit
from varvite.changelog.commit.state import REFERENCES_MAX, CommitPolicy
from varvite.storage.errors import InvalidRequestError, InvariantError
from varvite.storage.format import layout
from varvite.storage.format.records import (
    ORIGIN,
    Link,
    ObjectSlice,
    SnapshotFile,
    SnapshotFloor,
    Tile,
    decode_entry,
)
from varvite.storage.transfer.slice_reader import read_slice


def changed(results: tuple[PartitionResult, ...], number: int, **fields: object) -> tuple[PartitionResult, ...]:
    return tuple(msgspec.structs.replace(r, **fields) if i == number else r for i, r in enumerate(results))


def segment(slot: int, index: int = 0, operator: str = OPERATOR) -> ObjectSlice:
    return ObjectSlice(layout.segment(slot, operator, 0, "t", index), 0, 5, 1)


def file(slot: int) -> SnapshotFile:
    return SnapshotFile(f"{slot}.sst", layout.segment(slot, OPERATOR, 0, "t", 0), 1, 1)


def pack_for(driver: Driver) -> Pack:
    state = driver.state
    data = {ref: read_slice(driver.job.store, ref.data) for ref in state.packable()}
    pack = plan_pack(state.view.segments, data, PackHeader(job_id=state.job_id, token="p", slot=state.slot))
    driver.job.store.put(pack.name, pack.body)
    return pack


def two() -> tuple[PartitionResult, ...]:
    return results_of([b"one", b"two"])


class TestTheEntry:
    def test_the_first_commit_is_full_and_starts_from_empty_tiles(self) -> None:
        commit = ChainJob().driver(0).commit(0).commit
        assert (commit.seq, commit.epoch, commit.parent, commit.full) == (2, 1, ORIGIN, commit.link)
        assert commit.tiles == (Tile(operator=OPERATOR, low=0, high=MAX_PARALLELISM),)
        assert (commit.path, commit.log, commit.line, commit.needs_from, commit.keep_from) == ((), (), (), 2, 0)

    def test_a_commit_names_its_batch_and_points_at_the_full_entry(self) -> None:
        driver = ChainJob().driver(0)
        first, second, third = (driver.commit(n).commit for n in range(3))
        assert (third.parent, third.full, third.path) == (second.link, first.link, (second.link,))
        assert (third.tiles, third.log, third.line, third.needs_from) == ((), (), (), 2)
        assert (third.batch, third.query_id, third.source_hash) == (2, "q", "offsets-2")

    def test_inline_segments_stand_in_the_blob_in_order_of_partition(self) -> None:
        plan = ChainJob().driver(0).commit(0, tuple(reversed(results_of([b"one", b"", b"three"]))))
        entry, blob = decode_entry(plan.body, "x")
        assert (entry, bytes(blob)) == (plan.commit, b"onethree")
        assert plan.stored.blob_offset == len(plan.body) - len(b"onethree")
        assert [(p.partition, p.inline and (p.inline.offset, p.inline.length)) for p in plan.commit.parts] == [
            (0, (0, 3)), (1, None), (2, (3, 5)),
        ]  # fmt: skip

    def test_the_view_finds_the_bytes_in_the_stored_object(self) -> None:
        driver = ChainJob().driver(0)
        driver.commit(0, two())
        assert [read_slice(driver.job.store, ref.data) for ref in driver.state.view.segments] == [b"one", b"two"]

    def test_uploaded_parts_precede_the_inline_part(self) -> None:
        driver = ChainJob().driver(0)
        driver.commit(0, changed(two(), 0, uploaded=(segment(2, 0), segment(2, 1))))
        names = [ref.data.name for ref in driver.state.view.segments]
        assert names == [segment(2, 0).name, segment(2, 1).name, layout.chain(2), layout.chain(2)]

    def test_the_size_limit_of_an_entry_is_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(commit_plan, "ENTRY_BYTES_MAX", 2000)
        driver = ChainJob().driver(0)
        driver.plan(0, two())
        huge = tuple(segment(2, n) for n in range(40))
        with pytest.raises(InvalidRequestError, match="run the materializer"):
            driver.plan(0, changed(two(), 0, uploaded=huge))

    def test_the_limit_of_inline_bytes_is_kept(self) -> None:
        driver = ChainJob().driver(0)
        driver.plan(0, results_of([b"x" * (INLINE_BYTES_MAX - 1), b"y"]))
        with pytest.raises(InvariantError, match="inline bytes"):
            driver.plan(0, results_of([b"x" * INLINE_BYTES_MAX, b"y"]))


class TestFullEntries:
    def test_without_anything_to_pack_every_kth_entry_is_full(self) -> None:
        driver = ChainJob(CommitPolicy(full_every=3)).driver(0)
        entries = [driver.commit(n, results_of([b"", b""])).commit for n in range(7)]
        assert [e.is_full for e in entries] == [True, False, False, True, False, False, True]
        assert entries[3].line == tuple(e.link for e in entries[:3])

    def test_a_full_entry_waits_for_its_pack_but_not_for_ever(self) -> None:
        driver = ChainJob(CommitPolicy(full_every=2, path_max=4)).driver(0)
        entries = [driver.commit(n).commit for n in range(6)]
        assert [e.is_full for e in entries] == [True, False, False, False, True, False]
        assert [ref.data.name for ref in entries[4].log] == [layout.chain(s) for s in (2, 2, 3, 3, 4, 4, 5, 5)]
        assert entries[4].needs_from == 2

    def test_a_ready_pack_makes_the_entry_full_and_the_old_entries_unneeded(self) -> None:
        driver = ChainJob(CommitPolicy(full_every=3)).driver(0)
        due = [(driver.commit(n), driver.state.is_full_due(driver.job.policy))[1] for n in range(3)]
        assert due == [False, False, True]
        full = driver.commit(3, pack=pack_for(driver)).commit
        assert full.is_full
        assert [(r.low, r.high, r.seq_first, r.seq_last) for r in full.log] == [(0, 4, 2, 4), (4, 8, 2, 4)]
        assert {r.data.name for r in full.log} == {layout.pack(5, "p")}
        assert (full.needs_from, driver.commit(4).commit.keep_from) == (5, 5)

    def test_a_log_that_was_encoded_with_its_pack_makes_the_same_entry(self) -> None:
        driver = ChainJob(CommitPolicy(full_every=2)).driver(0)
        driver.commit(0)
        pack, facts = pack_for(driver), driver.facts(1, two())
        assert pack.replaced_encoded
        bodies = [
            plan_commit(driver.state, facts, driver.job.policy, "t", pack=given).body
            for given in (pack, pack._replace(replaced_encoded=b""))
        ]
        assert bodies[0] == bodies[1]

    def test_a_pack_of_images_alone_has_no_log_to_encode(self) -> None:
        assert plan_pack((), {}, PackHeader(job_id="j", token="p", slot=3)).replaced_encoded == b""

    def test_with_the_pack_of_a_long_log_the_commit_after_it_adopts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        driver = ChainJob(CommitPolicy(full_every=3)).driver(0)
        driver.commit(0)
        assert driver.state.commits_since_full == 0
        monkeypatch.setattr(commit_plan, "LONG_LOG", 2)
        assert adopts_now(driver.state, pack_for(driver)), "never twice in a row"
        driver.commit(1)
        pack = pack_for(driver)
        assert len(pack.replaced) == 2
        assert adopts_now(driver.state, None)
        assert not adopts_now(driver.state, pack)
        monkeypatch.setattr(commit_plan, "LONG_LOG", 3)
        assert adopts_now(driver.state, pack)

    def test_a_full_entrys_own_inline_parts_go_into_the_next_pack(self) -> None:
        """With the small pack before it, so that the entries between both are not kept for that one's sake."""
        driver = ChainJob(CommitPolicy(full_every=2)).driver(0)
        driver.commit(0)
        driver.commit(1, pack=pack_for(driver))
        full = driver.commit(2, pack=pack_for(driver)).commit
        found = [(r.seq_first, r.seq_last, r.data.name) for r in full.log if r.low == 0]
        assert found == [(2, 3, layout.pack(4, "p"))]
        assert full.needs_from == full.seq

    def test_a_full_entry_is_due_when_many_inline_bytes_have_gathered(self) -> None:
        driver = ChainJob(CommitPolicy(pack_bytes=5)).driver(0)
        driver.commit(0, two())
        assert driver.state.packable_bytes == 6
        assert driver.state.is_full_due(driver.job.policy)

    def test_a_full_entry_is_due_soon_after_an_adoption(self) -> None:
        """The full entry before it names the old base, which is kept until then."""
        job = ChainJob(CommitPolicy(full_every=12))
        driver = job.driver(0)
        link = driver.commit(0, results_of([b"", b""])).commit.link
        driver.commit(1, results_of([b"", b""]))
        tile = Tile(operator=OPERATOR, low=0, high=8, at=link, snapshot=1)
        entries = [driver.commit(2, results_of([b"", b""]), Adoption((tile,), ())).commit]
        driver = job.driver(3)
        entries += [driver.commit(n, results_of([b"", b""])).commit for n in range(3, 8)]
        assert [e.is_full for e in entries] == [False, True, False, False, False, False]
        assert not driver.state.is_full_due(job.policy), "once is enough"

    def test_snapshots_of_a_small_part_wait_for_a_quarter_of_the_commits(self) -> None:
        """A job with many partitions adopts with most commits, and a full entry names all of them."""
        job = ChainJob(CommitPolicy(full_every=40))
        driver = job.driver(0)
        driver.commit(0, results_of([b"", b""]))

        def is_due(max_parallelism: int, commits_since_full: int) -> bool:
            """One key group was adopted."""
            path = (driver.state.view.base,) * commits_since_full
            view = msgspec.structs.replace(driver.state.view, max_parallelism=max_parallelism, path=path)
            return replace(driver.state, view=view, adopted_key_groups=1).is_full_due(job.policy)

        assert is_due(max_parallelism=10, commits_since_full=0)
        assert not is_due(max_parallelism=11, commits_since_full=8)
        assert is_due(max_parallelism=11, commits_since_full=9)

    def test_a_full_entry_is_due_when_there_are_many_references(self) -> None:
        """They are in the driver's memory: with thousands of partitions a few commits have as many as with few many."""
        job = ChainJob(CommitPolicy(full_every=40))
        driver = job.driver(0)
        driver.commit(0, results_of([b"", b""]))
        driver.commit(1, results_of([b"", b""]))
        base = driver.state.base
        assert base is not None
        assert driver.state.commits_since_full == 1

        def is_due(parts: int) -> bool:
            return replace(driver.state, base=msgspec.structs.replace(base, parts=base.parts[:1] * parts)).is_full_due(
                job.policy
            )

        assert is_due(REFERENCES_MAX)
        assert not is_due(REFERENCES_MAX - 1)

    def test_a_pack_for_another_slot_is_refused(self) -> None:
        driver = ChainJob().driver(0)
        driver.commit(0)
        pack = pack_for(driver)
        driver.commit(1)
        with pytest.raises(InvariantError, match="slot 3"):
            driver.plan(2, two(), pack=pack)

    def test_a_pack_of_another_line_is_refused(self) -> None:
        driver = ChainJob().driver(0)
        driver.commit(0)
        pack = pack_for(driver)
        strange = pack._replace(planned_from=(), packed=(*pack.packed, pack.refs[0]))
        with pytest.raises(InvariantError, match="not on the base's line"):
            driver.plan(1, two(), pack=strange)


class TestRetention:
    def test_keep_from_is_what_the_oldest_retained_commit_needs(self) -> None:
        driver = ChainJob(CommitPolicy(full_every=1, retained=3)).driver(0)
        entries = [driver.commit(n, results_of([b"", b""])).commit for n in range(6)]
        assert [(e.needs_from, e.keep_from) for e in entries] == [(2, 0), (3, 0), (4, 2), (5, 3), (6, 4), (7, 5)]

    def test_the_oldest_retained_commit_is_named(self) -> None:
        driver = ChainJob(CommitPolicy(full_every=4, retained=3)).driver(0)
        entries = [driver.commit(n).commit for n in range(5)]
        assert [(e.seq, e.retained_from) for e in entries] == [(2, 0), (3, 0), (4, 2), (5, 3), (6, 4)]
        assert {e.keep_from for e in entries[2:]} == {2}, "all of them build on the first one"
        assert [bounds_of(entries[-1]).is_complete(e) for e in entries] == [False, False, True, True, True]

    def test_a_new_run_knows_the_commits_that_are_retained(self) -> None:
        job = ChainJob(CommitPolicy(full_every=1, retained=3))
        driver = job.driver(0)
        for n in range(4):
            driver.commit(n, results_of([b"", b""]))
        driver = job.driver(4)
        entries = [driver.commit(n, results_of([b"", b""])).commit for n in range(4, 8)]
        assert [(e.seq, e.keep_from) for e in entries] == [(7, 4), (8, 5), (9, 7), (10, 8)]
        assert [e.retained_from for e in entries] == [e.keep_from for e in entries]

    def test_a_batch_done_again_keeps_its_base_complete(self) -> None:
        job = ChainJob(CommitPolicy(full_every=1))
        driver = job.driver(0)
        driver.commit(0, results_of([b""]))
        base = driver.commit(1, results_of([b""])).commit
        driver.commit(2, results_of([b""]))
        for _ in range(3):
            driver = job.driver(2)
            again = driver.commit(2, results_of([b""])).commit
            assert again.parent == base.link
            assert bounds_of(again).is_complete(base)

    def test_at_least_two_commits_are_retained(self) -> None:
        with pytest.raises(InvalidRequestError, match="at least 2"):
            CommitPolicy(retained=1)

    @pytest.mark.parametrize("values", [{"full_every": 0}, {"full_every": 129}, {"pack_bytes": 0}])
    def test_other_settings_out_of_bounds_are_refused(self, values: dict[str, int]) -> None:
        with pytest.raises(InvalidRequestError):
            CommitPolicy(**values)


class TestTiles:
    def test_an_adopted_snapshot_becomes_a_tile_and_ends_the_log_below_it(self) -> None:
        driver = ChainJob().driver(0)
        link = [driver.commit(n).commit.link for n in range(3)][1]
        tile = Tile(operator=OPERATOR, low=0, high=8, at=link, snapshot=1)
        plan = driver.commit(3, two(), Adoption((tile,), (SnapshotFloor(OPERATOR, 0, 8, 1),)))
        assert (plan.commit.tiles, plan.commit.floors) == ((tile,), (SnapshotFloor(OPERATOR, 0, 8, 1),))
        assert [r.seq_first for r in driver.state.view.segments] == [4, 4, 5, 5]
        assert driver.state.view.line[0] == link

    def test_floors_never_fall(self) -> None:
        driver = ChainJob().driver(0)
        driver.commit(0, None, Adoption((), (SnapshotFloor(OPERATOR, 0, 8, 5),)))
        commit = driver.commit(1, None, Adoption((), (SnapshotFloor(OPERATOR, 0, 8, 3), SnapshotFloor("a", 0, 8, 1))))
        assert commit.commit.floors == (SnapshotFloor("a", 0, 8, 1), SnapshotFloor(OPERATOR, 0, 8, 5))

    def test_with_the_changelog_off_the_files_are_the_state_after_this_commit(self) -> None:
        driver = ChainJob().driver(0)
        driver.commit(0)
        results = changed(results_of([b"", b""]), 0, files=(file(3),))
        plan = driver.commit(1, changed(results, 1, files=()))
        link = plan.commit.link
        assert plan.commit.tiles == (
            Tile(operator=OPERATOR, low=0, high=4, at=link, files=(file(3),)),
            Tile(operator=OPERATOR, low=4, high=8, at=link),
        )
        assert driver.state.view.segments == ()
        assert plan.commit.needs_from == 2

    def test_files_of_the_base_may_be_named_again_and_hold_back_truncation(self) -> None:
        driver = ChainJob(CommitPolicy(full_every=1)).driver(0)
        driver.commit(0, changed(results_of([b""]), 0, files=(file(2),)))
        driver.commit(1, changed(results_of([b""]), 0, files=(file(3), file(2))))
        assert [driver.commit(2, results_of([b""])).commit.needs_from for _ in "x"] == [2]
        tile = driver.state.view.tiles[0]
        assert files_to_rewrite(tile, slot=5, age_max=3) == ("2.sst",)
        assert files_to_rewrite(tile, slot=5, age_max=4) == ()
        assert driver.commit(3, changed(results_of([b""]), 0, files=(file(5), file(3)))).commit.needs_from == 3

    def test_a_file_that_the_base_does_not_name_is_refused(self) -> None:
        """It may be of an attempt whose slot went to somebody else, and is then deleted."""
        driver = ChainJob().driver(0)
        driver.commit(0, changed(results_of([b""]), 0, files=(file(2),)))
        driver.commit(1, changed(results_of([b""]), 0, files=(file(3),)))
        with pytest.raises(InvariantError, match="neither belongs to the slot") as caught:
            driver.plan(2, changed(results_of([b""]), 0, files=(file(2),)))
        assert caught.value.context["object_name"] == file(2).name

    def test_adopted_snapshots_of_an_operator_that_writes_files_are_left_alone(self) -> None:
        driver = ChainJob().driver(0)
        link = driver.commit(0).commit.link
        tile = Tile(operator=OPERATOR, low=0, high=8, at=link, snapshot=1)
        results = tuple(msgspec.structs.replace(r, files=()) for r in results_of([b"", b""]))
        driver.commit(1, results, Adoption((tile,), ()))
        assert [t.snapshot for t in driver.state.view.tiles] == [None, None]

    def test_a_new_operator_begins_empty_after_the_base(self) -> None:
        driver = ChainJob().driver(0)
        base = driver.commit(0).commit.link
        plan = driver.commit(1, two() + results_of([b"z"], operator="second"))
        assert plan.commit.tiles == (Tile(operator="second", low=0, high=8, at=base),)
        own = Tile(operator="third", low=0, high=8, at=plan.commit.link)
        assert driver.state.view.tiles_for("third", 0, 4) == (own,)

    def test_an_operator_is_only_left_out_on_purpose(self) -> None:
        driver = ChainJob().driver(0)
        driver.commit(0, two() + results_of([b"z"], operator="second"))
        facts = driver.facts(1, two())
        with pytest.raises(InvalidRequestError, match="'second'"):
            plan_commit(driver.state, facts, driver.job.policy, "t")
        allowed = msgspec.structs.replace(facts, dropped=frozenset({"second"}))
        plan = plan_commit(driver.state, allowed, driver.job.policy, "t")
        state = driver.state.after(plan.stored, driver.job.policy, plan.carried_over)
        assert {t.operator for t in state.view.tiles} == {s.operator for s in state.view.segments} == {OPERATOR}
        assert state.packable_bytes == sum(ref.data.length for ref in state.view.segments)

    def test_a_rescaled_operator_needs_no_new_tiles(self) -> None:
        driver = ChainJob().driver(0)
        driver.commit(0, two())
        driver.commit(1, results_of([b"a", b"b", b"c", b"d"]))
        view = driver.state.view
        found = [(s.ref.seq_first, s.ref.low, s.ref.high, s.floors) for s in view.segments_for(OPERATOR, 2, 5)]
        assert found == [
            (2, 0, 4, ((2, 4, 0),)), (2, 4, 8, ((4, 5, 0),)), (3, 2, 4, ((2, 4, 0),)), (3, 4, 6, ((4, 5, 0),)),
        ]  # fmt: skip


class TestChecks:
    @pytest.mark.parametrize(
        "results",
        [
            pytest.param((), id="none"),
            pytest.param(two()[:1], id="one missing"),
            pytest.param((*two(), two()[1]), id="one twice"),
            pytest.param(changed(two(), 1, partition=2), id="wrong number"),
            pytest.param(changed(two(), 1, low=5), id="a gap"),
            pytest.param(changed(two(), 1, low=3), id="an overlap"),
            pytest.param(changed(two(), 1, high=7), id="an end missing"),
            pytest.param(changed(two(), 1, high=9), id="too far"),
            pytest.param((*two(), *results_of([b"z"], operator="unknown")), id="unknown operator"),
            pytest.param(changed(two(), 0, uploaded=(segment(3),)), id="uploaded for another slot"),
            pytest.param(changed(two(), 0, files=(file(2),)), id="files and segment"),
        ],
    )
    def test_results_that_are_not_whole_are_refused(self, results: tuple[PartitionResult, ...]) -> None:
        driver = ChainJob().driver(0)
        facts = msgspec.structs.replace(driver.facts(0, results), operators=(layout_of(2),))
        with pytest.raises(InvariantError):
            plan_commit(driver.state, facts, driver.job.policy, "t")

    def test_two_operators_with_one_uid_are_refused(self) -> None:
        driver = ChainJob().driver(0)
        facts = msgspec.structs.replace(driver.facts(0, two()), operators=(layout_of(2), layout_of(2)))
        with pytest.raises(InvalidRequestError, match="one uid"):
            plan_commit(driver.state, facts, driver.job.policy, "t")

    @pytest.mark.parametrize(
        "fields", [{"time_ms": 0}, {"watermark_ms": 4}, {"watermark_ms": None}, {"batch": 0}, {"batch": 2}]
    )
    def test_time_watermark_and_batch_go_on_from_the_base(self, fields: dict[str, int | None]) -> None:
        driver = ChainJob().driver(0)

        def facts(batch: int) -> BatchFacts:
            return msgspec.structs.replace(driver.facts(batch, two()), watermark_ms=5)

        first = plan_commit(driver.state, facts(0), driver.job.policy, "t1")
        driver.chain.append(first)
        driver.state = driver.state.after(first.stored, driver.job.policy, first.carried_over)
        plan_commit(driver.state, facts(1), driver.job.policy, "t2")
        with pytest.raises(InvariantError):
            plan_commit(driver.state, msgspec.structs.replace(facts(1), **fields), driver.job.policy, "t2")

    def test_time_never_goes_back(self) -> None:
        driver = ChainJob().driver(0)
        commit = driver.commit(0).commit
        assert entry_time(None, 5) == 5
        assert entry_time(commit, 5) == commit.time_ms
        assert entry_time(commit, commit.time_ms + 1) == commit.time_ms + 1

    def test_a_state_goes_on_only_with_its_own_next_commit(self) -> None:
        job = ChainJob()
        driver = job.driver(0)
        state, plan = driver.state, driver.commit(0)
        with pytest.raises(InvariantError):
            driver.state.after(plan.stored, job.policy, plan.carried_over)
        assert state.after(plan.stored, job.policy, plan.carried_over) == driver.state
        assert state.slot == plan.commit.seq
        assert plan.commit.link == Link(2, plan.commit.token)
