"""The uploader: limits, retries, hedges, and failures that stay with their own object."""

from __future__ import annotations

import threading
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING

import pytest

from tests.stores.manual_clock import ManualClock
from tests.stores.scripted import ScriptedStore
from tests.workers.state_worker_setup import eventually
from varvite.storage.clock import SystemClock
from varvite.storage.errors import DidNotHappenError, InvalidRequestError, MayHaveHappenedError, RetryableError
from varvite.storage.object_stores.backoff import Backoff
from varvite.storage.transfer import byte_budget
from varvite.storage.transfer.byte_budget import ByteBudget
from varvite.storage.transfer.upload import Uploader, UploadOutcome, UploadPolicy, UploadResources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

QUICK = Backoff(attempts=3, initial_s=0.001, maximum_s=0.002)


def policy(**changed: object) -> UploadPolicy:
    """Short times; the real clock is used, as threads wait for each other."""
    return UploadPolicy(**{"hedge_after_s": 30.0, "deadline_s": 30.0, "backoff": QUICK, **changed})  # type: ignore[arg-type]


@pytest.fixture
def store() -> ScriptedStore:
    return ScriptedStore()


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Holds puts until it is set; set at the end in any case, so that no thread is left."""
    event = threading.Event()
    yield event
    event.set()


def failing(error: Exception) -> Callable[..., None]:
    def step(*_: object) -> None:
        raise error

    return step


def waiting(gate: threading.Event) -> Callable[[], None]:
    def step() -> None:
        assert gate.wait(20)

    return step


def test_bytes_and_files_are_uploaded(store: ScriptedStore, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"from a file")
    with Uploader(store, SystemClock(), policy()) as uploader:
        done = [uploader.submit_bytes(f"seg/{n}", b"%d" % n) for n in range(50)]
        done.append(uploader.submit_file("snapdata/1", tmp_path / "file"))
        assert [future.result(60) for future in done] == [None] * 51
    assert [store.get(f"seg/{n}") for n in range(50)] == [b"%d" % n for n in range(50)]
    assert store.get("snapdata/1") == b"from a file"


def test_passing_failures_are_repeated(store: ScriptedStore) -> None:
    store.script["put"].extend([failing(DidNotHappenError("busy")), failing(MayHaveHappenedError("lost"))])
    with Uploader(store, SystemClock(), policy()) as uploader:
        assert uploader.submit_bytes("a", b"x").result(60) is None
    assert store.calls == ["put"] * 3


def test_what_trying_again_cannot_cure_fails_at_once(store: ScriptedStore) -> None:
    store.script["put"].append(failing(InvalidRequestError("no permission")))
    with Uploader(store, SystemClock(), policy()) as uploader, pytest.raises(InvalidRequestError, match="permission"):
        uploader.submit_bytes("a", b"x").result(60)
    assert store.calls == ["put"]


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ([DidNotHappenError("1"), DidNotHappenError("2"), DidNotHappenError("3")], DidNotHappenError),
        ([DidNotHappenError("1"), DidNotHappenError("2"), MayHaveHappenedError("3")], MayHaveHappenedError),
        ([MayHaveHappenedError("1"), DidNotHappenError("2"), DidNotHappenError("3")], MayHaveHappenedError),
    ],
)
def test_exhausted_attempts_say_what_is_known(
    store: ScriptedStore, errors: list[Exception], expected: type[RetryableError]
) -> None:
    store.script["put"].extend([failing(error) for error in errors])
    with Uploader(store, SystemClock(), policy()) as uploader, pytest.raises(expected) as raised:
        uploader.submit_bytes("a", b"x").result(60)
    assert raised.value.context["object_name"] == "a"
    assert store.calls == ["put"] * 3


def test_a_failed_upload_fails_only_its_own_future(store: ScriptedStore) -> None:
    store.script["put"].append(failing(InvalidRequestError("no permission")))
    with Uploader(store, SystemClock(), policy(uploads=1)) as uploader:
        bad, good = uploader.submit_bytes("bad", b"x"), uploader.submit_bytes("good", b"y")
        assert isinstance(bad.exception(10), InvalidRequestError)
        assert good.result(60) is None
        assert uploader.submit_bytes("later", b"z").result(60) is None


def test_a_slow_attempt_is_joined_by_a_second_one(store: ScriptedStore, gate: threading.Event) -> None:
    store.script["put"].append(waiting(gate))
    with Uploader(store, SystemClock(), policy(hedge_after_s=0.05)) as uploader:
        assert uploader.submit_bytes("a", b"x").result(60) is None
        assert not gate.is_set()
        assert store.get("a") == b"x"


def test_at_most_two_attempts_run_at_once(store: ScriptedStore, gate: threading.Event) -> None:
    store.script["put"].extend([waiting(gate)] * 5)
    with Uploader(store, SystemClock(), policy(hedge_after_s=0.02)) as uploader:
        future = uploader.submit_bytes("a", b"x")
        assert eventually(lambda: len(store.calls) >= 2, 60)
        wait([future], timeout=0.3)
        assert store.calls == ["put", "put"]
        gate.set()
        assert future.result(60) is None


def test_the_deadline_ends_an_upload_whose_outcome_is_unknown(store: ScriptedStore, gate: threading.Event) -> None:
    store.script["put"].extend([waiting(gate)] * 2)
    clock = ManualClock()
    with Uploader(store, clock, policy(uploads=2, hedge_after_s=0.02)) as uploader:
        hangs = uploader.submit_bytes("a", b"x")
        assert eventually(lambda: len(store.calls) == 2, 20)
        clock.advance(31)
        with pytest.raises(MayHaveHappenedError, match="not confirmed"):
            hangs.result(60)
        assert uploader.submit_bytes("b", b"y").result(60) is None


def test_submitting_blocks_while_too_many_bytes_are_in_flight(store: ScriptedStore, gate: threading.Event) -> None:
    store.script["put"].append(waiting(gate))
    submitted: list[Future[None]] = []
    with Uploader(store, SystemClock(), policy(in_flight_bytes=100)) as uploader:
        first = uploader.submit_bytes("a", b"x" * 60)
        second = threading.Thread(target=lambda: submitted.append(uploader.submit_bytes("b", b"y" * 60)))
        second.start()
        second.join(0.2)
        assert second.is_alive()
        gate.set()
        second.join(60)
        assert [first.result(60), submitted[0].result(60)] == [None, None]


def test_bytes_stay_in_flight_until_a_late_attempt_lets_go_of_them(store: ScriptedStore, gate: threading.Event) -> None:
    """The upload is done, but its first attempt still holds the data: the next one goes alone, others wait for it."""
    alone = threading.Event()
    store.script["put"].extend([waiting(gate), lambda: None, waiting(alone), waiting(alone)])
    room = UploadResources(policy(in_flight_bytes=100))
    with Uploader(store, SystemClock(), policy(hedge_after_s=0.05), resources=room) as uploader:
        uploader.submit_bytes("a", b"x" * 60).result(60)
        assert (room.budget.taken_bytes, room.budget.given_up_bytes) == (0, 60)
        second = uploader.submit_bytes("b", b"y" * 60)
        third = threading.Thread(target=lambda: uploader.submit_bytes("c", b"z").result(60))
        third.start()
        third.join(0.2)
        assert third.is_alive()
        alone.set()
        assert second.result(60) is None
        third.join(60)
        assert not third.is_alive()
        gate.set()
        assert eventually(lambda: room.budget.given_up_bytes == 0, 20)
    assert room.budget.taken_bytes == 0
    room.close()


def test_what_an_earlier_uploader_has_left_behind_counts_for_the_next(
    store: ScriptedStore, gate: threading.Event
) -> None:
    """A state worker makes an uploader for each attempt of a batch."""
    limits = policy(in_flight_bytes=100, uploads=2, hedge_after_s=0.02)
    room, clock = UploadResources(limits), ManualClock()
    store.script["put"].extend([waiting(gate)] * 2)
    first = Uploader(store, clock, limits, resources=room)
    lost = first.submit_bytes("a", b"x" * 80)
    assert eventually(lambda: len(store.calls) == 2, 20)
    first.abandon()
    assert isinstance(lost.exception(20), MayHaveHappenedError)
    assert (room.budget.taken_bytes, room.budget.given_up_bytes) == (0, 80)
    with Uploader(store, clock, limits, resources=room) as second:
        assert second.submit_bytes("b", b"y" * 80).result(60) is None
        assert eventually(lambda: room.budget.taken_bytes == 0, 20)
    assert room.budget.given_up_bytes == 80
    gate.set()
    assert eventually(lambda: room.budget.given_up_bytes == 0, 20)
    room.close()


def test_a_cancelled_upload_gives_its_bytes_back(store: ScriptedStore, gate: threading.Event) -> None:
    store.script["put"].append(waiting(gate))
    with Uploader(store, SystemClock(), policy(uploads=1, in_flight_bytes=100)) as uploader:
        uploader.submit_bytes("a", b"x" * 40)
        assert uploader.submit_bytes("b", b"y" * 60).cancel()
        third = threading.Thread(target=lambda: uploader.submit_bytes("c", b"z" * 60))
        third.start()
        third.join(60)
        assert not third.is_alive()
        gate.set()


def test_an_object_above_the_limit_goes_alone(store: ScriptedStore) -> None:
    with Uploader(store, SystemClock(), policy(in_flight_bytes=10)) as uploader:
        done = [uploader.submit_bytes(f"seg/{n}", b"x" * 100) for n in range(3)]
        assert [future.result(60) for future in done] == [None] * 3


def test_close_finishes_what_was_submitted_and_refuses_more(store: ScriptedStore) -> None:
    uploader = Uploader(store, SystemClock(), policy(uploads=1))
    done = [uploader.submit_bytes(f"seg/{n}", b"x") for n in range(20)]
    uploader.close()
    uploader.close()
    assert all(future.done() and future.exception() is None for future in done)
    with pytest.raises(InvalidRequestError, match="closed"):
        uploader.submit_bytes("late", b"x")


def test_a_machine_without_threads_left_is_no_closed_uploader_and_holds_no_bytes(
    store: ScriptedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = UploadResources(policy(in_flight_bytes=100))
    with Uploader(store, SystemClock(), policy(uploads=1), resources=room) as uploader:
        with monkeypatch.context() as limited:
            limited.setattr(threading.Thread, "start", failing(RuntimeError("can't start new thread")))
            with pytest.raises(DidNotHappenError, match="no thread can be started"):
                uploader.submit_bytes("a", b"x" * 60)
        uploader.submit_bytes("b", b"y" * 60).result(60)
    assert [meta.name for meta in store.list("")] == ["b"]
    assert (room.budget.taken_bytes, room.budget.given_up_bytes) == (0, 0)
    room.close()


def test_a_missing_file_is_refused_by_the_call_itself(store: ScriptedStore, tmp_path: Path) -> None:
    with Uploader(store, SystemClock(), policy()) as uploader, pytest.raises(InvalidRequestError, match="not a file"):
        uploader.submit_file("a", tmp_path / "none")


@pytest.mark.parametrize("wrong", [{"uploads": 0}, {"in_flight_bytes": 0}, {"hedge_after_s": 0}, {"deadline_s": 0}])
def test_limits_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError):
        policy(**wrong)


def test_a_byte_budget_serves_first_come_first(gate: threading.Event) -> None:
    """A large amount waits, and a small one that would fit does not overtake it."""
    budget, order = ByteBudget(100), list[str]()
    budget.take(60)

    def take(name: str, size_bytes: int) -> None:
        budget.take(size_bytes)
        order.append(name)

    large = threading.Thread(target=take, args=("large", 90))
    large.start()
    large.join(0.1)
    small = threading.Thread(target=take, args=("small", 10))
    small.start()
    small.join(0.1)
    assert order == []
    budget.give_back(60)
    large.join(60)
    small.join(60)
    assert order == ["large", "small"]
    assert budget.taken_bytes == 100


def test_an_upload_whose_shared_room_is_closed_is_given_up(store: ScriptedStore, gate: threading.Event) -> None:
    room = UploadResources(policy())
    room.threads.limit = 1
    store.script["put"].append(waiting(gate))
    with Uploader(store, SystemClock(), policy(), resources=room) as uploader:
        running = uploader.submit_bytes("a", b"x")
        assert eventually(lambda: store.calls == ["put"], 20)
        waits = uploader.submit_bytes("b", b"y")
        assert eventually(lambda: len(room.threads._waiting) == 1, 20)
        room.close()
        assert isinstance(waits.exception(20), MayHaveHappenedError)
        gate.set()
        assert running.result(60) is None


def test_given_up_bytes_count_and_one_amount_goes_beside_them() -> None:
    budget = ByteBudget(100)
    assert budget.take(60)
    budget.give_up(60)
    assert budget.take(40), "all of it fits"
    assert not budget.take(1, 0.01)
    budget.give_back(40)
    assert budget.take(90), "it goes alone"
    assert not budget.take(1, 0.01)
    budget.give_back(60, given_up=True)
    assert budget.take(10)
    assert (budget.taken_bytes, budget.given_up_bytes) == (100, 0)


def test_so_many_amounts_may_hang_and_then_what_does_not_fit_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a storage that never answers would take all memory; one that answers late stops nothing before that."""
    monkeypatch.setattr(byte_budget, "GIVEN_UP_MAX", 3)
    budget = ByteBudget(100)
    for _ in range(3):
        assert budget.take(50, 0.01)
        budget.give_up(50)
    assert not budget.take(50, 0.01)
    budget.give_back(50, given_up=True)
    assert budget.take(50, 0.01)


def test_a_byte_budget_can_be_resized() -> None:
    budget = ByteBudget(100)
    assert budget.take(80)
    assert not budget.take(50, 0.01)
    budget.resize(130)
    assert budget.take(50, 0.01)
    budget.resize(100)
    budget.give_back(50)
    assert not budget.take(50, 0.01)


def test_abandoned_uploads_end_at_once_and_their_futures_fail(store: ScriptedStore, gate: threading.Event) -> None:
    begun = threading.Event()
    store.script["put"].append(lambda: (begun.set(), waiting(gate)())[1])
    uploader = Uploader(store, SystemClock(), policy(uploads=1))
    running, queued = uploader.submit_bytes("running", b"x"), uploader.submit_bytes("queued", b"y")
    assert begun.wait(20)
    uploader.abandon()
    assert isinstance(running.exception(0), MayHaveHappenedError)
    assert queued.cancelled()
    with pytest.raises(InvalidRequestError, match="closed"):
        uploader.submit_bytes("later", b"z")
    uploader.abandon()
    uploader.close()
    assert store.calls == ["put"]


def test_what_is_done_stays_done_when_the_rest_is_abandoned(store: ScriptedStore) -> None:
    uploader = Uploader(store, SystemClock(), policy())
    done = uploader.submit_bytes("done", b"x")
    done.result(60)
    uploader.abandon()
    assert done.result(0) is None
    assert store.get("done") == b"x"


class Heard:
    """Keeps what an uploader tells its observer."""

    def __init__(self) -> None:
        self.queued_bytes: list[int] = []
        self.ends: list[UploadOutcome] = []

    def queued(self, size_bytes: int) -> None:
        self.queued_bytes.append(size_bytes)

    def ended(self, end: UploadOutcome) -> None:
        self.ends.append(end)


def test_an_observer_hears_of_every_upload_once(store: ScriptedStore) -> None:
    heard = Heard()
    passes, fails = (lambda: None), failing(DidNotHappenError("no"))
    store.script["put"].extend([passes, fails, passes, fails, fails, fails])
    with Uploader(store, SystemClock(), policy(uploads=1), heard) as uploader:
        for name in ("good", "flaky", "lost"):
            wait([uploader.submit_bytes(name, name.encode())])
    assert heard.queued_bytes == [4, 5, 4]
    ends = [(end.size_bytes, end.succeeded, end.attempt, end.started) for end in heard.ends]
    assert ends == [(4, True, 1, 1), (5, True, 2, 2), (4, False, 0, 3)]
    assert all(end.latency_s >= 0 for end in heard.ends)
    with pytest.raises(InvalidRequestError):
        uploader.submit_bytes("late", b"x")
    assert len(heard.ends) == 3


def test_an_observer_hears_of_a_hedge(store: ScriptedStore, gate: threading.Event) -> None:
    heard = Heard()
    store.script["put"].append(waiting(gate))
    uploader = Uploader(store, SystemClock(), policy(hedge_after_s=0.05), heard)
    uploader.submit_bytes("slow", b"x").result(60)
    gate.set()
    uploader.close()
    assert [(end.succeeded, end.attempt, end.started) for end in heard.ends] == [(True, 2, 2)]


def test_submitting_fails_at_the_deadline_if_nothing_in_flight_is_done(
    store: ScriptedStore, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A storage that hangs for ever must not hang the job, nor take ever more memory."""
    monkeypatch.setattr(byte_budget, "GIVEN_UP_MAX", 1)
    store.script["put"].extend([waiting(gate)] * 2)
    limits = policy(in_flight_bytes=100, hedge_after_s=0.02, deadline_s=1.0)
    with Uploader(store, SystemClock(), limits) as uploader:
        lost = uploader.submit_bytes("a", b"x" * 60)
        with pytest.raises(DidNotHappenError, match="and none was done within") as raised:
            uploader.submit_bytes("b", b"y" * 60)
        assert raised.value.context["object_name"] == "b"
        assert isinstance(lost.exception(10), MayHaveHappenedError)
        gate.set()


def test_the_deadline_counts_from_the_call(store: ScriptedStore, gate: threading.Event) -> None:
    """An upload that waits behind others that hang is late, too, and is never begun."""
    store.script["put"].extend([waiting(gate)] * 2)
    clock = ManualClock()
    with Uploader(store, clock, policy(uploads=1, hedge_after_s=0.02)) as uploader:
        futures = [uploader.submit_bytes(name, b"x") for name in "abc"]
        clock.advance(31)
        assert [type(future.exception(20)) for future in futures] == [MayHaveHappenedError] * 3
        assert len(store.calls) <= 2, "the attempts of the first one"
        gate.set()


def test_a_byte_budget_gives_up_after_a_time() -> None:
    budget = ByteBudget(100)
    assert budget.take(100)
    assert not budget.take(1, 0.01)
    budget.give_back(100)
    assert budget.take(1, 0.01)
    assert budget.taken_bytes == 1
