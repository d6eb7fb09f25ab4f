"""`python -m tests.simulation.system SEED --trace`: one seed; `--seeds 1000`: so many, from SEED on.

With `--broken WHAT` the system is that variant of `mutations.py` or `found_bugs.py`, and the seeds that fail find it.
"""

from __future__ import annotations

import argparse
import gc
import math
import random
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace

from tests.simulation.system.bugs.found import FOUND
from tests.simulation.system.bugs.script import Line, Script, text_of
from tests.simulation.system.bugs.search import drawn, effects, ordinary_options, shrunk
from tests.simulation.system.mutations import MUTATIONS, Mutation
from tests.simulation.system.options import Options, in_chain, options_of
from tests.simulation.system.scheduler import Violation
from tests.simulation.system.simulation import simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.system", description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, help="before the end without faults, instead of the options' own")
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no further seed after so long")
    variants = MUTATIONS | {what: (bug.undone,) for what, bug in FOUND.items()}
    parser.add_argument("--in-chain", action="store_true", help="progress is in the chain alone")
    parser.add_argument("--broken", choices=sorted(variants), metavar="WHAT")
    parser.add_argument("--script", action="store_true", help="search for a script that meets the bug of --broken")
    given = parser.parse_args()
    mutations = variants.get(given.broken, ())
    if given.script:
        return search(given.broken, mutations, range(given.seed, given.seed + given.seeds), given.seconds)
    gc.freeze()  # what the modules hold stays: looking through it again and again would take most of the time
    gc.set_threshold(50_000, 20, 100)
    began, steps, failed, run = time.monotonic(), 0, 0, 0
    counts: Counter[str] = Counter()
    for seed in range(given.seed, given.seed + given.seeds):
        if time.monotonic() - began > given.seconds:
            break
        run += 1
        trace: list[str] | None = [] if given.trace else None
        options = _options(seed, given, mutations)
        try:
            with ExitStack() as stack:
                for mutation in mutations:
                    stack.enter_context(mutation.applied())
                done = simulate(seed, options, trace=trace)
            steps += done.scheduler.steps
            counts.update(done.counts)
        except (Exception, Violation) as error:  # noqa: BLE001  every kind is told
            failed += 1
            print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)  # noqa: T201
            if given.seeds == 1:
                traceback.print_exception(error)
        if trace is not None:
            sys.stdout.write("\n".join(trace) + "\n")
    took = time.monotonic() - began
    print(f"{run} seeds, {failed} failed, {steps} steps, {took:.1f} s")  # noqa: T201
    print(", ".join(f"{what}: {number}" for what, number in sorted(counts.items())))  # noqa: T201
    return 1 if failed else 0


def _options(seed: int, given: argparse.Namespace, mutations: Sequence[Mutation]) -> Options:
    options = in_chain(options_of(seed), seed) if given.in_chain else options_of(seed)
    for mutation in mutations:
        options = mutation.options_of(options)
    return options if given.steps is None else replace(options, steps=given.steps)


def search(bug: str, mutations: Sequence[Mutation], seeds: Iterable[int], seconds: float) -> int:
    """Draw scripts until one meets the bug; print the lines of it that are needed. 1 if none does."""
    needed = {name: value for mutation in mutations for name, value in mutation.options.items()}
    options, deadline = ordinary_options(needed), time.monotonic() + seconds
    possible = effects(options)
    for seed in seeds:
        if time.monotonic() > deadline:
            break
        lines = drawn(random.Random(f"script {seed}"), possible)
        if meets(lines, options, mutations):
            print(text_of(bug, shrunk(lines, lambda fewer: meets(fewer, options, mutations))))  # noqa: T201
            return 0
    return 1


def meets(lines: Sequence[Line], options: Options, mutations: Sequence[Mutation]) -> bool:
    """Is this what the bug looks like? The whole product must pass where the broken one does not."""
    with ExitStack() as stack:
        for mutation in mutations:
            stack.enter_context(mutation.applied())
        try:
            simulate(0, options, script=Script(lines))
        except (Exception, Violation) as error:  # noqa: BLE001  a broken product may break anywhere
            if not re.search(mutations[0].found, str(error)):
                return False
        else:
            return False
    try:
        simulate(0, options, script=Script(lines))
    except (Exception, Violation):  # noqa: BLE001  a bug of its own, or of the simulation
        traceback.print_exc()
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
