"""Switches of what a test does not care about, drawn anew for every test: as Flink does for all its tests.

State must not depend on whether the changelog is on, on when it is materialized, nor on the way of a batch. So tests
that say nothing of these run with the changelog on or off, with or without a materialization after every other batch,
and with small batches in the driver or in Spark's tasks. The draw depends on a seed and the test's name alone:
`VARVITE_TEST_SEED=<seed>` makes a run again, whichever tests it selects. `on`, `off`, `materialized`, `driver` and
`tasks` in the place of a number are for all tests: the changelog is on, off, or on and materialized; batches are small
and the driver's, or those of Spark's tasks. Under CI the seed is fixed.

A test whose claim needs a fixed setting says so itself, or with the marker `fixed_storage`: then the changelog is on
and nothing is materialized but by the test. One about Spark's tasks has the marker `spark_tasks`.
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
    small_batches: bool = True
    """Small batches take the driver's way."""

    @staticmethod
    def drawn(seed: str, test: str) -> StorageSwitches:
        """The switches of a test."""
        if seed in SAID:
            return SAID[seed]
        drawn = random.Random(f"{seed} {test}")
        changelog, materializes, small_batches = (drawn.random() < 0.5 for _ in range(3))
        return StorageSwitches(changelog=changelog, materializes=materializes, small_batches=small_batches)

    def options(self) -> dict[str, Any]:
        """For an `OperatorHarness`."""
        return {"changelog": self.changelog, "materialize_every": MATERIALIZE_EVERY if self.materializes else None}


FIXED: Final = StorageSwitches(changelog=True, materializes=False)
"""Of tests with the marker `fixed_storage`."""
SAID: Final = {
    "on": FIXED,
    "off": StorageSwitches(changelog=False, materializes=False),
    "materialized": StorageSwitches(changelog=True, materializes=True),
    "driver": StorageSwitches(changelog=True, materializes=False, small_batches=True),
    "tasks": StorageSwitches(changelog=True, materializes=False, small_batches=False),
}
"""Words that may stand for a seed."""
