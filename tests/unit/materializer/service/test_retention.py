"""Retention by time: which pins are made and released."""

from __future__ import annotations

import msgspec
import pytest

from tests.golden.writers.storage import COMMIT
from varvite.materializer.service.retention import HOLDER, STEPS, HeldPin, RetentionPlan, plan_retention
from varvite.storage.format.records import Commit, Link, Pin

DAY_MS = 86_400_000
YEAR_MS = 365 * DAY_MS


def checkpoint(seq: int, time_ms: int) -> Commit:
    return msgspec.structs.replace(COMMIT, seq=seq, time_ms=time_ms)


def pin_of(commit: Commit, created_ms: int) -> HeldPin:
    link = Link(commit.seq, "t")
    pin = Pin(token=f"{commit.seq:020d}", holder=HOLDER, needs_from=1, commit=link, created_ms=created_ms)
    return HeldPin(pin, commit.time_ms)


def held(*times_ms: int) -> list[HeldPin]:
    return [pin_of(checkpoint(ms, ms), ms) for ms in times_ms]


def plan(newest_ms: int, pins: list[HeldPin], retention_ms: int) -> RetentionPlan:
    return plan_retention(checkpoint(newest_ms, newest_ms), pins, retention_ms, newest_ms)


def released(newest_ms: int, *times_ms: int, retention_ms: int = DAY_MS) -> list[int]:
    return [pin.commit.seq for pin in plan(newest_ms, held(*times_ms), retention_ms).release]


def test_the_first_checkpoint_is_pinned() -> None:
    assert plan(5, [], DAY_MS).create


def test_a_pin_is_made_every_eighth_of_the_retention() -> None:
    step_ms = DAY_MS // STEPS
    assert not plan(step_ms - 1, held(0), DAY_MS).create
    assert plan(step_ms, held(0), DAY_MS).create
    assert plan(10, held(10), 3).create is False


def test_a_checkpoint_is_pinned_once_however_long_the_job_rests() -> None:
    assert not plan_retention(checkpoint(7, 7), held(7), DAY_MS, YEAR_MS).create


def test_the_newest_pin_before_the_period_is_kept_and_older_ones_go() -> None:
    newest_ms = 3 * DAY_MS
    assert released(newest_ms, DAY_MS, 2 * DAY_MS - 5, 2 * DAY_MS - 3, 2 * DAY_MS + 1) == [DAY_MS, 2 * DAY_MS - 5]
    assert released(newest_ms, 2 * DAY_MS, 2 * DAY_MS + 1) == []


def test_without_retention_all_pins_go() -> None:
    found = plan(5, held(1, 2), 0)
    assert (found.create, len(found.release)) == (False, 2)


def lived(steps: int, driver_ms: dict[int, int], sidecar_ms: dict[int, int]) -> list[tuple[int, list[int]]]:
    """The true time of each step, and the true times of the pinned checkpoints then.

    A checkpoint is made each minute. The driver's or the materializer's clock is ahead, or behind, at some steps.
    """
    step_ms, last_ms = 60_000, 0
    pins: list[HeldPin] = []
    told: list[tuple[int, list[int]]] = []
    for step in range(steps):
        true_ms = YEAR_MS + step * step_ms
        last_ms = max(last_ms, true_ms + driver_ms.get(step, 0))
        newest, now_ms = checkpoint(step + 1, last_ms), true_ms + sidecar_ms.get(step, 0)
        decided = plan_retention(newest, pins, DAY_MS, now_ms)
        gone = {pin.token for pin in decided.release}
        pins = [item for item in pins if item.pin.token not in gone]
        pins += [pin_of(newest, now_ms)] if decided.create else []
        told.append((true_ms, [YEAR_MS + (item.pin.commit.seq - 1) * step_ms for item in pins]))
    return told


WRONG_ONCE = {1_500: YEAR_MS // 2}
CLOCKS: dict[str, tuple[dict[int, int], dict[int, int]]] = {
    "right": ({}, {}),
    "one batch of a driver that is half a year ahead": (WRONG_ONCE, {}),
    "one turn of a materializer that is half a year ahead": ({}, WRONG_ONCE),
    "one turn of a materializer that is half a year behind": ({}, {1_500: -YEAR_MS // 2}),
    "a driver that is an hour ahead for good": (dict.fromkeys(range(1_500, 9_000), 3_600_000), {}),
}


@pytest.mark.parametrize("clocks", CLOCKS)
def test_the_number_of_pins_is_bounded_and_the_period_is_always_covered(clocks: str) -> None:
    """One batch with the driver's clock ahead released all pins but the newest."""
    step_ms = 60_000
    for true_ms, pinned_ms in lived(6 * 1_440, *CLOCKS[clocks]):
        assert len(pinned_ms) <= 2 * STEPS + 3
        oldest_ms = min(pinned_ms)
        assert oldest_ms <= max(YEAR_MS, true_ms - DAY_MS)
        longest_ms = DAY_MS + DAY_MS // STEPS + step_ms
        assert true_ms - oldest_ms <= 2 * longest_ms, "what is kept is bounded, too"
