"""The simulation of the whole system (`tests/simulation/system`) finds what is broken, and what it has found before.

Many seeds of the unbroken product: `test_seeds.py`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import count

import pytest

from tests.simulation.system.bugs.found import FOUND
from tests.simulation.system.bugs.script import SCRIPTS, Line, Outcome, effect_of, parse, read_script, text_of
from tests.simulation.system.mutations import MUTATIONS, Mutation
from tests.simulation.system.options import Options, options_of
from tests.simulation.system.scheduler import Violation
from tests.simulation.system.simulation import simulate
from tests.simulation.whole.seed_processes import ROOT, check, start

FOUND_WITHIN = 150


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
    """The failure that the seed finds in the broken product; some the rest of the product finds first."""
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
    said = check(start(7, 1, "--trace"))
    assert "driver.1 starts" in said
    assert "put_if_absent job/chain/00000000000000000001" in said


def test_the_command_ends_in_time() -> None:
    said = check(start(100_000, 1_000_000, "--steps", "3000", "--seconds", "0.1"))
    assert "1 seeds, 0 failed" in said


@pytest.mark.parametrize("what", FOUND)
def test_a_bug_that_was_found_stays_mended(what: str) -> None:
    FOUND[what].simulate()


@pytest.mark.parametrize("what", FOUND)
def test_a_bug_is_met_again_without_its_repair(what: str) -> None:
    """Else its run would say nothing any more: a change of the system may have made another run of a seed."""
    bug = FOUND[what]
    with bug.undone.applied(), pytest.raises((Violation, Exception)) as caught:
        bug.simulate()
    again = f'see which runs meet it: python -m tests.simulation.system 0 --seeds 500 --broken "{what}" [--script]'
    assert isinstance(caught.value, Violation), f"{bug.run} finds {caught.value!r}; {again}"
    assert re.search(bug.undone.found, str(caught.value)), f"{bug.run} finds {caught.value}; {again}"


def test_every_script_is_of_a_bug() -> None:
    assert {path.stem for path in SCRIPTS.glob("*.txt")} == {
        bug.run for bug in FOUND.values() if isinstance(bug.run, str)
    }
    for what, bug in FOUND.items():
        if isinstance(bug.run, str):
            lines = read_script(bug.run).lines
            assert (SCRIPTS / f"{bug.run}.txt").read_text() == text_of(what, lines)


def test_the_command_tells_which_seeds_find_a_bug() -> None:
    what, seed = next((what, bug.run) for what, bug in FOUND.items() if isinstance(bug.run, int))
    running = start(seed, 1, "--broken", what)
    said = running.communicate()[0]
    assert running.returncode == 1
    assert f"seed {seed}: Violation: " in said


@pytest.mark.long
def test_the_command_finds_a_script() -> None:
    """Of a variant that needs one deviation only: a run that is replaced."""
    what = "the slot is overwritten"
    text = check(start(0, 300, "--broken", what, "--script"))
    assert text.startswith(f"# {what}\n")
    assert parse(text)


def test_a_line_of_a_script_names_an_effect_without_its_tokens_and_zeros() -> None:
    (line,) = parse("# a bug\n\ndriver.1 | put job/seg/3/*-00 | 2 | late 2.5\n")
    assert line == Line("driver.1", "put job/seg/3/*-00", 2, Outcome("late", 2.5))
    assert effect_of(f"put job/seg/{3:020d}/{'a1' * 16}-00010") == "put job/seg/3/*-10"
    with pytest.raises(ValueError, match="line 1: explodes is none of"):
        parse("driver.1 | get job/job.json | 1 | explodes")
