"""Size of a job's storage, compared with its live state, while the whole state is overwritten again and again.

Flink's changelog keeps every intermediate value of a materialization interval, many times the state for a sliding
window. Here the policy bounds it: a range is materialized when its log is long compared with its base, those parts of a
base are rewritten of which too much is dead, and a full entry follows an adoption soon, so that old bases can go.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.jobs.materializer_world import CONFIG, World
from tests.jobs.state_model import BatchChanges, random_text
from varvite.changelog.commit.state import CommitPolicy
from varvite.materializer.fold.policy import RATIO_LOG_BYTES_MIN
from varvite.materializer.options.policy import MaterializePolicy
from varvite.storage.format.layout import SnapshotName

if TYPE_CHECKING:
    from pathlib import Path

    from varvite.storage.format.records import SnapshotDescriptor

KEYS = 5_000
DEFAULT_LOG_RATIO = MaterializePolicy.log_ratio
VALUE_BYTES = 1_000
BATCH_S = 5.0
INTERVAL_MS = 600_000
BATCHES = 90
WARM_UP = 20
RETAINED = 3
"""`execution.checkpointing.num-retained`, if nothing else is said."""


class Run:
    """A job that overwrites a part of its keys with every batch, and a materializer."""

    def __init__(
        self, directory: Path, part: float, retained: int = 2, ranges: int = 1, keys: int = KEYS, **config: object
    ) -> None:
        self.rng = random.Random(5)
        self.keys, self.value_bytes = (keys, VALUE_BYTES) if ranges == 1 else (1_000 * ranges, 4 * VALUE_BYTES)
        self.per_batch = int(self.keys * part)
        self.world = World(directory, parallelism=ranges, policy=CommitPolicy(retained=retained))
        self.sidecar = self.world.sidecar(replace(CONFIG, interval_ms=INTERVAL_MS, **config))  # type: ignore[arg-type]
        for start in range(0, self.keys, self.keys // 10):
            self.commit(range(start, start + self.keys // 10))
        self.sidecar.fold()
        self.commit([0])

    def commit(self, keys: range | list[int]) -> None:
        texts = {f"key {key}": random_text(self.rng, self.value_bytes) for key in keys}
        self.world.clock.advance(BATCH_S)
        self.world.wait_for_pack()
        self.world.job.commit(BatchChanges(events={key: (True, [text]) for key, text in texts.items()}))
        models = self.world.job.models
        self.world.job.models = dict(list(models.items())[-3:])
        self.sidecar.poll()

    def stored(self, batches: int = BATCHES) -> list[float]:
        """Bytes in the storage per byte of live state, after each batch but those of the warm-up."""
        found: list[float] = []
        for _ in range(batches):
            self.commit(self.rng.sample(range(self.keys), self.per_batch))
            stored_bytes = sum(meta.size_bytes for meta in self.world.store.list(""))
            found.append(stored_bytes / (self.keys * self.value_bytes))
        self.world.check()
        return found[WARM_UP:]

    def base(self) -> SnapshotDescriptor:
        view = self.world.reader.load_line(self.world.newest().link, 8).view
        [tile] = view.tiles
        return self.world.descriptor(SnapshotName(tile.operator, tile.low, tile.high, tile.snapshot or 0))


@pytest.mark.parametrize("part", [0.04, 0.005])
def test_storage_stays_near_the_state_and_one_interval_of_changes(tmp_path: Path, part: float) -> None:
    run = Run(tmp_path, part, log_ratio=DEFAULT_LOG_RATIO)
    stored = run.stored()
    changes = part * INTERVAL_MS / 1_000 / BATCH_S
    assert sum(stored) / len(stored) <= 1.3 * (1 + changes)
    run.world.close()


@pytest.mark.parametrize(
    ("part", "keys", "batches"),
    [
        (0.04, KEYS, 90),
        pytest.param(0.01, KEYS, 250, marks=pytest.mark.long),
        pytest.param(0.005, 4 * KEYS, 130, marks=pytest.mark.rare),
        pytest.param(0.005, KEYS, 300, marks=pytest.mark.long),
        pytest.param(0.002, 4 * KEYS, 250, marks=pytest.mark.rare),
        pytest.param(0.002, KEYS, 400, marks=pytest.mark.rare),
        pytest.param(0.0005, KEYS, 1_000, marks=pytest.mark.rare),
        pytest.param(0.0002, KEYS, 1_500, marks=pytest.mark.rare),
    ],
)
def test_storage_is_never_more_than_1_3_times_the_state_and_one_interval_of_changes(
    tmp_path: Path, part: float, keys: int, batches: int
) -> None:
    """With one range and the checkpoints that are retained by default, however slowly or quickly its keys change.

    As a whole its base would be rewritten to twice the state. Slow changes take long to come to what is most.
    """
    run = Run(tmp_path, part, RETAINED, keys=keys, log_ratio=DEFAULT_LOG_RATIO)
    changes = part * INTERVAL_MS / 1_000 / BATCH_S
    assert max(run.stored(batches)) <= 1.3 * (1 + changes)
    run.world.close()


@pytest.mark.long
def test_a_range_is_rewritten_a_part_at_a_time(tmp_path: Path) -> None:
    """So that most files of a base stay from one snapshot to the next."""
    run = Run(tmp_path, 0.005, RETAINED, keys=2 * KEYS, log_ratio=DEFAULT_LOG_RATIO)
    before = len(run.sidecar.materialized)
    run.stored(110)
    later = run.sidecar.materialized[before:]
    assert len(later) >= 5
    assert all(event.reused_bytes > event.uploaded_bytes for event in later)
    run.world.close()


@pytest.mark.rare
def test_a_base_that_was_replaced_goes_before_the_other_ranges_have_new_ones(tmp_path: Path) -> None:
    """They are folded one after another, and the log that the last one needs is older than the first one's new base."""
    run = Run(tmp_path, 0.005, RETAINED, ranges=8, log_ratio=DEFAULT_LOG_RATIO)
    assert max(run.stored(300)) <= 1.3 * (1 + 0.005 * INTERVAL_MS / 1_000 / BATCH_S)
    run.world.close()


@pytest.mark.long
def test_a_state_that_changes_as_a_whole_within_minutes_is_not_stored_many_times(tmp_path: Path) -> None:
    """By the interval alone it is, as the second run shows; the same batches, the same values."""
    bounded, by_interval = (
        Run(tmp_path / "a", 0.04, log_ratio=DEFAULT_LOG_RATIO),
        Run(tmp_path / "b", 0.04, space_ratio=9.0),
    )
    means = [sum(stored) / len(stored) for stored in (bounded.stored(), by_interval.stored())]
    assert means[0] <= 2.2
    assert means[0] <= 0.7 * means[1]
    for run in (bounded, by_interval):
        run.world.close()


def test_the_log_is_never_much_longer_than_its_part_of_the_base(tmp_path: Path) -> None:
    run = Run(tmp_path, 0.04, log_ratio=DEFAULT_LOG_RATIO)
    batch_bytes, before = 2 * run.per_batch * VALUE_BYTES, len(run.sidecar.materialized)
    for _ in range(30):
        run.commit(run.rng.sample(range(KEYS), run.per_batch))
        base_bytes = sum(file.size_bytes for file in run.base().files)
        log = run.world.reader.load_line(run.world.newest().link, 8).view.segments
        log_bytes = sum(ref.data.length for ref in log)
        # Two batches are not final or not adopted yet, and the last one may exceed the limit.
        assert log_bytes <= max(RATIO_LOG_BYTES_MIN, DEFAULT_LOG_RATIO * base_bytes) + 3 * batch_bytes
    assert {e.trigger for e in run.sidecar.materialized[before:]} == {"log-ratio"}
    run.world.close()
