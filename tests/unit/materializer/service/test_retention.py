"""Retention by time: which pins are made and released."""

from __future__ import annotations

from varvite.materializer.service.retention import HOLDER, STEPS, HeldPin, plan_retention
from varvite.storage.format.records import Link, Pin

DAY_MS = 86_400_000


def held(*times_ms: int) -> list[HeldPin]:
    return [
        HeldPin(Pin(token=str(ms), holder=HOLDER, needs_from=1, commit=Link(ms, "t"), created_ms=0), ms)
        for ms in times_ms
    ]


def released(newest_ms: int, *times_ms: int, retention_ms: int = DAY_MS) -> list[int]:
    return [pin.commit.seq for pin in plan_retention(newest_ms, held(*times_ms), retention_ms).release]


def test_the_first_checkpoint_is_pinned() -> None:
    assert plan_retention(5, [], DAY_MS).create


def test_a_pin_is_made_every_eighth_of_the_retention() -> None:
    step_ms = DAY_MS // STEPS
    assert not plan_retention(step_ms - 1, held(0), DAY_MS).create
    assert plan_retention(step_ms, held(0), DAY_MS).create
    assert plan_retention(10, held(10), 3).create is False


def test_the_newest_pin_before_the_period_is_kept_and_older_ones_go() -> None:
    newest_ms = 3 * DAY_MS
    assert released(newest_ms, DAY_MS, 2 * DAY_MS - 5, 2 * DAY_MS - 3, 2 * DAY_MS + 1) == [DAY_MS, 2 * DAY_MS - 5]
    assert released(newest_ms, 2 * DAY_MS, 2 * DAY_MS + 1) == []


def test_without_retention_all_pins_go() -> None:
    plan = plan_retention(5, held(1, 2), 0)
    assert (plan.create, len(plan.release)) == (False, 2)


def test_the_number_of_pins_is_bounded_and_the_period_is_always_covered() -> None:
    pins: list[HeldPin] = []
    step_ms = 60_000
    for newest_ms in range(0, 4 * DAY_MS, step_ms):
        plan = plan_retention(newest_ms, pins, DAY_MS)
        gone = {pin.token for pin in plan.release}
        pins = [one for one in pins if one.pin.token not in gone] + (held(newest_ms) if plan.create else [])
        assert len(pins) <= STEPS + 2
        oldest_ms = min(one.time_ms for one in pins)
        assert oldest_ms <= max(0, newest_ms - DAY_MS)
        assert newest_ms - oldest_ms <= DAY_MS + DAY_MS // STEPS + step_ms
