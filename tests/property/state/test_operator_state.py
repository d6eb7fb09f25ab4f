"""Random lives of a job with non-keyed state: every instance holds what a model says, whatever is lost on the way."""

from __future__ import annotations

import gc
import random
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.jobs.chain_job import ranges
from tests.jobs.worker_job import Operation, WorkerJob

STEPS = 15
CHOICES = ("add", "add", "clear", "union", "raw", "raw-keyed")


class RandomLife:
    """Chooses what happens next.

    Args:
        seed: Of all choices.
        directory: Must be empty.
    """

    def __init__(self, seed: int, directory: Path) -> None:
        self.random = random.Random(seed)
        self.job = WorkerJob(
            directory, changelog=self.random.random() < 0.9, inline_bytes_max=self.random.choice([0, 300, 1 << 20])
        )
        self.job.start(self.random.randint(1, 4))

    def step(self) -> None:
        """Something happens, then a batch."""
        chance, job = self.random.random(), self.job
        if chance < 0.25 and job.batch:
            parallelism = self.random.choice([job.parallelism, 1, 2, 3, 5])
            job.start(parallelism, redo=self.random.random() < 0.3, keep_workers=self.random.random() < 0.5)
        elif chance < 0.4:
            job.lose_worker(self.random.randrange(job.parallelism))
        elif chance < 0.6:
            partition = self.random.randrange(job.parallelism)
            failing = [Operation("fail")] if self.random.random() < 0.5 else []
            job.attempt(partition, [*self.operations(partition), *failing])
        job.commit(self.batch())
        assert job.held() == job.model
        if self.random.random() < 0.5:
            job.collect()

    def batch(self) -> dict[int, list[Operation]]:
        """Operations for some partitions, and perhaps a rule for all of them."""
        shared = [Operation("rule", self.random.randint(-9, 9))] if self.random.random() < 0.3 else []
        own = {p: self.operations(p) if self.random.random() < 0.5 else [] for p in range(self.job.parallelism)}
        return {partition: [*operations, *shared] for partition, operations in own.items()}

    def operations(self, partition: int) -> list[Operation]:
        """Some of them."""
        low, high = ranges(self.job.parallelism)[partition]
        return [
            Operation(self.random.choice(CHOICES), self.random.randint(0, 99), self.random.randrange(low, high))
            for _ in range(self.random.randint(0, 4))
        ]


@settings(max_examples=8)
@given(seed=st.integers(0, 2**32 - 1))
def test_instances_hold_what_the_model_says_through_losses_restarts_and_other_parallelisms(seed: int) -> None:
    thresholds = gc.get_threshold()
    with tempfile.TemporaryDirectory() as directory:
        life = RandomLife(seed, Path(directory))
        try:
            for _ in range(STEPS):
                life.step()
        finally:
            life.job.close()
            gc.set_threshold(*thresholds)
