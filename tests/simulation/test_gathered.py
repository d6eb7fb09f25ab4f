"""Batches whose segments the driver gathers in one object, through materialization, restore and collection."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.jobs.materializer_world import World
from tests.jobs.started_job import Started, fill, origin_of
from tests.jobs.state_model import KEY_GROUPS
from tests.stores.manual_clock import ManualClock
from varvite.changelog.commit.base_decision import SparkProgress
from varvite.changelog.commit.batch_result import BatchFacts, PartitionResult
from varvite.changelog.commit.gathered_segments import share_bytes
from varvite.changelog.commit.run import JobRun
from varvite.changelog.commit.state import CommitPolicy
from varvite.changelog.retention.collector import Collector
from varvite.storage.clock import SystemTokens
from varvite.storage.errors import DidNotHappenError
from varvite.storage.format import layout
from varvite.storage.format.records import OperatorLayout
from varvite.storage.object_stores.memory import MemoryStore
from varvite.storage.transfer.slice_reader import read_slice
from varvite.storage.transfer.upload import UploadPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GATHERS = CommitPolicy(full_every=5, inline_max_bytes=100)


@pytest.fixture
def gathering(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, policy=GATHERS)
    yield world
    world.close()


def gathered_names(world: World) -> list[str]:
    return [name for name in world.names(layout.SEGMENTS) if "/gathered-" in name]


def test_gathered_segments_are_restored_folded_and_collected(gathering: World) -> None:
    gathering.commit(3, images=(b"first", b"second"))
    assert len(gathered_names(gathering)) == 3
    images = gathering.reader.load_line(gathering.newest().link, KEY_GROUPS).view.images
    assert [read_slice(gathering.store, image.data) for image in images] == [b"first", b"second"]
    gathering.check()
    sidecar = gathering.sidecar()
    for _ in range(3):
        fill(gathering)
        assert sidecar.fold()
        gathering.commit(7)
        sidecar.poll()
        gathering.check()
    gathering.check_no_garbage()
    Started(gathering, origin_of(gathering, None), clone=True).check()


class Refusing(MemoryStore):
    """Refuses objects whose names have a word in them."""

    word = "no such word"

    def put(self, name: str, data: bytes) -> None:
        if self.word in name:
            raise DidNotHappenError("busy", object_name=name)
        super().put(name, data)


def test_a_batch_whose_object_cannot_be_stored_fails_and_poisons_nothing(tmp_path: Path) -> None:
    """Flink's failed upload makes every later checkpoint fail; here the batch is executed again, and that is all."""
    root = Refusing()
    world = World(tmp_path, root, policy=GATHERS)
    world.commit(2)
    before = world.newest()
    root.word = "gathered"
    with pytest.raises(DidNotHappenError, match="attempts to upload failed"):
        world.commit()
    assert world.newest() == before
    root.word = "no such word"
    world.job.start()
    world.commit(3)
    world.check()
    assert world.newest().batch == before.batch + 3
    world.close()


def test_what_a_failed_attempt_leaves_is_collected(gathering: World) -> None:
    gathering.commit(2)
    late = layout.gathered(gathering.newest().seq, "f" * 32)
    gathering.store.put(late, b"came late")
    gathering.commit(2)
    Collector(gathering.reader, gathering.clock, SystemTokens()).collect()
    assert late not in gathering.names(layout.SEGMENTS)
    gathering.check()


class Counting(MemoryStore):
    """Counts writes, by area."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: Counter[str] = Counter()

    def put(self, name: str, data: bytes) -> None:
        self.writes[name.split("/", maxsplit=1)[0]] += 1
        super().put(name, data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        self.writes[name.split("/", maxsplit=1)[0]] += 1
        return super().put_if_absent(name, data)


@pytest.mark.parametrize(("segment_bytes", "writes"), [(20_000, {"chain": 1}), (50_000, {"chain": 1, "seg": 1})])
def test_a_checkpoint_of_200_partitions_is_one_or_two_requests(segment_bytes: int, writes: dict[str, int]) -> None:
    partitions = 200
    assert segment_bytes <= share_bytes(partitions, CommitPolicy().inline_max_bytes, 10 << 20)
    store = Counting()
    run = JobRun.open(store, "job", 1000, CommitPolicy(), ManualClock(), SystemTokens(), uploads=UploadPolicy())
    run.take_over()
    run.choose_base(SparkProgress(0, "query", "hash", None), None)
    rng = random.Random(1)
    results = tuple(
        PartitionResult(
            operator="op", partition=p, low=p * 5, high=p * 5 + 5, tag=f"{p:032x}", inline=rng.randbytes(segment_bytes)
        )
        for p in range(partitions)
    )
    facts = BatchFacts(
        batch=0, query_id="query", source_hash="hash", time_ms=1, watermark_ms=None, results=results,
        operators=(
            OperatorLayout(uid="op", parallelism=partitions, key_type="1:string", changelog=True, backend="hashmap"),
        ),
    )  # fmt: skip
    store.writes.clear()
    commit = run.commit(facts, SystemTokens().token()).commit
    assert store.writes == writes
    for part, result in zip(commit.parts, results, strict=True):
        if part.uploaded:
            assert read_slice(store, part.uploaded[0]) == result.inline
    run.close()


def test_a_job_that_gathers_is_one_job_with_one_that_does_not(tmp_path: Path) -> None:
    world = World(tmp_path, policy=GATHERS)
    world.commit(3)
    world.job.policy = CommitPolicy(full_every=5)
    world.job.start()
    world.commit(3)
    world.check()
    world.job.policy = GATHERS
    world.job.start(redo=True)
    world.commit(9)
    world.check()
    world.close()
