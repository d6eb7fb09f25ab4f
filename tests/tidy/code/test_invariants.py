"""Each invariant of ARCHITECTURE.md has a check in the simulation, and a mutation that breaks it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, Final

from tests.simulation.system import simulation
from tests.simulation.system.bugs.found import FOUND
from tests.simulation.system.mutations import MUTATIONS
from tests.simulation.system.oracle import Oracle
from tests.tidy.project_files import ROOT
from varvite.changelog.chain import invariants
from varvite.changelog.chain.invariants import (
    violations_of_commit,
    violations_of_needed,
    violations_of_succession,
    violations_of_view,
)

INVARIANTS = re.findall(r"^- \*\*(I\d+) ", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
CHECKS: Final[dict[str, tuple[Callable[..., Any], ...]]] = {
    "I1": (Oracle.check_acknowledged, violations_of_needed),
    "I2": (Oracle._winners, Oracle.sink_holds),
    "I3": (violations_of_commit, Oracle._note_rules),
    "I4": (Oracle.began, Oracle._note_seen),
    "I5": (violations_of_view, Oracle.check_restore),
    "I6": (violations_of_succession, Oracle.sink_begins),
    "I7": (violations_of_succession, Oracle.deleted),
    "I9": (Oracle.check_restore,),
    "I11": (Oracle._executed,),
}
"""Invariant → what the oracle checks after each step; each names it."""
ELSEWHERE = {"I10": simulation}
"""Invariant → the module that checks it at the end of a run, when the materializer has worked without faults."""
WITHOUT_CHECK = {
    "I8": "bytes that are read unverified show as a wrong state (I5) or fail; contract suites flip bits in every object"
}
"""Invariant → the reason why no check of the simulation names it."""
SEEN_OTHERWISE = {"I8": "fetched files are not verified", "I9": "two processes use one local copy"}
"""Invariant → the mutation that breaks it, whose violation names another one, because the state is wrong."""


def test_architecture_lists_the_invariants() -> None:
    assert [f"I{number}" for number in range(1, 12)] == INVARIANTS


def test_each_invariant_has_a_check() -> None:
    assert {*CHECKS, *ELSEWHERE, *WITHOUT_CHECK} == set(INVARIANTS)
    for invariant, checks in CHECKS.items():
        for check in checks:
            source = inspect.getsource(check)
            if check.__module__ == invariants.__name__:  # its helpers name the invariants, too
                source = inspect.getsource(invariants)
            assert re.search(rf"\b{invariant}\b", source), f"{check.__qualname__} does not name {invariant}"
    for invariant, module in ELSEWHERE.items():
        assert re.search(rf"\b{invariant}\b", inspect.getsource(module))


def test_a_mutation_breaks_each_invariant() -> None:
    variants = [mutation for variant in MUTATIONS.values() for mutation in variant]
    variants += [bug.undone for bug in FOUND.values()]
    named = set(re.findall(r"I\d+", " ".join(mutation.found for mutation in variants)))
    assert named.isdisjoint(SEEN_OTHERWISE)
    assert {*named, *SEEN_OTHERWISE} >= set(INVARIANTS)
    assert set(SEEN_OTHERWISE.values()) <= set(MUTATIONS)
