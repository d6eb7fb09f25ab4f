"""Finds a script for a bug, and leaves out of it what the bug does not need.

`python -m tests.simulation.system 0 --seeds 500 --broken "<the bug>" --script` searches; the first script is printed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from tests.simulation.system.bugs.script import Line, Outcome, Script, effect_of
from tests.simulation.system.options import Options
from tests.simulation.system.simulation import simulate
from tests.simulation.system.store import NO_FAULTS
from varvite.changelog.commit.state import CommitPolicy

ORDINARY: Final = Options(
    steps=1_200, step_s=0.1, burst=1.0, faults=NO_FAULTS, stalls=0.0, stall_max_s=0.0, crashes=0.0, keeps_disk=1.0,
    skew_max_s=0.0, parallelism=2, rescales=False, backend="rocksdb", real_rocksdb=False, changelog=True, drivers=1,
    takeovers=0.0, executors=2, materializers=1, collectors=1, readers=0, rerun=0.0, moves=0.0, sink_tells=False,
    policy=CommitPolicy(retained=2, full_every=3, path_max=4), inline_bytes_max=1 << 20, part_bytes=1 << 20,
    grace_s=3.0, forges=False, chained=False, restores=0.0, clones=0.0, ruled=False, disorder=0.0,
    hang=0.0, hedged=False, encrypted=False, log_elsewhere=False, log_faults=NO_FAULTS, local_copies=False, hosts=1,
    standbys=0, quiet_batches=3,
)  # fmt: skip
"""The system of all scripts; a bug says what it needs besides."""
BY_CHANCE: Final = frozenset({"faults", "log_faults", "stalls", "stall_max_s", "crashes", "restores", "clones", "hang"})
"""Options that say how often something happens by chance: of no meaning to a script."""
LINES_MAX: Final = 5
READS: Final = ("get ", "get_range ", "list ")
WRITES: Final = ("put ", "put_if_absent ", "delete ")


def ordinary_options(needed: dict[str, Any]) -> Options:
    """The options of a script for a bug that needs these."""
    return replace(ORDINARY, **{name: value for name, value in needed.items() if name not in BY_CHANCE})


def effects(options: Options) -> list[Line]:
    """Every effect of the ordinary course, as lines that do nothing yet."""
    trace: list[str] = []
    simulate(0, options, script=Script(()), trace=trace)
    counts: Counter[tuple[str, str]] = Counter()
    lines: list[Line] = []
    for text in trace:
        place, _, effect = text.strip().split(" ", 1)[1].partition(" ")
        process, slash, _ = place.partition("/")
        effect = effect_of(effect)
        if slash and effect not in ("sleep", "wait"):
            counts[process, effect] += 1
            lines.append(Line(process, effect, counts[process, effect], Outcome("stalls")))
    return lines


def drawn(rng: random.Random, possible: Sequence[Line]) -> list[Line]:
    """A few deviations at random."""
    places = sorted(rng.sample(range(len(possible)), min(len(possible), rng.randint(1, LINES_MAX))))
    return [_deviation(rng, possible[place]) for place in places]


def _deviation(rng: random.Random, line: Line) -> Line:
    kinds = ["stalls"] * 4 + ["killed", "replaced", "restored", "restored", "anew", "cloned"]
    if line.effect.startswith(READS):
        kinds += ["fails"]
    if line.effect.startswith(WRITES):
        kinds += ["fails", "torn", "lost", "lost", "late", "late"]
    what = rng.choice(kinds)
    numbers = {"stalls": [2, 10, 30, 60], "late": [2, 10, 30], "restored": [-1, 0, 1, 2], "anew": [-1, 0, 1, 2]}
    return line._replace(outcome=Outcome(what, rng.choice(numbers.get(what, [0]))))


def shrunk(lines: list[Line], is_bug: Callable[[Sequence[Line]], bool]) -> list[Line]:
    """Those of the lines without which the bug is not met."""
    for line in list(lines):
        fewer = [other for other in lines if other is not line]
        if is_bug(fewer):
            lines = fewer
    return lines
