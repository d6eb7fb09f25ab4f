"""The whole system on a simulated storage and clock, by seeds (`tests/simulation/system`).

Under CI the seeds are the same in every run, elsewhere they begin at a random one. A failure names its seed;
`python -m tests.simulation.system SEED --trace` runs it again, step for step.
"""

from __future__ import annotations

import os
import random
import re

import pytest

from tests.simulation.whole.seed_processes import check, start

BASE = 0 if os.environ.get("CI") else random.SystemRandom().randrange(1 << 40)
SHORT, PARTS = 1_000, 4
"""Seeds of a test, and the number of such tests: 4,000 seeds, as far as time allows."""
SHORT_SECONDS = 60
"""Then no further seed is begun: on a slow machine such a test has fewer."""
SHORT_SEEDS_MIN = SHORT // 5
STEPS_MIN = 500
"""Of a seed on average."""
LONG = 2
LONG_STEPS = 20_000
PROCESSES = 2


def ran(text: str) -> tuple[int, int, float]:
    """Seeds and steps of all processes, and the seconds of the one that took longest."""
    lines = re.findall(r"^(\d+) seeds, \d+ failed, (\d+) steps, ([\d.]+) s", text, re.MULTILINE)
    assert len(lines) == PROCESSES, text
    seeds, steps, seconds = zip(*lines, strict=True)
    return sum(map(int, seeds)), sum(map(int, steps)), max(map(float, seconds))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.long) for part in range(1, PARTS))])
def test_no_short_simulation_breaks_an_invariant(part: int) -> None:
    share = SHORT // PROCESSES
    firsts = [BASE + part * SHORT + number * share for number in range(PROCESSES)]
    text = check([start(first, share, "--seconds", str(SHORT_SECONDS)) for first in firsts])
    seeds, steps, seconds = ran(text)
    assert seeds == SHORT or (seconds >= SHORT_SECONDS and seeds >= SHORT_SEEDS_MIN)
    assert steps >= seeds * STEPS_MIN
    counts = {what: int(number) for what, number in re.findall(r"([\w: ]+): (\d+)", text.replace(", ", "\n"))}
    for what in (
        *("acknowledged", "adopted", "redistributed", "refused start", "savepoints", "read", "deleted chain"),
        *("set back", "set back to a savepoint", "cloned", "rules changed", "encrypted", "log elsewhere", "hedged"),
        *("standby: caught up", "standby: held", "began caught up"),
    ):
        assert counts.get(what, 0) > 0, f"the simulation does not go far enough: no {what}"


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_no_long_simulation_breaks_an_invariant() -> None:
    share = LONG // PROCESSES
    text = check([start(BASE + number * share, share, "--steps", str(LONG_STEPS)) for number in range(PROCESSES)])
    seeds, steps, _ = ran(text)
    assert (seeds, steps) >= (LONG, LONG * LONG_STEPS)
