"""Claiming a name: every outcome of the write is settled by reading back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Never

import pytest

from tests.stores.manual_clock import ManualClock
from tests.stores.scripted import ScriptedStore
from varvite.storage.errors import DidNotHappenError, InvalidRequestError, MayHaveHappenedError
from varvite.storage.object_stores.backoff import Backoff
from varvite.storage.transfer.claim import Claim, claim

if TYPE_CHECKING:
    from collections.abc import Callable

MINE, OTHER = "a" * 32, "b" * 32
BODY, OTHER_BODY = b"entry " + MINE.encode(), b"entry " + OTHER.encode()
WON = Claim(won=True, body=None)


def fail(error: Exception) -> Callable[[], Never]:
    """A step that raises."""

    def step() -> Never:
        raise error

    return step


def unclear() -> MayHaveHappenedError:
    return MayHaveHappenedError("no answer")


def nothing_done() -> DidNotHappenError:
    return DidNotHappenError("refused")


@pytest.fixture
def store() -> ScriptedStore:
    return ScriptedStore()


def run(store: ScriptedStore, clock: ManualClock | None = None, attempts: int = 4) -> Claim:
    return claim(store, "chain/1", BODY, MINE, clock or ManualClock(), Backoff(attempts, 0.5, 1.0))


def test_a_free_name_is_won_with_one_request(store: ScriptedStore) -> None:
    assert run(store) == WON
    assert store.calls == ["put_if_absent"]
    assert store.get("chain/1") == BODY


def test_a_taken_name_is_lost_and_gives_the_other_body(store: ScriptedStore) -> None:
    store.put("chain/1", OTHER_BODY)
    assert run(store) == Claim(won=False, body=OTHER_BODY)
    assert store.get("chain/1") == OTHER_BODY


def test_a_refusal_that_met_my_own_object_is_won(store: ScriptedStore) -> None:
    """The client sent the write twice: the first one created the object, the second was refused."""
    store.put("chain/1", BODY)
    assert run(store) == WON


def test_a_lost_reply_is_won(store: ScriptedStore) -> None:
    store.lost_replies["put_if_absent"].append(unclear())
    assert run(store) == WON
    assert store.calls == ["put_if_absent", "get"]


def test_a_lost_reply_to_a_lost_race_is_lost(store: ScriptedStore) -> None:
    store.put("chain/1", OTHER_BODY)
    store.lost_replies["put_if_absent"].append(unclear())
    assert run(store) == Claim(won=False, body=OTHER_BODY)


def test_a_write_that_never_arrived_is_sent_again_with_the_same_bytes(store: ScriptedStore) -> None:
    store.script["put_if_absent"].append(fail(unclear()))
    assert run(store) == WON
    assert store.calls == ["put_if_absent", "get", "put_if_absent"]
    assert store.get("chain/1") == BODY


def test_another_writer_between_the_unclear_write_and_its_repetition_wins(store: ScriptedStore) -> None:
    store.script["put_if_absent"].append(fail(unclear()))
    store.script["put_if_absent"].append(lambda: ScriptedStore.put(store, "chain/1", OTHER_BODY))
    assert run(store) == Claim(won=False, body=OTHER_BODY)


def test_a_known_failure_is_repeated_without_reading(store: ScriptedStore) -> None:
    store.script["put_if_absent"].extend([fail(nothing_done()), fail(nothing_done())])
    clock = ManualClock()
    assert run(store, clock) == WON
    assert store.calls == ["put_if_absent"] * 3
    assert clock.sleeps == [0.5, 1.0]


def test_a_refusal_without_an_object_is_tried_again(store: ScriptedStore) -> None:
    """S3 answers 409 while another conditional write is in flight, which may then fail."""
    store.put("chain/1", OTHER_BODY)
    store.script["get"].append(lambda: store.delete(["chain/1"]))
    assert run(store) == WON


def test_only_known_failures_end_as_did_not_happen(store: ScriptedStore) -> None:
    store.script["put_if_absent"].extend([fail(nothing_done())] * 4)
    with pytest.raises(DidNotHappenError) as raised:
        run(store)
    assert raised.value.context["object_name"] == "chain/1"
    assert store.list("") == []


def test_one_unclear_write_makes_the_end_unclear(store: ScriptedStore) -> None:
    store.script["put_if_absent"].extend([fail(unclear()), *[fail(nothing_done())] * 3])
    with pytest.raises(MayHaveHappenedError):
        run(store)


def test_a_refusal_that_cannot_be_read_back_is_unclear(store: ScriptedStore) -> None:
    """The refusal may have met my own object, so it must not end as "did not happen"."""
    store.put("chain/1", BODY)
    store.script["get"].extend([fail(nothing_done())] * 4)
    with pytest.raises(MayHaveHappenedError):
        run(store)


def test_tries_and_pauses_are_bounded(store: ScriptedStore) -> None:
    store.script["put_if_absent"].extend([fail(unclear())] * 100)
    store.script["get"].extend([fail(nothing_done())] * 100)
    clock = ManualClock()
    with pytest.raises(MayHaveHappenedError):
        run(store, clock, attempts=5)
    assert store.calls == ["put_if_absent", "get"] * 5
    assert clock.sleeps == [0.5, 1.0, 1.0, 1.0]


def test_a_wrong_call_is_not_repeated(store: ScriptedStore) -> None:
    store.script["put_if_absent"].append(fail(InvalidRequestError("no permission")))
    with pytest.raises(InvalidRequestError):
        run(store)
    assert store.calls == ["put_if_absent"]


@pytest.mark.parametrize("token", ["", OTHER])
def test_a_body_without_the_token_is_refused_before_anything_is_sent(store: ScriptedStore, token: str) -> None:
    with pytest.raises(InvalidRequestError):
        claim(store, "chain/1", BODY, token, ManualClock())
    assert store.calls == []


@pytest.mark.parametrize(("attempts", "initial_s", "maximum_s"), [(0, 1, 1), (1, -1, 1), (1, 2, 1)])
def test_a_backoff_that_cannot_be_is_refused(attempts: int, initial_s: float, maximum_s: float) -> None:
    with pytest.raises(InvalidRequestError):
        Backoff(attempts, initial_s, maximum_s)


def test_a_backoff_doubles_up_to_its_maximum() -> None:
    assert list(Backoff(6, 0.1, 1.0).pauses()) == [0.0, 0.1, 0.2, 0.4, 0.8, 1.0]
    assert list(Backoff(1, 0.1, 1.0).pauses()) == [0.0]
    assert Backoff(10, 0.1, 1.0).pause_s(100_000) == 1.0
