"""The whole system on a simulated storage and clock, by seeds (`tests/simulation/system`).

Under CI the seeds are the same in every run, elsewhere they begin at a random one. A failure names its seed;
`python -m tests.simulation.system SEED --trace` runs it again, step for step.
"""

from __future__ import annotations

import os
import random
import re
from typing import Any

import pytest

from tests.simulation.whole.seed_processes import check, start

BASE = 0 if os.environ.get("CI") else random.SystemRandom().randrange(1 << 40)
SHORT, PARTS = 100, 7
"""Seeds of a test, and the number of such tests."""
IN_CHAIN = 100
"""Seeds of a test where progress is in the chain alone."""
STEPS_MIN = 500
"""Of a seed on average."""
LONG = 2
LONG_STEPS = 20_000


def parts(count: int) -> list[Any]:
    """Numbers of tests, of which only the first is not rare: CI would run the same seeds each time."""
    return [0, *(pytest.param(i, marks=pytest.mark.rare) for i in range(1, count))]


def ran(text: str) -> tuple[int, int]:
    """Seeds and steps of a process."""
    [(seeds, steps)] = re.findall(r"^(\d+) seeds, \d+ failed, (\d+) steps, ", text, re.MULTILINE)
    return int(seeds), int(steps)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", parts(PARTS))
def test_no_short_simulation_breaks_an_invariant(part: int) -> None:
    text = check(start(BASE + part * SHORT, SHORT))
    seeds, steps = ran(text)
    assert seeds == SHORT
    assert steps >= seeds * STEPS_MIN
    counts = {what: int(number) for what, number in re.findall(r"([\w: ]+): (\d+)", text.replace(", ", "\n"))}
    for what in (
        *("acknowledged", "adopted", "redistributed", "refused start", "savepoints", "read", "deleted chain"),
        *("set back", "cloned", "rules changed", "encrypted", "log elsewhere", "hedged"),
        *("standby: caught up", "standby: held", "began caught up"),
    ):
        assert counts.get(what, 0) > 0, f"the simulation does not go far enough: no {what}"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", parts(4))
def test_no_simulation_with_progress_in_the_chain_breaks_an_invariant(part: int) -> None:
    text = check(start(BASE + part * IN_CHAIN, IN_CHAIN, "--in-chain"))
    assert ran(text) >= (IN_CHAIN, IN_CHAIN * STEPS_MIN)
    for location in ("kept", "lost", "stale", "private"):
        assert f"location {location}: " in text


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(LONG))
def test_no_long_simulation_breaks_an_invariant(seed: int) -> None:
    text = check(start(BASE + seed, 1, "--steps", str(LONG_STEPS)))
    assert ran(text) >= (1, LONG_STEPS)
