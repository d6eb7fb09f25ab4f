"""The whole system on a simulated storage and clock, by seeds (`tests/simulation/system`).

Under CI the seeds are the same in every run, elsewhere they begin at a random one. A failure names its seed;
`python -m tests.simulation.system SEED --trace` runs it again, step for step.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from tests.simulation.system.mutations import MUTATIONS, Mutation
from tests.simulation.system.named_seeds import NAMED
from tests.simulation.system.options import Options, options_of
from tests.simulation.system.scheduler import Violation
from tests.simulation.system.simulation import simulate

ROOT = Path(__file__).resolve().parents[2]
BASE = 0 if os.environ.get("CI") else random.SystemRandom().randrange(1 << 40)
SHORT, PARTS = 1_000, 4 if os.environ.get("CI") else 1
"""Seeds of a test, and how many such tests: 4,000 under CI."""
SHORT_STEPS_MIN = 500_000
"""Steps of such a test: 2,000,000 under CI."""
LONG = 2
LONG_STEPS = 20_000
PROCESSES = 2
FOUND_WITHIN = 150


def start(first: int, seeds: int, *more: str) -> subprocess.Popen[str]:
    """A process that runs these seeds."""
    command = [sys.executable, "-m", "tests.simulation.system", str(first), "--seeds", str(seeds), *more]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def check(running: list[subprocess.Popen[str]]) -> str:
    """Wait for them; what they said, if nothing has failed."""
    said = [process.communicate()[0] for process in running]
    text = "\n".join(said)
    print(text)  # noqa: T201  with the seeds that failed
    assert [process.returncode for process in running] == [0] * len(running), text[-4000:]
    return text


def ran(text: str) -> tuple[int, int]:
    """Seeds and steps of all processes."""
    lines = [tuple(map(int, line)) for line in re.findall(r"^(\d+) seeds, \d+ failed, (\d+) steps", text, re.MULTILINE)]
    assert len(lines) == PROCESSES, text
    return sum(seeds for seeds, _ in lines), sum(steps for _, steps in lines)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(PARTS))
def test_no_short_simulation_breaks_an_invariant(part: int) -> None:
    share = SHORT // PROCESSES
    text = check([start(BASE + part * SHORT + number * share, share) for number in range(PROCESSES)])
    assert ran(text)[0] == SHORT
    assert ran(text)[1] >= SHORT_STEPS_MIN
    counts = {what: int(number) for what, number in re.findall(r"([\w: ]+): (\d+)", text.replace(", ", "\n"))}
    for what in (
        *("acknowledged", "adopted", "redistributed", "refused start", "savepoints", "read", "deleted chain"),
        *("set back", "set back to a savepoint", "cloned", "rules changed", "encrypted", "log elsewhere", "hedged"),
        *("standby: caught up", "standby: held", "began caught up"),
    ):
        assert counts.get(what, 0) > 0, f"the simulation does not go far enough: no {what}"


@pytest.mark.timeout(1800)
def test_no_long_simulation_breaks_an_invariant() -> None:
    share = LONG // PROCESSES
    text = check([start(BASE + number * share, share, "--steps", str(LONG_STEPS)) for number in range(PROCESSES)])
    assert ran(text) >= (LONG, LONG * LONG_STEPS)


@pytest.mark.parametrize("what", MUTATIONS)
def test_a_broken_protocol_is_found(what: str) -> None:
    """Without this a simulation that looks at nothing would pass."""
    mutations = MUTATIONS[what]
    for seed in count():
        assert seed < FOUND_WITHIN, f"not found in {FOUND_WITHIN} seeds"
        options = options_of(seed)
        for mutation in mutations:
            options = mutation.options_of(options)
        violation = violation_of(seed, options, mutations)
        if violation is not None:
            assert isinstance(violation, Exception) or re.search(mutations[0].found, str(violation)), violation
            return


def violation_of(seed: int, options: Options, mutations: Sequence[Mutation]) -> BaseException | None:
    """What the seed finds in the broken product; some of it the rest of the product finds first."""
    with ExitStack() as stack:
        for mutation in mutations:
            stack.enter_context(mutation.applied())
        try:
            simulate(seed, options)
        except (Violation, Exception) as error:  # noqa: BLE001  a broken product may break anywhere
            return error
    return None


def test_a_seed_is_the_same_run_again() -> None:
    """In this process, and in others that hash strings otherwise. (RocksDB itself works in the background.)"""
    seeds = [seed for seed in range(10) if not options_of(seed).real_rocksdb][:5]
    here = [simulate(seed).scheduler.digest for seed in seeds for _ in range(2)]
    assert here[::2] == here[1::2]
    code = (
        "from tests.simulation.system.simulation import simulate; "
        f"print(*[simulate(seed).scheduler.digest for seed in {seeds}])"
    )
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
        assert list(map(int, done.stdout.split())) == here[::2]


def test_the_command_tells_what_happens() -> None:
    said = check([start(7, 1, "--trace")])
    assert "driver.1 starts" in said
    assert "put_if_absent job/chain/00000000000000000001" in said


def test_the_command_ends_in_time() -> None:
    said = check([start(100_000, 1_000_000, "--steps", "3000", "--seconds", "0.1")])
    assert "1 seeds, 0 failed" in said


@pytest.mark.parametrize("what", NAMED)
def test_what_a_seed_has_found_stays_mended(what: str) -> None:
    named = NAMED[what]
    simulate(named.seed, named.options)


@pytest.mark.parametrize("what", NAMED)
def test_a_named_seed_finds_its_bug_again(what: str) -> None:
    """Else it would say nothing any more: a change of the simulation may have made another run of it."""
    seed, undone = NAMED[what]
    found = violation_of(seed, NAMED[what].options, [undone])
    again = f'see which seeds do: python -m tests.simulation.system 0 --seeds 500 --broken "{what}"'
    assert isinstance(found, Violation), f"seed {seed} finds {found!r}; {again}"
    assert re.search(undone.found, str(found)), f"seed {seed} finds {found}; {again}"


def test_the_command_tells_which_seeds_find_a_bug() -> None:
    what, (seed, _) = next(iter(NAMED.items()))
    running = start(seed, 1, "--broken", what)
    said = running.communicate()[0]
    assert running.returncode == 1
    assert f"seed {seed}: Violation: " in said
