"""Trouble that lasts: it is counted, tried ever more rarely, told to who asks, and over by itself when its cause is."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.jobs.materializer_world import CONFIG, Sidecar, World
from tests.stores.faulty import Faults, FaultyStore
from varvite.materializer.fold.retry import PAUSE_JITTER, RetryState
from varvite.materializer.monitoring.events import Failed, JobFailed
from varvite.materializer.monitoring.health import ALIVE_WITHIN_MS
from varvite.materializer.ranges import RangeKey
from varvite.storage.errors import InvalidRequestError
from varvite.storage.format import layout

if TYPE_CHECKING:
    import pytest

HOUR_S = 3_600


def reasons(sidecar: Sidecar) -> tuple[str, ...]:
    context = sidecar.context
    return context.health.ready(context.now_ms()).reasons


def test_a_storage_that_is_down_for_hours_is_asked_ever_more_rarely(world: World) -> None:
    world.commit(4)
    faulty = FaultyStore(world.root, random.Random(1), Faults(), clock=world.clock)
    sidecar = world.sidecar(root=faulty)
    assert sidecar.poll()
    faulty.faults = Faults(before=1.0)
    for _ in range(2 * HOUR_S // 20):
        world.clock.advance(20)
        sidecar.poll()
    failed = sidecar.events.of(JobFailed)
    for step in ("following the chain", "listing the jobs"):
        assert 0 < sum(event.step == step for event in failed) < 40, "no flood: about one in five minutes"
    assert max(event.retry_ms for event in failed) <= 300_000 * (1 + PAUSE_JITTER)
    assert any("following the chain failed" in text for text in reasons(sidecar))
    faulty.faults = Faults()
    world.clock.advance(300 * (1 + PAUSE_JITTER))
    assert sidecar.poll()
    assert reasons(sidecar) == ()
    sidecar.fold()
    assert len(sidecar.materialized) == 2
    world.commit(2)
    world.check()


def test_without_permission_to_delete_all_goes_on_and_it_is_said(world: World) -> None:
    def refuse(operation: str, _name: str, phase: str) -> None:
        if is_refused and operation == "delete" and phase == "before":
            raise InvalidRequestError("the credentials do not allow to delete")

    is_refused = [True]
    store = FaultyStore(world.root, random.Random(1), Faults(), clock=world.clock, crash_hook=refuse)
    sidecar = world.sidecar(root=store)
    for _ in range(8):
        world.commit(2)
        sidecar.fold()
    assert len(world.job.adopted) > 2
    failed = sidecar.events.of(JobFailed)
    assert {(event.step, event.error_type) for event in failed} == {("collecting garbage", "InvalidRequestError")}
    assert any("collecting garbage failed" in text for text in reasons(sidecar))
    is_refused.clear()
    world.commit(1)
    assert sidecar.fold()
    assert reasons(sidecar) == ()
    world.check()


def test_a_local_disk_that_takes_nothing_more_fails_the_range_and_not_the_job(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocksDB and the copies of files meet it in many places; all of them raise `OSError` or RocksDB's own error."""
    world.commit(4)
    sidecar = world.sidecar(replace(CONFIG, max_failures_allowed=1))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(type(sidecar.workspace), "scratch", full)
        for _ in range(2):
            assert not sidecar.fold()
    failed = sidecar.events.of(Failed)
    assert {event.error_type for event in failed} == {"OSError"}
    assert [event.failing for event in failed] == [False, False, True, True]
    assert len(reasons(sidecar)) == 2
    assert sidecar.fold()
    assert reasons(sidecar) == ()
    world.commit(2)
    assert world.job.adopted
    world.check()


def test_ranges_that_failed_together_are_not_tried_again_together() -> None:
    keys = [RangeKey("id", "op", low, low + 1) for low in range(64)]
    pauses = {RetryState(key.jitter).failed(0).pause_ms(CONFIG.policy) for key in keys}
    assert len(pauses) > 32
    assert min(pauses) >= 1_000
    assert max(pauses) <= 1_000 * (1 + PAUSE_JITTER)


def test_a_first_look_that_never_ends_is_seen_and_many_slow_ones_are_not_taken_for_it(world: World) -> None:
    """A supervisor that watches `/healthz` starts a process again that hangs, also one that has hung from the
    beginning.
    """
    alive: list[bool] = []

    def slow(operation: str, name: str, phase: str) -> None:
        if operation != "get" or phase != "before" or not name.endswith(layout.JOB):
            return
        is_last = name.startswith("c/")
        world.clock.advance(ALIVE_WITHIN_MS / 1_000 * (1.1 if is_last else 0.6))
        alive.append(health.alive(sidecar.context.now_ms()).ok)
        if is_last:
            sidecar.stop.set()

    for job in ("a", "b", "c"):
        world.root.put(f"{job}/{layout.JOB}", b"damaged")
    root = FaultyStore(world.root, random.Random(1), Faults(), clock=world.clock, crash_hook=slow)
    sidecar = world.sidecar(root=root)
    health = sidecar.context.health
    sidecar.service.run()
    assert alive == [True, True, False]
