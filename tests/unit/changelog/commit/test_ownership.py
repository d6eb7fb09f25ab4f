"""The chain over a memory store: what the I/O around the decisions must get right."""

from __future__ import annotations

import tracemalloc

import pytest

from tests.jobs.chain_job import MAX_PARALLELISM, OPERATOR, ChainJob, CountingTokens, results_of
from tests.stores.manual_clock import ManualClock
from varvite.changelog.chain.reader import ChainReader
from varvite.changelog.chain.retention_bounds import Retained
from varvite.changelog.chain.view import LineView
from varvite.changelog.commit.base_decision import Adopt, Execute, SinkCommit
from varvite.changelog.commit.ownership import OWNER_CHECK_AFTER_S, TAKE_OVER_TRIES, ChainOwner
from varvite.changelog.commit.state import CommitPolicy
from varvite.changelog.retention.collector import Collector
from varvite.storage.errors import (
    CorruptDataError,
    DidNotHappenError,
    FencedError,
    GapError,
    IncompatibleError,
    InvalidRequestError,
    InvariantError,
    LineageError,
    MayHaveHappenedError,
    MissingObjectError,
    RewindError,
)
from varvite.storage.format import layout
from varvite.storage.format.records import ORIGIN, Fence, Link, encode_entry
from varvite.storage.job.record import open_or_create_job, read_job
from varvite.storage.object_stores.contract import ObjectMeta
from varvite.storage.object_stores.memory import MemoryStore


class InterruptedStore(MemoryStore):
    """A memory store that runs something of somebody else's before or instead of its next operations."""

    def __init__(self) -> None:
        super().__init__()
        self.before_put: list[object] = []
        self.before_list: list[object] = []
        self.lose_replies = False

    def put_if_absent(self, name: str, data: bytes) -> bool:
        _run(self.before_put)
        done = super().put_if_absent(name, data)
        if self.lose_replies:
            raise MayHaveHappenedError("no reply", object_name=name)
        return done

    def list(self, prefix: str, *, start_after: str = "") -> list[ObjectMeta]:
        _run(self.before_list)
        return list(super().list(prefix, start_after=start_after))


def _run(actions: list[object]) -> None:
    if actions:
        action = actions.pop(0)
        if callable(action):
            action()


class TestTakingOver:
    def test_a_new_run_fences_the_slot_that_the_old_one_must_take_next(self) -> None:
        job = ChainJob()
        old = job.driver(0)
        old.commit(0)
        new = job.driver(1)
        assert (new.chain.fence.seq, new.chain.fence.parent.seq) == (3, 2)
        with pytest.raises(FencedError, match="run 3") as caught:
            old.commit(1)
        assert caught.value.context == {"epoch": 1, "object_name": layout.chain(3)}
        assert new.commit(1).commit.seq == 4

    def test_a_slot_that_something_else_has_taken_says_what_to_do(self) -> None:
        """It said "object has only 4 bytes", as of any object."""
        job = ChainJob()
        driver = job.driver(0)
        driver.commit(0)
        job.store.put(layout.chain(3), b"junk")
        with pytest.raises(CorruptDataError, match=r"no entry.*verify JOB --repair.*only 4 bytes") as caught:
            driver.commit(1)
        assert caught.value.context == {"epoch": 1, "object_name": layout.chain(3)}

    def test_losing_the_slot_means_listing_again(self) -> None:
        store = InterruptedStore()
        job = ChainJob(store=store)
        old = job.driver(0)
        store.before_put = [lambda: old.commit(0)]
        assert job.driver().chain.fence.seq == 3

    def test_a_fence_in_the_hole_of_a_collected_commit_does_not_own(self) -> None:
        """LIST; then the old run commits on and a collector deletes; then the claim succeeds below the head."""
        store = InterruptedStore()
        job = ChainJob(CommitPolicy(full_every=1), store=store)
        old = job.driver(0)

        def go_on() -> None:
            for n in range(4):
                old.commit(n, results_of([b"", b""]))
            store.delete([layout.chain(2), layout.chain(3)])

        store.before_put = [go_on]
        new = job.driver(4)
        assert (new.chain.fence.seq, new.chain.fence.commit.seq) == (6, 5)
        assert isinstance(job.reader.read(2).entry, Fence)
        with pytest.raises(FencedError):
            old.commit(4)

    def test_a_run_that_is_overtaken_while_starting_gives_up(self) -> None:
        store = InterruptedStore()
        job = ChainJob(store=store)
        store.before_list = [None, job.driver]
        with pytest.raises(FencedError, match="newer run"):
            job.driver()

    def test_an_entry_above_that_is_collected_before_it_is_read_does_not_make_an_owner(self) -> None:
        store = InterruptedStore()
        job = ChainJob(CommitPolicy(full_every=1), store=store)
        old = job.driver(0)

        def go_on() -> None:
            for n in range(4):
                old.commit(n, results_of([b""]))
            store.delete([layout.chain(2), layout.chain(3)])

        real, gone = store.list, []

        def list_with_a_ghost(prefix: str, *, start_after: str = "") -> list[ObjectMeta]:
            found = real(prefix, start_after=start_after)
            if start_after == layout.chain(2) and not gone:
                gone.append(True)
                return [ObjectMeta(layout.chain(3), 1, 0.0)]
            return found

        store.before_put = [go_on]
        store.list = list_with_a_ghost  # type: ignore[method-assign]
        assert job.driver().chain.fence.seq == 6
        assert gone

    def test_it_gives_up_in_the_end(self) -> None:
        store = InterruptedStore()
        job = ChainJob(store=store)
        old = job.driver(0)
        batches = iter(range(1000))
        store.before_put = [lambda: old.commit(next(batches)), None] * (2 * TAKE_OVER_TRIES)
        with pytest.raises(DidNotHappenError, match="could not be taken over"):
            job.driver()

    def test_a_lost_reply_is_settled_by_reading_back(self) -> None:
        store = InterruptedStore()
        job = ChainJob(store=store)
        store.lose_replies = True
        driver = job.driver(0)
        assert (driver.chain.fence.seq, driver.commit(0).commit.seq) == (1, 2)

    def test_the_chosen_commit_is_written_into_the_fence(self) -> None:
        job = ChainJob()
        job.driver(0).commit(0)
        assert job.driver(restore=2).chain.fence.restore == 2

    def test_nothing_works_before(self) -> None:
        job = ChainJob()
        with pytest.raises(InvariantError, match="not taken over"):
            ChainOwner(job.reader, MAX_PARALLELISM, job.clock, job.tokens).check_owner()


class TestBase:
    def test_a_restart_goes_on_from_the_newest_commit(self) -> None:
        job = ChainJob()
        driver = job.driver(0)
        for number in range(3):
            driver.commit(number)
        view = driver.state.view
        again = job.driver()
        decision = again.start(3)
        assert isinstance(decision, Execute)
        assert decision.base == driver.state.base
        assert again.state.view == view
        assert again.state.retained == (Retained(3, 2), Retained(4, 2))
        assert again.state.slot == 6

    def test_a_batch_without_acknowledgement_is_executed_on_its_own_base(self) -> None:
        job = ChainJob()
        driver = job.driver(0)
        first = driver.commit(0).commit
        lost = driver.commit(1).commit
        again = job.driver(1)
        assert again.state.base == first
        redone = again.commit(1).commit
        assert (redone.parent, redone.path) == (first.link, ())
        assert not again.state.view.holds(lost.link)
        assert job.driver(2).state.base == redone

    @pytest.mark.parametrize("full_every", [1, 3])
    def test_runs_of_one_batch_let_old_commits_go(self, full_every: int) -> None:
        """A run knew only the commits since its base's full entry, fewer than are retained; nothing ever went."""
        job = ChainJob(CommitPolicy(retained=4, full_every=full_every, path_max=full_every))
        commits = [job.driver(n).commit(n).commit for n in range(12)]
        newest = commits[-1]
        assert newest.retained_from == commits[-4].seq
        assert newest.keep_from == commits[-4].needs_from
        Collector(job.reader, job.clock, job.tokens).collect()
        assert job.driver(12).commit(12).commit.retained_from == commits[-3].seq

    def test_commits_before_that_are_gone_are_not_waited_for(self) -> None:
        """More are retained than were until now: they become as many with time."""
        job = ChainJob(CommitPolicy(full_every=1))
        driver = job.driver(0)
        commits = [driver.commit(n).commit for n in range(6)]
        Collector(job.reader, job.clock, job.tokens).collect()
        job.policy = CommitPolicy(retained=4, full_every=1)
        commits += [job.driver(n).commit(n).commit for n in (6, 7)]
        assert commits[-1].retained_from == commits[4].seq
        commits.append(job.driver(8).commit(8).commit)
        assert commits[-1].retained_from == commits[5].seq

    def test_a_restart_does_not_hold_all_retained_commits_in_memory(self) -> None:
        """With 4096 partitions a commit is 1.8 MB of values: 10,000 retained ones ended the driver at each start."""
        job, query_id = ChainJob(CommitPolicy(retained=200, full_every=1)), "q" * 100_000
        driver = job.driver(0, query_id=query_id)
        for number in range(200):
            driver.commit(number)
        tracemalloc.start()
        again = job.driver(200, query_id=query_id)
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert again.state.retained == driver.state.retained
        assert len(again.state.retained) == 200
        assert peak_bytes < 100 * len(query_id)

    def test_many_restarts_without_a_commit_find_the_newest_one(self) -> None:
        job = ChainJob()
        base = job.driver(0).commit(0).commit
        assert [job.driver(1).state.base for _ in range(3)] == [base] * 3

    def test_an_adopted_commit_is_the_next_base(self) -> None:
        job = ChainJob()
        driver = job.driver(0)
        driver.commit(0)
        second = driver.commit(1).commit
        again = job.driver()
        assert again.start(1, SinkCommit(1, second.seq)) == Adopt(second)
        assert again.commit(2).commit.parent == second.link

    def test_a_new_query_starts_from_a_chosen_commit_with_batch_0(self) -> None:
        job = ChainJob()
        driver = job.driver(0)
        old = [driver.commit(n).commit for n in range(3)]
        new = job.driver(0, restore=old[1].seq, query_id="new")
        first = new.commit(0).commit
        assert (first.parent, first.seq, first.batch) == (old[1].link, 6, 0)
        again = job.driver(0, query_id="new").commit(0).commit
        assert again.parent == old[1].link
        assert job.driver(1, query_id="new").state.base == again

    def test_a_fence_cannot_be_restored(self) -> None:
        job = ChainJob()
        job.driver(0).commit(0)
        with pytest.raises(LineageError, match="explicit restore"):
            job.driver(0, query_id="new")
        for seq in (1, 77):
            with pytest.raises(Exception, match=f"no commit with seq {seq}"):
                job.driver(0, restore=seq, query_id="new")

    def test_errors_tell_the_run(self) -> None:
        job = ChainJob()
        driver = job.driver(0)
        for n in range(2):
            driver.commit(n)
        for batch, error in ((0, RewindError), (3, GapError)):
            with pytest.raises(error) as caught:
                job.driver(batch)
            assert caught.value.context["batch"] == batch
            assert caught.value.context["epoch"] >= 4


class TestAppending:
    def test_a_plan_for_another_slot_or_run_is_refused(self) -> None:
        job = ChainJob()
        driver = job.driver(0)
        plan = driver.commit(0)
        for chain in (driver.chain, job.driver().chain):
            with pytest.raises(InvariantError, match="does not follow"):
                chain.append(plan)

    def test_after_an_unclear_failure_the_run_is_over(self) -> None:
        class Failing(MemoryStore):
            fails = False

            def put_if_absent(self, name: str, data: bytes) -> bool:
                if self.fails:
                    raise MayHaveHappenedError("timeout", object_name=name)
                return super().put_if_absent(name, data)

        store = Failing()
        job = ChainJob(store=store)
        driver = job.driver(0)
        store.fails = True
        with pytest.raises(MayHaveHappenedError):
            driver.commit(0)
        store.fails = False
        with pytest.raises(InvariantError, match="that entry failed"):
            driver.commit(0)
        assert job.driver(0).commit(0).commit.seq == 3

    def test_ownership_is_looked_up_only_after_a_while(self) -> None:
        job = ChainJob()
        driver = job.driver(0)
        driver.commit(0)
        new = job.driver()
        driver.chain.still_owner(driver.sent_s)
        job.clock.advance(OWNER_CHECK_AFTER_S)
        driver.chain.still_owner(driver.sent_s)
        job.clock.advance(0.1)
        with pytest.raises(FencedError, match="run 3"):
            driver.chain.still_owner(driver.sent_s)
        new.chain.check_owner()

    def test_the_time_of_sending_is_before_the_claim(self) -> None:
        clock = ManualClock()

        class Slow(MemoryStore):
            def put_if_absent(self, name: str, data: bytes) -> bool:
                clock.advance(10)
                return super().put_if_absent(name, data)

        job = ChainJob(store=Slow())
        job.clock = clock
        driver = job.driver(0)
        before = clock.monotonic_s()
        driver.commit(0)
        assert driver.sent_s == before


class TestReading:
    def test_the_head_moves_on(self) -> None:
        job = ChainJob()
        assert job.reader.head() is None
        driver = job.driver(0)
        assert job.reader.head() == driver.chain.fence
        commit = driver.commit(0).commit
        assert job.reader.head() == job.reader.head(1) == job.reader.head(2) == commit
        assert job.reader.list_seqs() == (1, 2)
        assert job.reader.list_seqs(1) == (2,)

    def test_kinds_are_told_from_the_first_bytes(self) -> None:
        job = ChainJob()
        job.driver(0).commit(0)
        assert [job.reader.read_kind(seq) for seq in (1, 2)] == ["fence", "commit"]
        job.store.put(layout.chain(3), b"x" * 100)
        with pytest.raises(CorruptDataError):
            job.reader.read_kind(3)

    def test_a_missing_entry_of_the_path_is_named(self) -> None:
        job = ChainJob()
        driver = job.driver(0)
        plans = [driver.commit(n) for n in range(4)]
        job.store.delete([layout.chain(3)])
        with pytest.raises(MissingObjectError) as caught:
            job.reader.load_line(plans[-1].commit.link, MAX_PARALLELISM)
        assert caught.value.context["object_name"] == layout.chain(3)
        assert job.reader.read_all([2, 3]) == (plans[0].commit, None)

    def test_another_entry_where_the_path_points_is_found(self) -> None:
        job = ChainJob()
        driver = job.driver(0)
        link = [driver.commit(n).commit.link for n in range(3)][-1]
        fence = Fence(seq=3, token="f", job_id=job.record.job_id, parent=ORIGIN, keep_from=0, time_ms=0)
        job.store.put(layout.chain(3), encode_entry(fence))
        with pytest.raises(CorruptDataError, match="Fence") as caught:
            job.reader.load_line(link, MAX_PARALLELISM)
        assert caught.value.context["object_name"] == layout.chain(3)

    def test_an_entry_under_a_wrong_name_is_found(self) -> None:
        job = ChainJob()
        job.driver(0).commit(0)
        job.store.put(layout.chain(5), job.store.get(layout.chain(2)))
        with pytest.raises(CorruptDataError, match=layout.chain(2)):
            job.reader.read(5)

    def test_an_entry_of_another_job_is_refused(self) -> None:
        job = ChainJob()
        job.driver(0).commit(0)
        with pytest.raises(LineageError, match=r"job\.json"):
            ChainReader(job.store, "another").read(2)

    def test_the_origin_is_the_empty_view(self) -> None:
        line = ChainJob().reader.load_line(ORIGIN, MAX_PARALLELISM)
        assert line == (LineView(max_parallelism=MAX_PARALLELISM), ())

    def test_a_commit_is_looked_up_by_its_link(self) -> None:
        job = ChainJob()
        commit = job.driver(0).commit(0).commit
        assert job.reader.read_commit(commit.link).commit == commit
        with pytest.raises(CorruptDataError):
            job.reader.read_commit(Link(2, "another token"))


class TestJob:
    def test_a_job_is_created_once(self) -> None:
        job = ChainJob()
        again = open_or_create_job(
            job.store, name="other", max_parallelism=MAX_PARALLELISM, clock=job.clock, tokens=CountingTokens(50)
        )
        assert again == job.record == read_job(job.store)

    def test_the_loser_of_the_race_takes_the_winners(self) -> None:
        store = InterruptedStore()
        winner: list[ChainJob] = []
        store.before_put = [lambda: winner.append(ChainJob(store=store))]
        loser = open_or_create_job(
            store, name="l", max_parallelism=MAX_PARALLELISM, clock=ManualClock(), tokens=CountingTokens(50)
        )
        assert loser == winner[0].record

    def test_other_key_groups_are_refused(self) -> None:
        job = ChainJob()
        with pytest.raises(IncompatibleError, match="8 key groups"):
            open_or_create_job(job.store, name="job", max_parallelism=16, clock=job.clock, tokens=job.tokens)

    @pytest.mark.parametrize("max_parallelism", [0, -1, 32769])
    def test_key_groups_have_bounds(self, max_parallelism: int) -> None:
        with pytest.raises(InvalidRequestError):
            open_or_create_job(
                MemoryStore(), name="j", max_parallelism=max_parallelism, clock=ManualClock(), tokens=CountingTokens()
            )

    def test_without_a_job_there_is_nothing_to_read(self) -> None:
        with pytest.raises(MissingObjectError):
            read_job(MemoryStore())


def test_operators_of_the_view_are_those_of_the_commit() -> None:
    driver = ChainJob().driver(0)
    driver.commit(0)
    assert {t.operator for t in driver.state.view.tiles} == {OPERATOR}
