"""Switches of what a test does not care about, drawn anew for every test: as Flink does for all its tests.

State must not depend on whether the changelog is on, nor on when it is materialized. So tests that say nothing of these
run with the changelog on or off, and with or without a materialization after every other batch. The draw depends on a
seed and the test's name alone: `VARVITE_TEST_SEED=<seed>` makes a run again, whichever tests it selects. `on`, `off`
and `materialized` in the place of a number are for all tests: the changelog is on, off, or on and materialized. Under
CI the seed is fixed.

A test whose claim needs a fixed setting says so itself, or with the marker `fixed_storage`: then the changelog is on
and nothing is materialized but by the test.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from typing import Any, Final

SEED_VARIABLE: Final = "VARVITE_TEST_SEED"
MATERIALIZE_EVERY: Final = 2
"""Batches."""


def seed_of(environment: os._Environ[str] | dict[str, str]) -> str:
    """The run's seed: the variable's, a fixed one under CI, else any."""
    return environment.get(SEED_VARIABLE) or (
        "0" if environment.get("CI") else str(random.SystemRandom().getrandbits(32))
    )


@dataclass(frozen=True)
class StorageSwitches:
    """Settings that a test does not care about."""

    changelog: bool
    materializes: bool
    """After every other batch."""

    @staticmethod
    def drawn(seed: str, test: str) -> StorageSwitches:
        """The switches of a test."""
        if seed in SAID:
            return SAID[seed]
        drawn = random.Random(f"{seed} {test}")
        return StorageSwitches(changelog=drawn.random() < 0.5, materializes=drawn.random() < 0.5)

    def options(self) -> dict[str, Any]:
        """For an `OperatorHarness`."""
        return {"changelog": self.changelog, "materialize_every": MATERIALIZE_EVERY if self.materializes else None}


FIXED: Final = StorageSwitches(changelog=True, materializes=False)
"""Of tests with the marker `fixed_storage`."""
SAID: Final = {
    "on": FIXED,
    "off": StorageSwitches(changelog=False, materializes=False),
    "materialized": StorageSwitches(changelog=True, materializes=True),
}
"""Words that may stand for a seed."""
