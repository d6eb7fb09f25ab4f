"""Random chains: what full entry, path, packs, tiles and snapshots resolve to equals walking all parents."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.jobs.chain_job import MAX_PARALLELISM, OPERATOR, ChainJob, ranges
from varvite.changelog.chain.reader import ChainReader
from varvite.changelog.chain.view import LineView
from varvite.changelog.chain.view_slices import ViewSlices, slices_of
from varvite.changelog.commit.base_decision import Execute
from varvite.changelog.commit.batch_result import PartitionResult, files_to_rewrite
from varvite.changelog.commit.pack import Pack, PackHeader, plan_pack
from varvite.changelog.commit.plan import Adoption
from varvite.changelog.commit.state import ChainState, CommitPolicy
from varvite.storage.format import layout
from varvite.storage.format.layout import object_slot
from varvite.storage.format.records import Commit, Link, ObjectSlice, SegmentRef, SnapshotFile, SnapshotFloor, Tile
from varvite.storage.transfer.slice_reader import read_slice

Mutation = tuple[int, int]
"""(seq, number) of one mutation."""
Images = dict[tuple[int, int], bytes]
"""(Parallelism, partition) → the image that counts."""
History = dict[int, tuple[Mutation, ...]]
"""Key group → all mutations of its state, in order."""


def encode(seq: int, low: int, high: int, number: int) -> bytes:
    """A self-framed segment: one mutation for every key group of its range."""
    return json.dumps([seq, low, high, number]).encode() + b"\n"


class RandomJob:
    """Commits at random, remembers what every commit's state is, by following parents only."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        policy = CommitPolicy(
            retained=self.random.randint(2, 4), full_every=self.random.randint(1, 5), path_max=self.random.randint(5, 9)
        )
        self.job = ChainJob(policy)
        self.is_quiet = self.random.random() < 0.3
        """Keyed state never changes: then nothing but images is old."""
        self.images: dict[Link, Images] = {Link(0, ""): {}}
        self.histories: dict[Link, History] = {Link(0, ""): dict.fromkeys(range(MAX_PARALLELISM), ())}
        self.commits: dict[Link, Commit] = {}
        self.snapshots: dict[tuple[int, int, int], Link] = {}
        self.driver = self.job.driver(0)
        self.batch = 0
        self.number = 0

    def step(self) -> None:
        if self.batch and self.random.random() < 0.2:
            self.restart()
        state = self.driver.state
        parallelism = self.random.choice([2] * 6 + [1, 8] if self.is_quiet else [1, 2, 3, 8])
        writes_files = self.random.random() < 0.15 and not self.is_quiet
        results = tuple(
            self.result(state, partition, low, high, writes_files=writes_files)
            for partition, (low, high) in enumerate(ranges(parallelism))
        )
        adoption = self.adoption(state.view) if self.random.random() < 0.3 else Adoption()
        pack = self.pack(state) if state.is_full_due(self.job.policy) and self.random.random() < 0.7 else None
        plan = self.driver.commit(self.batch, results, adoption, pack)
        history = dict(self.histories[state.view.base])
        for result in results:
            for kg in range(result.low, result.high):
                history[kg] += self.made.get((result.partition, kg), ())
        self.histories[plan.commit.link] = history
        self.images[plan.commit.link] = self.images_after(state.view.base, results)
        self.commits[plan.commit.link] = plan.commit
        self.batch += 1

    def images_after(self, base: Link, results: tuple[PartitionResult, ...]) -> Images:
        """Images that the partitions have written, the newest of each, as long as there are as many."""
        count = len(results)
        kept = {place: data for place, data in self.images[base].items() if place[0] == count}
        store = self.job.store
        for result in results:
            place, uploaded = (count, result.partition), result.image_uploaded
            if result.image or uploaded is not None:
                kept[place] = result.image or (store.get(uploaded.name) if uploaded else b"")
        return kept

    def restart(self) -> None:
        """A new run; Spark asks for the next batch, or for the last one again."""
        if self.random.random() < 0.5:
            self.batch -= 1
        self.driver = self.job.driver()
        decision = self.driver.start(self.batch)
        assert isinstance(decision, Execute)

    def result(self, state: ChainState, partition: int, low: int, high: int, *, writes_files: bool) -> PartitionResult:
        if partition == 0:
            self.made: dict[tuple[int, int], tuple[Mutation, ...]] = {}
        parts = [] if self.is_quiet or self.random.random() < 0.3 else [self.mutate(state.slot, partition, low, high)]
        while parts and self.random.random() < 0.3:
            parts.append(self.mutate(state.slot, partition, low, high))
        tag = f"{self.number}"
        image, image_uploaded = self.image(state.slot, partition, tag)
        if writes_files:
            return PartitionResult(
                operator=OPERATOR, partition=partition, low=low, high=high, tag=tag, image=image,
                image_uploaded=image_uploaded, files=self.files(state, partition, low, high, tag),
            )  # fmt: skip
        inline = parts.pop() if parts and self.random.random() < 0.7 else b""
        uploaded = tuple(self.upload(state.slot, partition, tag, i, part) for i, part in enumerate(parts))
        return PartitionResult(
            operator=OPERATOR, partition=partition, low=low, high=high, tag=tag, inline=inline, uploaded=uploaded,
            image=image, image_uploaded=image_uploaded,
        )  # fmt: skip

    def image(self, slot: int, partition: int, tag: str) -> tuple[bytes, ObjectSlice | None]:
        """Mostly none; often one that other partitions have as well."""
        if self.random.random() < 0.8:
            return b"", None
        data = b"image %d" % (slot if self.random.random() < 0.5 else self.number)
        if self.random.random() < 0.7:
            return data, None
        name = layout.image(slot, OPERATOR, partition, tag)
        self.job.store.put(name, data)
        return b"", ObjectSlice(name, 0, len(data), zlib.crc32(data))

    def mutate(self, slot: int, partition: int, low: int, high: int) -> bytes:
        self.number += 1
        for kg in range(low, high):
            self.made[partition, kg] = (*self.made.get((partition, kg), ()), (slot, self.number))
        return encode(slot, low, high, self.number)

    def upload(self, slot: int, partition: int, tag: str, index: int, data: bytes) -> ObjectSlice:
        name = layout.segment(slot, OPERATOR, partition, tag, index)
        self.job.store.put(name, data)
        return ObjectSlice(name, 0, len(data), zlib.crc32(data))

    def files(self, state: ChainState, partition: int, low: int, high: int, tag: str) -> tuple[SnapshotFile, ...]:
        """New files, and those of a base tile of the same range that are young enough."""
        name = layout.segment(state.slot, OPERATOR, partition, tag, 0)
        self.job.store.put(name, b"file")
        tiles = [t for t in state.view.tiles if (t.low, t.high) == (low, high)]
        reused = [
            f for t in tiles for f in t.files if f.file not in files_to_rewrite(t, state.slot, 4)
        ]  # fmt: skip
        return (SnapshotFile(f"{state.slot}.sst", name, 4, 0), *reused)

    def adoption(self, view: LineView) -> Adoption:
        """Snapshots of some tiles, at random newer commits of the line."""
        tiles: list[Tile] = []
        floors: list[SnapshotFloor] = []
        for tile in view.tiles:
            newer = [link for link in view.line if link.seq > tile.at.seq]
            if newer and self.random.random() < 0.6:
                at, number = self.random.choice(newer), len(self.snapshots) + 1
                self.snapshots[tile.low, tile.high, number] = at
                tiles.append(Tile(operator=OPERATOR, low=tile.low, high=tile.high, at=at, snapshot=number))
                floors.append(SnapshotFloor(OPERATOR, tile.low, tile.high, number))
        return Adoption(tuple(tiles), tuple(floors))

    def pack(self, state: ChainState) -> Pack | None:
        """A pack of all inline segments, or of all that are not the newest; and of some images."""
        refs = [r for r in state.packable() if self.random.random() < 0.9]
        copied = [i for i in state.view.images if self.random.random() < 0.9]
        if not refs and not copied:
            return None
        data = {ref: read_slice(self.job.store, ref.data) for ref in refs}
        images = {image: read_slice(self.job.store, image.data) for image in copied}
        header = PackHeader(job_id=self.job.record.job_id, token=f"p{state.slot}", slot=state.slot)
        pack = plan_pack(state.view.segments, data, header, images)
        self.job.store.put(pack.name, pack.body)
        return pack

    def restored(self, view: LineView) -> History:
        """The state by tiles and segments only; what a snapshot holds is what its commit's state was."""
        found: History = {}
        for low, high in ranges(self.random.choice([1, 2, 3, 8])):
            for tile in view.tiles_for(OPERATOR, low, high):
                if tile.snapshot is not None:
                    assert self.snapshots[tile.low, tile.high, tile.snapshot] == tile.at
                for file in tile.files:
                    assert self.job.store.get(file.name) == b"file"
                for kg in range(max(low, tile.low), min(high, tile.high)):
                    found[kg] = self.histories[tile.at][kg] if tile.snapshot is not None or tile.files else ()
            self.replayed(view, low, high, found)
        return found

    def restored_images(self, view: LineView) -> Images:
        """The images that the view names."""
        return {(i.parallelism, i.partition): read_slice(self.job.store, i.data) for i in view.images_for(OPERATOR)}

    def replayed(self, view: LineView, low: int, high: int, found: History) -> None:
        """Add what the segments say of key groups [low, high)."""
        for segment in view.segments_for(OPERATOR, low, high):
            for seq, first, last, number in self.mutations(segment.ref):
                for floor in segment.floors:
                    for kg in range(max(first, floor.low), min(last, floor.high)):
                        if seq > floor.seq:
                            found[kg] += ((seq, number),)

    def mutations(self, ref: SegmentRef) -> Iterable[list[int]]:
        lines = read_slice(self.job.store, ref.data).splitlines()
        for line in lines:
            decoded = json.loads(line)
            assert decoded[1:3] == [ref.low, ref.high]
            assert ref.seq_first <= decoded[0] <= ref.seq_last
            yield decoded

    def references(self, view: LineView) -> set[str]:
        names = {ref.data.name for ref in (*view.segments, *view.images)} | {
            f.name for t in view.tiles for f in t.files
        }
        return names | {layout.chain(link.seq) for link in (view.full, *view.path)}


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), steps=st.integers(1, 25))
def test_a_view_resolves_to_the_state_that_following_all_parents_gives(seed: int, steps: int) -> None:
    job = RandomJob(seed)
    for _ in range(steps):
        job.step()
        view = job.driver.state.view
        assert job.restored(view) == job.histories[view.base]
        assert job.restored_images(view) == job.images[view.base]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), steps=st.integers(1, 25))
def test_advancing_in_memory_equals_reading_anew(seed: int, steps: int) -> None:
    job = RandomJob(seed)
    for _ in range(steps):
        job.step()
        view = job.driver.state.view
        assert job.job.reader.load_line(view.base, MAX_PARALLELISM).view == view
        assert [link for link in view.line if link in job.commits] == list(view.line)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), steps=st.integers(2, 25))
def test_needs_from_covers_all_that_is_referred_to_and_retained_commits_survive_truncation(
    seed: int, steps: int
) -> None:
    job = RandomJob(seed)
    for _ in range(steps):
        job.step()
        commit = job.driver.state.base
        assert commit is not None
        assert min(object_slot(name) for name in job.references(job.driver.state.view)) >= commit.needs_from
        truncate(job, commit.keep_from)
        for link in (commit.link, commit.parent):
            view = ChainReader(job.job.store, job.job.record.job_id).load_line(link, MAX_PARALLELISM).view
            if link.seq:
                assert job.restored(view) == job.histories[link]
                assert job.restored_images(view) == job.images[link]


def truncate(job: RandomJob, keep_from: int) -> None:
    """Delete every commit, segment and pack below `keep_from`, as the collector may."""
    store = job.job.store
    names = [m.name for area in (layout.CHAIN, layout.SEGMENTS, layout.PACKS) for m in store.list(area)]
    commits = {layout.chain(link.seq) for link in job.commits}
    store.delete(n for n in names if object_slot(n) < keep_from and (not n.startswith(layout.CHAIN) or n in commits))


@pytest.mark.parametrize("seed", range(5))
def test_what_is_kept_stays_bounded_while_snapshots_are_adopted(seed: int) -> None:
    """I10: the log does not grow for ever."""
    job = RandomJob(seed)
    for _ in range(80):
        job.step()
    state = job.driver.state
    assert state.base is not None
    assert len(state.view.path) < job.job.policy.path_max
    assert state.keep_from > 0


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), steps=st.integers(1, 25))
def test_a_slice_answers_for_its_partition_as_the_view_does(seed: int, steps: int) -> None:
    job = RandomJob(seed)
    for _ in range(steps):
        job.step()
    view, parallelism = job.driver.state.view, job.random.choice([1, 2, 3, 8])
    sent = slices_of(view, OPERATOR, parallelism)
    for partition, (low, high) in enumerate(ranges(parallelism)):
        arrived = msgspec.msgpack.decode(msgspec.msgpack.encode(sent.only(partition)), type=ViewSlices)
        cut = arrived.view(partition)
        assert arrived.slices.keys() == {partition}
        assert (cut.base, cut.needs_from, cut.line) == (view.base, view.needs_from, view.line)
        assert cut.tiles_for(OPERATOR, low, high) == view.tiles_for(OPERATOR, low, high)
        assert cut.segments_for(OPERATOR, low, high) == view.segments_for(OPERATOR, low, high)
        assert cut.images_for(OPERATOR) == view.images_for(OPERATOR)
        assert all(cut.holds(link) for link in view.line)
