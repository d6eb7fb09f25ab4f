"""The whole system but Spark, seeded: drivers that take over from one another and come back late, materializers,
collectors, and a storage that fails, loses replies and is slow. `VARVITE_SEED=n` replays one seed.

Checked along the way: the newest commit and its parent restore to exactly what the model says (I5, I7), an acknowledged
batch never disappears (I1), a driver that was replaced never writes again (I6).
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from tests.jobs.committing_job import CommittingJob, random_batch
from tests.jobs.materializer_world import INTERVAL_MS, Sidecar, World
from tests.stores.faulty import Faults, FaultyStore
from varvite.storage.errors import FencedError, RetryableError
from varvite.storage.object_stores.memory import MemoryStore
from varvite.storage.object_stores.prefixed import PrefixedStore

if TYPE_CHECKING:
    from pathlib import Path

SEEDS = [int(os.environ["VARVITE_SEED"])] if "VARVITE_SEED" in os.environ else list(range(24))
STEPS = 40
FAULTS = Faults(before=0.02, after=0.02, torn=0.01, delay=0.05, delay_max_s=8.0)
QUIET = Faults()


class Simulation:
    """One seeded run."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.parts_max = 1 if seed % 2 else 4
        """Parts of a batch that are uploaded early, and the rest."""
        self.clean = MemoryStore()
        self.world = World(directory, self.clean, started=False)
        self.faulty = FaultyStore(self.clean, random.Random(seed + 1), QUIET, clock=self.world.clock)
        self.job = CommittingJob(PrefixedStore(self.faulty, "job"), self.world.clock)
        self.world.job.close()
        self.world.job = self.job
        self.stale: list[CommittingJob] = []
        self.sidecars: list[Sidecar | None] = [None, None]
        self.acknowledged = 0
        self.trace: list[str] = []

    def run(self) -> None:
        """All steps."""
        self._restart()
        steps = [self._commit] * 6 + [self._materialize] * 2 + [self._take_over, self._late_driver, self._check]
        self.faulty.faults = FAULTS
        for _ in range(STEPS):
            self.world.clock.advance(self.rng.choice([0.1, 1.0, INTERVAL_MS / 1000]))
            self.rng.choice(steps)()
        self._check()

    def close(self) -> None:
        """End all runs."""
        self.world.close()
        for job in self.stale:
            job.close()

    def _commit(self) -> None:
        before = self.job.batch
        try:
            upload, parts = self.rng.random() < 0.3, self.rng.randint(1, self.parts_max)
            self.job.commit(random_batch(self.rng), upload=upload, parts=parts)
        except (RetryableError, FencedError) as error:
            self.trace.append(f"batch {before}: {type(error).__name__}")
            self.job.batch = before
            self._restart()
            return
        self.acknowledged = self.job.batch
        self.trace.append(f"batch {before} committed")

    def _take_over(self) -> None:
        """Another driver begins; the old one is kept, and will wake up late."""
        old = CommittingJob(self.job.store, self.world.clock, model=self.job.model, batch=self.job.batch)
        old.run, old.tokens, old.runs = self.job.run, self.job.tokens, self.job.runs
        self.job.run = None
        self.stale.append(old)
        self._restart()
        self.trace.append("take over")

    def _late_driver(self) -> None:
        if not self.stale:
            return
        late = self.stale.pop(0)
        try:
            with pytest.raises((FencedError, RetryableError)):
                late.commit(random_batch(self.rng), adopt=False)
        finally:
            late.close()
        self.trace.append("late driver refused")

    def _materialize(self) -> None:
        which = self.rng.randrange(2)
        sidecar = self.sidecars[which]
        if sidecar is None or self.rng.random() < 0.1:
            if sidecar is not None:
                sidecar.die()
            sidecar = self.sidecars[which] = self.world.sidecar(root=self.faulty, place=f"work-{which}")
        sidecar.service.step(on_demand=self.rng.random() < 0.5)
        self.trace.append(f"materializer {which}")

    def _restart(self) -> None:
        """Start a driver run until the storage lets it; as Spark does, ask for the first batch not acknowledged."""
        while True:
            try:
                self.job.batch = self.acknowledged
                self.job.start()
            except RetryableError as error:
                self.trace.append(f"start: {type(error).__name__}")
                self.world.clock.advance(1)
            else:
                return

    def _check(self) -> None:
        faults, self.faulty.faults = self.faulty.faults, QUIET
        if self.acknowledged:
            newest = self.world.newest()
            assert newest.batch >= self.acknowledged - 1, "an acknowledged batch is gone"
            known = self.job.models.get(newest.link)
            if known is not None and self.job.models.get(newest.parent) is not None:
                self.world.check()
        self.faulty.faults = faults


@pytest.mark.parametrize("seed", SEEDS)
def test_the_system_keeps_its_promises(tmp_path: Path, seed: int) -> None:
    simulation = Simulation(tmp_path, seed)
    try:
        simulation.run()
    except BaseException as error:
        error.add_note("\n".join([*simulation.trace, f"seed {seed}: again with VARVITE_SEED={seed}"]))
        raise
    finally:
        simulation.close()
