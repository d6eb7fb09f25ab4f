"""Seeded random simulation of the chain beyond the size of the model check, with storage faults.

A failure names its seed; `VARVITE_SEED=<seed>` runs that one alone, step for step the same.
"""

from __future__ import annotations

import os

import pytest

from tests.jobs.chain_job import MAX_PARALLELISM
from tests.simulation.chain.chain_actors import (
    Actor,
    CollectorRun,
    DriverRun,
    Killed,
    MaterializerRun,
    Spark,
    World,
    restore,
)
from varvite.changelog.chain import reader as chain_reader
from varvite.changelog.chain.reader import ChainReader
from varvite.changelog.commit.base_decision import Adopt, Execute
from varvite.changelog.commit.ownership import ChainOwner, base_link
from varvite.changelog.retention.snapshots import SnapshotReader
from varvite.storage.errors import VarviteError

SEEDS = [int(os.environ["VARVITE_SEED"])] if "VARVITE_SEED" in os.environ else list(range(40))
STEPS = 1500
DRIVERS_MAX = 6


class Simulation:
    """Chooses at every step who goes on; anybody may be killed or stall for long."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.actors: list[Actor] = []
        self.failures: list[BaseException] = []
        self.trace: list[str] = []
        self.runs = 0

    def run(self, steps: int) -> None:
        for body in (MaterializerRun, MaterializerRun, CollectorRun, CollectorRun):
            self._start(body.__name__, body(self.world))
        try:
            for step in range(steps):
                self._step(step)
        finally:
            for actor in self.actors:
                actor.kill()
        for actor in self.actors:
            self._note(actor)

    def _step(self, step: int) -> None:
        rng = self.world.random
        drivers = [a for a in self.actors if a.name.startswith("driver") and not a.is_over]
        if not drivers or (len(drivers) < DRIVERS_MAX and rng.random() < 0.004):
            self.runs += 1
            self._start(f"driver {self.runs}", DriverRun(self.world))
        ready = [a for a in self.actors if not a.is_over and a.stalled_until <= step]
        if not ready:
            return
        actor = rng.choice(ready)
        self.trace.append(actor.name)
        claims = actor.operation == "put_if_absent"
        if rng.random() < (0.04 if claims else 0.004):
            actor.stalled_until = step + rng.randint(10, 400)
            self.world.clock.advance(rng.random() * 20)
        elif actor.name.startswith("driver") and rng.random() < 0.004:
            actor.kill()
        else:
            actor.step()
        self._note(actor)

    def _start(self, name: str, body: object) -> None:
        self.actors.append(Actor(name, body))  # type: ignore[arg-type]

    def _note(self, actor: Actor) -> None:
        if actor.is_over and actor.failure is not None:
            self.failures.append(actor.failure)
            if not isinstance(actor.failure, (VarviteError, Killed)):
                raise actor.failure


def finish(world: World) -> Execute | Adopt:
    """A run without faults at the end: it must find exactly what was acknowledged."""
    spark: Spark = world.spark
    reader = ChainReader(world.disk, world.job.job_id)
    chain = ChainOwner(reader, MAX_PARALLELISM, world.clock, world.tokens)
    chain.take_over()
    decision = chain.choose_base(spark.progress(), spark.sink if world.sink_tells else None)
    view = reader.load_line(base_link(decision), MAX_PARALLELISM).view
    restored = restore(world.disk, SnapshotReader(world.disk, world.job.job_id), view)
    assert restored == spark.states[view.base]
    spark.check_batches(restored, spark.acked + isinstance(decision, Adopt))
    return decision


@pytest.fixture(autouse=True)
def one_reading_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """With several the order of their operations would not be the scheduler's."""
    monkeypatch.setattr(chain_reader, "READ_THREADS", 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_the_acknowledged_state_is_there(seed: int) -> None:
    print(f"VARVITE_SEED={seed}")  # noqa: T201
    simulation = Simulation(seed)
    simulation.run(STEPS)
    finish(simulation.world)


def test_a_seed_replays_step_for_step() -> None:
    def run() -> tuple[list[str], int, list[str]]:
        simulation = Simulation(SEEDS[0])
        simulation.run(500)
        return simulation.trace, simulation.world.spark.acked, [m.name for m in simulation.world.disk.list("")]

    assert run() == run()


def test_the_simulation_goes_far_enough() -> None:
    """Progress, several runs, fencing, adopted snapshots and collected commits must all have happened."""
    acked = runs = fenced = adopted = collected = 0
    for seed in range(8):
        simulation = Simulation(seed)
        simulation.run(STEPS)
        world = simulation.world
        acked += world.spark.acked
        runs += simulation.runs
        fenced += sum(type(f).__name__ == "FencedError" for f in simulation.failures)
        reader = ChainReader(world.disk, world.job.job_id)
        head = reader.head()
        assert head is not None
        adopted += sum(f.number for f in head.floors)
        collected += head.seq - len(reader.list_seqs())
    assert acked > 40
    assert runs > 30
    assert fenced > 5
    assert adopted > 5
    assert collected > 20
