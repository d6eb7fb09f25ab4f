"""Images of non-keyed state in the chain: what counts, what is copied, what is collected."""

from __future__ import annotations

import zlib

import msgspec
import pytest

from tests.jobs.chain_job import OPERATOR, ChainJob, Driver, layout_of, results_of
from varvite.changelog.chain import images as image_refs
from varvite.changelog.chain.images import images_to_copy
from varvite.changelog.commit.batch_result import PartitionResult
from varvite.changelog.commit.pack_upload import PackUpload
from varvite.changelog.commit.plan import plan_commit
from varvite.changelog.commit.state import CommitPolicy
from varvite.changelog.retention.collector import Collector
from varvite.storage.errors import InvariantError
from varvite.storage.format import layout
from varvite.storage.format.records import ImageRef, ObjectSlice, decode_entry
from varvite.storage.transfer.slice_reader import read_slice

POLICY = CommitPolicy(full_every=3, path_max=6)


def with_images(*images: bytes) -> tuple[PartitionResult, ...]:
    """Results of as many partitions, without segments; b"" for no image."""
    results = results_of([b""] * len(images))
    return tuple(msgspec.structs.replace(r, image=image) for r, image in zip(results, images, strict=True))


def uploaded(driver: Driver, data: bytes) -> tuple[PartitionResult, ...]:
    """A result with an uploaded image."""
    name = layout.image(driver.state.slot, OPERATOR, 0, "t")
    driver.job.store.put(name, data)
    place = ObjectSlice(name, 0, len(data), zlib.crc32(data))
    return (msgspec.structs.replace(results_of([b""])[0], image_uploaded=place),)


def held(driver: Driver) -> list[bytes]:
    """The images that count, by partition."""
    return [read_slice(driver.job.store, image.data) for image in driver.state.view.images_for(OPERATOR)]


class Packing:
    """A driver whose packs are always ready."""

    def __init__(self, job: ChainJob) -> None:
        self.driver = job.driver(0)
        self.packs = PackUpload(job.store, job.tokens, job.policy)
        self.batch = 0

    def commit(self, results: tuple[PartitionResult, ...]) -> Driver:
        """The next batch."""
        self.packs.start(self.driver.state)
        upload = self.packs._upload
        if upload is not None:
            upload[1].result()
        plan = self.driver.commit(self.batch, results, pack=self.packs.take(self.driver.state))
        self.packs.remember(plan.stored, plan.body)
        self.batch += 1
        return self.driver


class TestWhatCounts:
    def test_the_newest_image_of_each_partition_counts(self) -> None:
        driver = ChainJob().driver(0)
        driver.commit(0, with_images(b"a0", b"", b"c0"))
        driver.commit(1, with_images(b"", b"b1", b"c1"))
        driver.commit(2, with_images(b"", b"", b""))
        assert held(driver) == [b"a0", b"b1", b"c1"]
        assert [image.seq for image in driver.state.view.images] == [2, 3, 3]

    def test_equal_images_stand_in_the_blob_once(self) -> None:
        driver = ChainJob().driver(0)
        plan = driver.commit(0, with_images(b"same", b"same", b"other", b"same"))
        assert bytes(decode_entry(plan.body, "x")[1]) == b"sameother"
        assert held(driver) == [b"same", b"same", b"other", b"same"]

    def test_segments_and_images_share_the_blob(self) -> None:
        driver = ChainJob().driver(0)
        results = results_of([b"one", b"two"])
        driver.commit(0, tuple(msgspec.structs.replace(r, image=b"image") for r in results))
        assert held(driver) == [b"image", b"image"]
        assert [read_slice(driver.job.store, s.data) for s in driver.state.view.segments] == [b"one", b"two"]

    def test_with_another_parallelism_old_images_count_no_more(self) -> None:
        driver = ChainJob().driver(0)
        driver.commit(0, with_images(b"a", b"b"))
        driver.commit(1, with_images(b"", b"", b"c"))
        assert held(driver) == [b"c"]
        assert [(image.partition, image.parallelism) for image in driver.state.view.images] == [(2, 3)]

    def test_images_go_with_their_operator(self) -> None:
        driver = ChainJob().driver(0)
        other = msgspec.structs.replace(with_images(b"x")[0], operator="other")
        driver.commit(0, (*with_images(b"a"), other))
        assert driver.state.view.images_for("other")
        facts = msgspec.structs.replace(
            driver.facts(1, with_images(b"")), operators=(layout_of(1),), dropped=frozenset({"other"})
        )
        plan = plan_commit(driver.state, facts, driver.job.policy, "token")
        assert [image.operator for image in plan.carried_over.images] == [OPERATOR]

    def test_a_result_has_one_image_and_only_of_its_slot(self) -> None:
        driver = ChainJob().driver(0)
        own = uploaded(driver, b"large")[0]
        with pytest.raises(InvariantError, match="two images"):
            driver.plan(0, (msgspec.structs.replace(own, image=b"small"),))
        driver.commit(0, (own,))
        with pytest.raises(InvariantError, match="neither belongs to the slot"):
            driver.plan(1, (own,))


class TestFullEntries:
    def test_a_full_entry_copies_images_so_that_nothing_before_it_is_needed(self) -> None:
        job = ChainJob(POLICY)
        packing = Packing(job)
        packing.commit(with_images(b"a", b"b"))
        entries = [packing.commit(with_images(b"", b"")).state.base for _ in range(6)]
        assert [e is not None and e.is_full for e in entries] == [False, False, True, False, False, True]
        last = entries[-1]
        assert last is not None
        assert {image.data.name for image in last.images} == {layout.pack(last.seq, last.images[0].data.name[-32:])}
        assert last.needs_from == last.seq
        assert held(packing.driver) == [b"a", b"b"]
        assert [image.seq for image in last.images] == [2, 2], "still as of the commit that wrote it"

    def test_an_image_that_the_full_entrys_own_batch_replaces_is_not_named(self) -> None:
        packing = Packing(ChainJob(POLICY))
        for n in range(4):
            packing.commit(with_images(b"a%d" % n, b"b" if n == 0 else b""))
        base = packing.driver.state.base
        assert base is not None
        assert base.is_full
        assert [image.partition for image in base.images] == [1]
        assert held(packing.driver) == [b"a3", b"b"]

    def test_uploaded_images_are_copied_too(self) -> None:
        packing = Packing(ChainJob(POLICY))
        packing.commit(uploaded(packing.driver, b"large"))
        for _ in range(3):
            packing.commit(with_images(b""))
        assert packing.driver.state.view.images[0].data.name.startswith(layout.PACKS)
        assert held(packing.driver) == [b"large"]

    def test_without_a_pack_a_full_entry_names_images_where_they_are(self) -> None:
        driver = ChainJob(POLICY).driver(0)
        driver.commit(0, with_images(b"a"))
        entries = [driver.commit(n, with_images(b"")).commit for n in range(1, 7)]
        assert [e.is_full for e in entries] == [False] * 5 + [True]
        assert entries[-1].needs_from == 2
        assert held(driver) == [b"a"]

    def test_a_replaced_image_no_longer_holds_the_log_back(self) -> None:
        driver = ChainJob(POLICY).driver(0)
        driver.commit(0, with_images(b"a"))
        for n in range(1, 7):
            driver.commit(n, with_images(b""))
        assert driver.commit(7, with_images(b"new")).commit.needs_from == 8, "the full entry is the oldest again"

    def test_after_collection_the_head_still_has_every_image(self) -> None:
        job = ChainJob(CommitPolicy(retained=2, full_every=2, path_max=4))
        packing = Packing(job)
        packing.commit(with_images(b"a", b"b"))
        deleted = 0
        for n in range(12):
            packing.commit(with_images(b"", b"b%d" % n if n % 5 == 0 else b""))
            deleted += Collector(job.reader, job.clock, job.tokens).collect().deleted
            base = packing.driver.state.view.base
            view = job.reader.load_line(base, 8).view
            assert [read_slice(job.store, image.data) for image in view.images] == [b"a", b"b%d" % (n // 5 * 5)]
        assert deleted > 8
        assert job.reader.list_seqs()[1] > 8, "the first commit's image is long gone from where it was"


class TestCopying:
    def image(self, slot: int, partition: int, size_bytes: int, offset: int = 0) -> ImageRef:
        place = ObjectSlice(layout.pack(slot, "t"), offset, size_bytes, 0)
        return ImageRef(OPERATOR, partition, 4, slot, place)

    def test_the_oldest_are_copied_first_up_to_the_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(image_refs, "COPY_BYTES", 100)
        images = [self.image(9, 0, 60), self.image(7, 1, 60), self.image(8, 2, 40), self.image(9, 3, 1, 60)]
        assert [image.partition for image in images_to_copy(images)] == [1, 2]

    def test_one_that_is_larger_than_the_limit_is_copied_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(image_refs, "COPY_BYTES", 100)
        assert [i.partition for i in images_to_copy([self.image(8, 0, 1), self.image(7, 1, 500)])] == [1]
        assert images_to_copy([]) == ()

    def test_what_partitions_share_counts_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(image_refs, "COPY_BYTES", 100)
        assert len(images_to_copy([self.image(8, partition, 90) for partition in range(4)])) == 4
