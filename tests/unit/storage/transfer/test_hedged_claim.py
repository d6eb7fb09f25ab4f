"""A claim of which one request hangs is settled by a second one, and the late one changes nothing."""

from __future__ import annotations

import threading
from concurrent.futures import wait
from typing import TYPE_CHECKING, Any, Never

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.jobs.committing_job import POLICY, CommittingJob
from tests.jobs.materializer_world import IDLE
from tests.stores.hanging import HangingStore
from tests.stores.manual_clock import ManualClock
from tests.workers.state_worker_setup import eventually
from varvite.changelog.commit.run import JobRun
from varvite.changelog.retention.collector import Collector
from varvite.storage.clock import SystemClock, SystemTokens
from varvite.storage.errors import (
    DidNotHappenError,
    FencedError,
    InvalidRequestError,
    MayHaveHappenedError,
    RetryableError,
)
from varvite.storage.format import layout
from varvite.storage.format.records import Commit, Fence, decode_entry
from varvite.storage.object_stores.backoff import Backoff
from varvite.storage.object_stores.prefixed import PrefixedStore
from varvite.storage.transfer import hedged_claim
from varvite.storage.transfer.claim import Claim
from varvite.storage.transfer.hedged_claim import HEDGE_MAX_S, HEDGE_MIN_S, HedgedClaims, hedge_after_s, is_hedged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NAME = layout.chain(5)
MINE, OTHER = "a" * 32, "b" * 32
BODY, OTHER_BODY = b"entry " + MINE.encode(), b"entry " + OTHER.encode()
WON = Claim(won=True, body=None)
LOST = Claim(won=False, body=OTHER_BODY)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second request follows at once."""
    monkeypatch.setattr(hedged_claim, "HEDGE_MIN_S", 0.05)
    monkeypatch.setattr(hedged_claim, "HEDGE_MAX_S", 0.05)


@pytest.fixture
def store() -> Iterator[HangingStore]:
    made = HangingStore()
    yield made
    made.gate.set()


@pytest.fixture
def claims(store: HangingStore, soon: None) -> Iterator[HedgedClaims]:
    made = HedgedClaims(store, SystemClock(), Backoff(3, 0.001, 0.002))
    yield made
    made.close()


def failing(error: Exception, first: Callable[[], object] = lambda: None) -> Callable[[], Never]:
    def step() -> Never:
        first()
        raise error

    return step


def test_a_claim_that_is_answered_is_one_request(store: HangingStore, claims: HedgedClaims) -> None:
    assert claims.claim(NAME, BODY, MINE) == WON
    assert store.calls == [NAME]
    assert claims.claim(NAME, OTHER_BODY, OTHER) == Claim(won=False, body=BODY)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_request_that_hangs_is_joined_by_one_that_is_answered(
    store: HangingStore, claims: HedgedClaims, when: Any
) -> None:
    store.hang_next(when)
    assert claims.claim(NAME, BODY, MINE) == WON
    assert not store.gate.is_set()
    assert len(store.calls) == 2
    store.let_arrive()
    assert store.get(NAME) == BODY


def test_who_hangs_and_loses_hears_of_it_from_the_second_request(store: HangingStore, claims: HedgedClaims) -> None:
    store.put(NAME, OTHER_BODY)
    store.hang_next("before")
    assert claims.claim(NAME, BODY, MINE) == LOST
    store.let_arrive()
    assert store.get(NAME) == OTHER_BODY


def test_another_writer_between_the_two_requests_wins(store: HangingStore, claims: HedgedClaims) -> None:
    store.hang_next("before")
    store.on_call[2] = lambda: store.put(NAME, OTHER_BODY)
    assert claims.claim(NAME, BODY, MINE) == LOST


def test_the_first_request_decides_if_its_answer_comes_first(store: HangingStore, claims: HedgedClaims) -> None:
    second = threading.Event()
    store.on_call[1] = lambda: second.wait(60)
    store.on_call[2] = lambda: (second.set(), store.gate.wait(60))
    assert claims.claim(NAME, BODY, MINE) == WON
    assert len(store.calls) == 2


def test_what_is_settled_is_not_sent_again(store: HangingStore, claims: HedgedClaims) -> None:
    """The late request fails without having been told so: it neither reads nor sends once more."""
    gone = threading.Event()
    store.on_call[1] = failing(MayHaveHappenedError("timed out"), lambda: (store.gate.wait(60), gone.set()))
    assert claims.claim(NAME, BODY, MINE) == WON
    store.delete([NAME])
    store.gate.set()
    assert gone.wait(60)
    assert eventually(lambda: claims._threads.lost == 0, 20)
    assert store.list("") == []
    assert len(store.calls) == 2


def test_an_error_counts_only_when_no_other_request_is_left(store: HangingStore, claims: HedgedClaims) -> None:
    store.hang_next("before")
    store.on_call[2] = failing(InvalidRequestError("no permission any more"), store.gate.set)
    assert claims.claim(NAME, BODY, MINE) == WON


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (DidNotHappenError("1"), DidNotHappenError("2"), DidNotHappenError),
        (MayHaveHappenedError("1"), DidNotHappenError("2"), MayHaveHappenedError),
        (DidNotHappenError("1"), MayHaveHappenedError("2"), MayHaveHappenedError),
        (MayHaveHappenedError("1"), InvalidRequestError("2"), InvalidRequestError),
        (InvalidRequestError("1"), MayHaveHappenedError("2"), InvalidRequestError),
    ],
)
def test_what_is_told_if_neither_settles_it(
    store: HangingStore, soon: None, first: Exception, second: Exception, told: type[Exception]
) -> None:
    claims = HedgedClaims(store, SystemClock(), Backoff(1, 0.0, 0.0))
    store.on_call[1] = failing(first, lambda: store.gate.wait(60))
    store.on_call[2] = failing(second, store.gate.set)
    with pytest.raises(told) as raised:
        claims.claim(NAME, BODY, MINE)
    assert type(raised.value) is told
    assert len(store.calls) == 2
    claims.close()


def test_a_claim_that_fails_at_once_is_not_sent_by_another(store: HangingStore, claims: HedgedClaims) -> None:
    store.on_call[1] = failing(InvalidRequestError("no permission"))
    with pytest.raises(InvalidRequestError, match="no permission"):
        claims.claim(NAME, BODY, MINE)
    assert store.calls == [NAME]


def test_a_storage_that_refuses_does_answer(
    store: HangingStore, claims: HedgedClaims, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy server is not asked twice as often: only silence makes a second request."""
    senders: set[int] = set()
    refused = threading.Semaphore(0)

    def busy() -> Never:
        senders.add(threading.get_ident())
        refused.release()
        raise DidNotHappenError("busy")

    def waits_for_an_answer(running: Any, *_deadline: Any, **_more: Any) -> Any:
        """One more refusal comes in each time that the claim waits; then it is settled, however long that takes."""
        while not (refused.acquire(timeout=0.01) or any(future.done() for future in running)):
            pass
        return wait(running, 0)

    store.on_call |= {1: busy, 2: busy}
    monkeypatch.setattr(hedged_claim, "wait", waits_for_an_answer)
    assert claims.claim(NAME, BODY, MINE) == WON
    assert len(store.calls) == 3
    assert len(senders) == 1


def test_so_many_may_hang_and_no_more(
    store: HangingStore, claims: HedgedClaims, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hedged_claim, "HUNG_MAX", 2)
    for seq in (1, 2):
        store.hang_next("before")
        claims.claim(layout.chain(seq), BODY, MINE)
    assert claims._threads.lost == 2
    store.hang_next("before")
    third = threading.Thread(target=lambda: claims.claim(layout.chain(3), BODY, MINE))
    third.start()
    while not store.calls.count(layout.chain(3)):
        third.join(0.01)
    third.join(0.3)
    assert third.is_alive()
    assert store.calls.count(layout.chain(3)) == 1
    store.let_arrive(3)
    third.join(60)
    assert not third.is_alive()


def test_a_claim_of_a_closed_run_says_so(store: HangingStore, claims: HedgedClaims) -> None:
    claims.close()
    with pytest.raises(RetryableError, match="closed"):
        claims.claim(NAME, BODY, MINE)
    assert store.calls == []


# --- when -------------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 100), max_size=60))
def test_the_delay_is_bounded(latencies_s: list[float]) -> None:
    found = hedge_after_s(latencies_s)
    assert HEDGE_MIN_S <= found <= HEDGE_MAX_S
    assert found == hedge_after_s(sorted(latencies_s, reverse=True))


@pytest.mark.parametrize(
    ("latencies_s", "after_s"),
    [
        ([], HEDGE_MAX_S),
        ([0.02] * 50, HEDGE_MIN_S),
        ([0.4], 1.2),
        ([0.4] * 9 + [9.0], 1.2),
        ([0.4] * 8 + [0.8] * 2, 2.4),
        ([5.0] * 10, HEDGE_MAX_S),
    ],
)
def test_the_delay_is_three_times_what_most_claims_took(latencies_s: list[float], after_s: float) -> None:
    assert hedge_after_s(latencies_s) == pytest.approx(after_s)


def test_what_hangs_does_not_count_but_what_answers_instead(store: HangingStore, soon: None) -> None:
    clock = ManualClock()
    claims = HedgedClaims(store, clock)
    store.on_call = {1: lambda: (clock.advance(100.0), store.gate.wait(60)), 2: lambda: clock.advance(0.3)}
    assert claims.claim(NAME, BODY, MINE) == WON
    assert list(claims._latencies_s) == [pytest.approx(0.3)]
    claims.close()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("s3://bucket/root/job", True),
        ("s3a://bucket/job", True),
        ("file:///data/job", False),
        ("memory://name/job", False),
        ("gs://bucket/job", False),
    ],
)
def test_only_a_store_in_which_a_put_is_one_step_is_asked_twice(url: str, *, expected: bool) -> None:
    assert is_hedged(url) is expected


# --- commits ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def job(store: HangingStore, soon: None) -> Iterator[CommittingJob]:
    made = CommittingJob(PrefixedStore(store, "job"), ManualClock())
    made.start()
    yield made
    store.gate.set()
    made.close()


def entry_at(job: CommittingJob, seq: int) -> Commit | Fence:
    return decode_entry(job.store.get(layout.chain(seq)), layout.chain(seq))[0]


def last_seq(job: CommittingJob) -> int:
    assert job.run is not None
    return job.run.state.last_seq


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_batch_is_acknowledged_although_its_request_hangs(job: CommittingJob, store: HangingStore, when: Any) -> None:
    for _ in range(4):
        store.hang_next(when)
        commit = job.commit(IDLE)
        assert not store.gate.is_set()
        assert entry_at(job, commit.seq) == commit
    before = {meta.name: store.get(meta.name) for meta in store.list("")}
    store.let_arrive(4)
    assert {meta.name: store.get(meta.name) for meta in store.list("")} == before
    job.commit(IDLE)
    job.start()
    assert job.batch == 5


def test_a_fenced_driver_stays_fenced_when_its_second_request_loses(job: CommittingJob, store: HangingStore) -> None:
    """I6: the late request finds the fence, which stays."""
    job.commit(IDLE)
    newer = CommittingJob(job.store, job.clock, models=job.models, batch=job.batch)
    newer.start()
    store.hang_next("before")
    with pytest.raises(FencedError):
        job.commit(IDLE)
    assert not store.gate.is_set()
    committed = newer.commit(IDLE)
    store.let_arrive()
    assert isinstance(entry_at(newer, committed.seq - 1), Fence)
    assert entry_at(newer, committed.seq) == committed
    newer.commit(IDLE)
    newer.close()


def test_a_late_request_whose_entry_was_collected_leaves_what_the_next_collector_deletes(
    job: CommittingJob, store: HangingStore
) -> None:
    """I7: it is a copy below the head, on nobody's way."""
    store.hang_next("before")
    late = job.commit(IDLE)
    for _ in range(3 * POLICY.full_every):
        job.commit(IDLE)
    assert job.run is not None
    collector = Collector(job.run.reader, SystemClock(), SystemTokens())
    collector.collect()
    assert late.seq not in job.run.reader.list_seqs()
    store.let_arrive()
    assert entry_at(job, late.seq) == late, "the copy"
    head = last_seq(job)
    job.commit(IDLE)
    assert last_seq(job) == head + 1
    job.start()
    job.commit(IDLE)
    collector.collect()
    assert late.seq not in job.run.reader.list_seqs()
    job.commit(IDLE)


def test_the_owner_looks_again_if_much_time_has_passed_since_the_first_request(
    job: CommittingJob, store: HangingStore
) -> None:
    """COMMIT 4: the second request is answered at once, but the run may have been taken over since the first one."""
    clock = job.clock
    assert isinstance(clock, ManualClock)
    assert job.run is not None
    newer = JobRun(job.store, job.run.record, POLICY, clock, SystemTokens())
    store.hang_next("after")
    store.on_call[len(store.calls) + 2] = lambda: (clock.advance(6), store.on_call.clear(), newer.take_over())
    with pytest.raises(FencedError):
        job.commit(IDLE)
    assert not store.gate.is_set()
    newer.close()
