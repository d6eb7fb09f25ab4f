"""Failures in a row, and the pauses between retries."""

from __future__ import annotations

from varvite.materializer.fold.retry import PAUSE_JITTER, RetryState
from varvite.materializer.options.policy import MaterializePolicy
from varvite.storage.object_stores.backoff import Backoff

POLICY = MaterializePolicy(backoff=Backoff(1, 1.0, 4.0), max_failures_allowed=2)


def test_pauses_grow_up_to_the_longest_and_a_success_ends_them() -> None:
    retry, pauses = RetryState(), list[int]()
    assert retry.pause_ms(POLICY) == 0
    for now_ms in range(4):
        retry = retry.failed(now_ms)
        pauses.append(retry.pause_ms(POLICY))
    assert pauses == [1_000, 2_000, 4_000, 4_000]
    assert retry.is_failing(POLICY)
    assert retry.succeeded() == RetryState()


def test_a_pause_begins_with_the_last_failure() -> None:
    retry = RetryState().failed(100)
    assert not retry.is_failing(POLICY)
    assert retry.is_pausing(POLICY, 1_099)
    assert not retry.is_pausing(POLICY, 1_100)
    assert not RetryState().is_pausing(POLICY, 0)


def test_the_jitter_lengthens_a_pause_and_outlives_a_success() -> None:
    retry = RetryState(jitter=1.0).failed(0)
    assert retry.pause_ms(POLICY) == 1_000 * (1 + PAUSE_JITTER)
    assert retry.succeeded().jitter == 1.0
