"""The collector, pins and snapshots over a memory store."""

from __future__ import annotations

import threading

import pytest

from tests.jobs.chain_job import MAX_PARALLELISM, OPERATOR, ChainJob, Driver, results_of
from varvite.changelog.chain.reader import READ_THREADS, ChainReader
from varvite.changelog.commit.adopt_decision import decide_adoption
from varvite.changelog.commit.state import CommitPolicy
from varvite.changelog.retention.collector import UPLOAD_GRACE_S, Collector, CollectReport
from varvite.changelog.retention.pins import create_pin, list_pins, release_pin
from varvite.changelog.retention.savepoints import create_native, delete_savepoint, list_all_savepoints, list_savepoints
from varvite.changelog.retention.snapshots import SnapshotReader, list_snapshots, next_number, publish
from varvite.storage.errors import CorruptDataError, DidNotHappenError, MayHaveHappenedError, MissingObjectError
from varvite.storage.format import layout
from varvite.storage.format.layout import SnapshotName
from varvite.storage.format.records import (
    ORIGIN,
    Commit,
    Link,
    Savepoint,
    SnapshotDescriptor,
    SnapshotFile,
    SnapshotFloor,
    encode_record,
)
from varvite.storage.object_stores.contract import ObjectMeta
from varvite.storage.object_stores.memory import MemoryStore

FULL = CommitPolicy(full_every=1)
NAME = SnapshotName(OPERATOR, 0, 8, 1)


def names(job: ChainJob, prefix: str = "") -> list[str]:
    return [meta.name for meta in job.store.list(prefix)]


def chain_seqs(job: ChainJob) -> list[int]:
    return [layout.chain_seq(name) for name in names(job, layout.CHAIN)]


def collector(job: ChainJob) -> Collector:
    return Collector(job.reader, job.clock, job.tokens)


def empty(driver: Driver, batch: int) -> Commit:
    return driver.commit(batch, results_of([b""])).commit


def upload(job: ChainJob, number: int, uid: str = "u", file: str = "1.sst") -> SnapshotFile:
    name = layout.snapshot_file(OPERATOR, 0, 8, number, uid, file)
    job.store.put(name, b"file")
    return SnapshotFile(file, name, 4, 0)


def snapshot(
    job: ChainJob, number: int, at: Link, base: Link = ORIGIN, *shared: SnapshotFile, uid: str = "u"
) -> SnapshotDescriptor:
    return SnapshotDescriptor(
        status="published", job_id=job.record.job_id, token=f"token-{number}-{uid}", uid=uid, operator=OPERATOR, low=0,
        high=8, number=number, at=at, base=base, files=(upload(job, number, uid), *shared), created_ms=0,
    )  # fmt: skip


def adopt(driver: Driver, batch: int, changes: bytes = b"x") -> Commit:
    """Commit a batch with whatever snapshot may be adopted."""
    job, state = driver.job, driver.state
    reader = SnapshotReader(job.store, job.record.job_id)
    found = decide_adoption(
        state.view, state.floors, reader.candidates(state.floors), reader.tile_files(state.view), state.job_id
    )
    return driver.commit(batch, results_of([changes]), found).commit


class TestCollecting:
    def test_nothing_happens_to_an_empty_job(self) -> None:
        assert collector(ChainJob()).collect() == CollectReport()

    def test_commits_below_the_cut_go_and_fences_stay(self) -> None:
        job = ChainJob(FULL)
        driver = job.driver(0)
        for n in range(3):
            empty(driver, n)
        driver = job.driver(3)
        for n in range(3, 6):
            empty(driver, n)
        report = collector(job).collect()
        assert chain_seqs(job) == [1, 5, 7, 8]
        assert (report.head_seq, report.cut, report.deleted) == (8, 7, 4)
        assert collector(job).collect().deleted == 0

    def test_what_somebody_in_the_process_still_reads_is_kept(self) -> None:
        job = ChainJob(FULL)
        driver = job.driver(0)
        for n in range(5):
            empty(driver, n)
        assert collector(job).collect(keep_from=4).cut == 4
        assert chain_seqs(job) == [1, 4, 5, 6]
        assert collector(job).collect(keep_from=6).cut == 5, "never more than otherwise"
        assert chain_seqs(job) == [1, 5, 6]

    def test_a_dry_run_tells_and_leaves_everything(self) -> None:
        job = ChainJob(FULL)
        driver = job.driver(0)
        for n in range(4):
            empty(driver, n)
        upload(job, 9)
        job.clock.advance(UPLOAD_GRACE_S + 1)
        before = names(job)
        report = collector(job).collect(dry_run=True)
        assert report.entries == (layout.chain(2), layout.chain(3))
        assert report.aborted == (layout.snapshot(OPERATOR, 0, 8, 9),)
        assert names(job) == before

    def test_objects_of_losers_and_of_old_slots_go(self) -> None:
        job = ChainJob(FULL)
        driver = job.driver(0)
        kept: list[str] = []
        for n in range(4):
            slot = driver.state.slot
            for tag in ("won", "lost"):
                name = layout.segment(slot, OPERATOR, 0, tag, 0)
                job.store.put(name, b"file")
                if tag == "won":
                    kept.append(name)
            files = (SnapshotFile("f", kept[-1], 4, 0),)
            results = tuple(type(r)(**{**_fields(r), "files": files}) for r in results_of([b""]))
            driver.commit(n, results)
        job.store.put(layout.pack(5, "late"), b"pack")
        job.store.put(layout.segment(6, OPERATOR, 0, "next", 0), b"in flight")
        collector(job).collect()
        assert names(job, layout.SEGMENTS) == [*kept[2:], layout.segment(6, OPERATOR, 0, "next", 0)]
        assert names(job, layout.PACKS) == []

    def test_deleting_goes_in_bounded_calls(self) -> None:
        calls: list[int] = []

        class Counting(MemoryStore):
            def delete(self, names: object) -> None:
                wanted = list(names)  # type: ignore[call-overload]
                calls.append(len(wanted))
                super().delete(wanted)

        job = ChainJob(FULL, store=Counting())
        driver = job.driver(0)
        for n in range(3):
            empty(driver, n)
        for n in range(2500):
            job.store.put(layout.segment(2, OPERATOR, 0, f"{n}", 0), b"")
        assert len(collector(job).collect().segments) == 2500
        assert calls == [1, 1000, 1000, 500]

    def test_a_collector_that_another_is_ahead_of_leaves_it_to_the_next_run(self) -> None:
        job = ChainJob(FULL)
        driver = job.driver(0)
        for n in range(3):
            empty(driver, n)
        late = collector(job)
        real = job.reader.list_seqs
        job.reader.list_seqs = lambda start_after=0: (*real(start_after), *([] if start_after else [3, 3]))  # type: ignore[method-assign]
        job.store.delete([layout.chain(3)])
        assert late.collect() == CollectReport(head_seq=4, cut=3, raced=True)

    def test_a_damaged_entry_below_the_cut_is_left_and_told(self) -> None:
        job = ChainJob(FULL)
        driver = job.driver(0)
        for n in range(4):
            empty(driver, n)
        job.store.put(layout.chain(2), b"x" * 60)
        report = collector(job).collect()
        assert (report.entries, report.unreadable) == ((layout.chain(3),), (layout.chain(2),))

    def test_a_damaged_retained_entry_stops_everything(self) -> None:
        job = ChainJob(FULL)
        driver = job.driver(0)
        for n in range(4):
            empty(driver, n)
        job.store.put(layout.chain(4), b"x" * 60)
        before = names(job)
        with pytest.raises(CorruptDataError) as caught:
            collector(job).collect()
        assert caught.value.context["object_name"] == layout.chain(4)
        assert names(job) == before


def _fields(record: object) -> dict[str, object]:
    return {field: getattr(record, field) for field in record.__struct_fields__}  # type: ignore[attr-defined]


class TestSnapshots:
    def test_a_number_is_claimed_once(self) -> None:
        job = ChainJob()
        mine, theirs = snapshot(job, 1, Link(2, "t")), snapshot(job, 1, Link(2, "t"), uid="v")
        assert publish(job.store, theirs, job.clock).won
        lost = publish(job.store, mine, job.clock)
        assert (lost.won, lost.other) == (False, theirs)
        assert list_snapshots(job.store) == list_snapshots(job.store, OPERATOR) == (NAME,)
        assert list_snapshots(job.store, "op2") == ()

    def test_the_next_number_is_above_floor_and_list(self) -> None:
        floors = (SnapshotFloor(OPERATOR, 0, 8, 4), SnapshotFloor(OPERATOR, 0, 4, 9))
        assert next_number(floors, [NAME], NAME) == 5
        assert next_number(floors, [NAME._replace(number=7)], NAME) == 8
        assert next_number((), [], NAME) == 1

    def test_descriptors_are_read_once_and_forgotten_when_they_are_gone(self) -> None:
        job = ChainJob()
        made = snapshot(job, 1, Link(2, "t"))
        publish(job.store, made, job.clock)
        reader = SnapshotReader(job.store, job.record.job_id)
        assert reader.candidates(()) == reader.list_all() == (made,)
        assert reader.candidates((SnapshotFloor(OPERATOR, 0, 8, 1),)) == ()
        assert reader.read(NAME) == made
        job.store.delete([layout.snapshot(*NAME)])
        assert reader.read(NAME) == made
        assert reader.list_all() == ()
        with pytest.raises(MissingObjectError):
            reader.read(NAME)

    def test_a_descriptor_under_another_name_or_of_another_job_is_found(self) -> None:
        job = ChainJob()
        made = snapshot(job, 1, Link(2, "t"))
        job.store.put(layout.snapshot(OPERATOR, 0, 8, 2), encode_record(made))
        for job_id, name in ((job.record.job_id, NAME._replace(number=2)), ("another", NAME)):
            publish(job.store, made, job.clock)
            with pytest.raises(CorruptDataError) as caught:
                SnapshotReader(job.store, job_id).read(name)
            assert caught.value.context["object_name"] == layout.snapshot(*name)

    def test_adoption_and_collection_from_end_to_end(self) -> None:
        """Three snapshots, the later two sharing a file of the first, whose own descriptor goes."""
        job = ChainJob(CommitPolicy(full_every=2, path_max=2))
        driver = job.driver(0)
        base, links, shared = ORIGIN, [], ()
        for n in range(9):
            if n in (2, 4, 6):
                made = snapshot(job, len(links) + 1, driver.state.view.base, base, *shared)
                assert publish(job.store, made, job.clock).won
                shared = shared or made.files
                base = made.at
                links.append(made.at)
            commit = adopt(driver, n)
            collector(job).collect()
            view = job.reader.load_line(commit.link, MAX_PARALLELISM).view
            assert view == driver.state.view
            for name, files in SnapshotReader(job.store, job.record.job_id).tile_files(view).items():
                assert name.number == len(links)
                assert all(job.store.get(file) == b"file" for file in files)
        assert [t.at for t in driver.state.view.tiles] == [links[-1]]
        assert [n.number for n in list_snapshots(job.store)] == [3]
        assert names(job, layout.SNAPSHOT_FILES) == [upload(job, 1).name, upload(job, 3).name]
        assert commit.floors == (SnapshotFloor(OPERATOR, 0, 8, 3),)

    def test_uploads_that_nobody_publishes_are_given_up_by_claim(self) -> None:
        job = ChainJob()
        job.driver(0).commit(0)
        upload(job, 1, "slow"), upload(job, 1, "slow", "2.sst")
        assert collector(job).collect().deleted == 0
        job.clock.advance(UPLOAD_GRACE_S + 1)
        report = collector(job).collect()
        assert report.aborted == (layout.snapshot(*NAME),)
        assert names(job, layout.SNAPSHOT_FILES) == []
        lost = publish(job.store, snapshot(job, 1, Link(2, "t"), uid="slow"), job.clock)
        assert not lost.won
        assert lost.other is not None
        assert lost.other.status == "aborted"
        assert collector(job).collect().files == (layout.snapshot_file(OPERATOR, 0, 8, 1, "slow", "1.sst"),)

    def test_an_upload_that_is_published_at_the_last_moment_stays(self) -> None:
        job = ChainJob()
        job.driver(0).commit(0)
        made = snapshot(job, 1, Link(2, "t"))

        job.clock.advance(UPLOAD_GRACE_S + 1)
        real = job.store.put_if_absent

        def publish_first(name: str, data: bytes) -> bool:
            real(layout.snapshot(*NAME), encode_record(made))
            return real(name, data)

        job.store.put_if_absent = publish_first  # type: ignore[method-assign]
        assert collector(job).collect().files == ()
        assert job.store.get(made.files[0].name) == b"file"

    def test_an_upload_that_was_published_and_collected_before_the_claim_stays(self) -> None:
        """The collector stood still before it: the number is free again, and the next snapshot shares the file."""
        job = ChainJob(FULL)
        driver = job.driver(0)
        at = driver.commit(0, results_of([b"x"])).commit.link
        made = snapshot(job, 1, at)
        job.clock.advance(UPLOAD_GRACE_S + 1)
        real = job.store.put_if_absent

        def meanwhile(name: str, data: bytes) -> bool:
            job.store.put_if_absent = real  # type: ignore[method-assign]
            publish(job.store, made, job.clock)
            newer = adopt(driver, 1)
            publish(job.store, snapshot(job, 2, newer.link, at, *made.files, uid="v"), job.clock)
            for n in (2, 3):
                adopt(driver, n)
            assert collector(job).collect().descriptors == (layout.snapshot(*NAME),)
            return real(name, data)

        stalled = collector(job)
        job.store.put_if_absent = meanwhile  # type: ignore[method-assign]
        assert stalled.collect().files == ()
        assert job.store.get(made.files[0].name) == b"file"
        assert collector(job).collect().files == ()
        assert names(job, layout.SNAPSHOTS) == [layout.snapshot(*NAME._replace(number=2))]
        adopt(driver, 4)

    @pytest.mark.parametrize("takes_over", [False, True])
    def test_a_collector_that_stood_still_before_it_listed_the_chain_deletes_no_snapshot_in_use(
        self, takes_over: bool
    ) -> None:
        """The entry that adopted it is gone by then, and the one that names it is newer than the head that it knows."""
        job = ChainJob(FULL)
        driver = job.driver(0)
        at = driver.commit(0, results_of([b"x"])).commit.link
        assert publish(job.store, snapshot(job, 1, at), job.clock).won
        adopt(driver, 1, b"")
        if takes_over:
            driver = job.driver(2)
        reader = ChainReader(job.store, job.record.job_id)
        head, list_seqs = reader.head(), reader.list_seqs

        def meanwhile() -> tuple[int, ...]:
            for n in range(2, 12):
                empty(driver, n)
                collector(job).collect()
            return list_seqs()

        reader.head, reader.list_seqs = lambda *_: head, meanwhile  # type: ignore[method-assign]
        report = Collector(reader, job.clock, job.tokens).collect()
        assert report.descriptors == report.files == ()
        assert report.raced
        assert {tile.snapshot for tile in driver.state.view.tiles} == {1}
        assert list_snapshots(job.store) == (NAME,)
        assert collector(job).collect().deleted == 0, "it has only lost its turn"


class TestSavepoints:
    def test_a_name_that_is_given_anew_while_they_are_listed_is_the_new_savepoint(self) -> None:
        """The files of a canonical one were deleted, since the list told the token of the savepoint before."""
        job = ChainJob()
        commit = job.driver(0).commit(0).commit

        def create() -> Savepoint:
            given = {"job": "job", "holder": "a test", "clock": job.clock, "tokens": job.tokens}
            return create_native(job.reader, commit, "nightly", **given)  # type: ignore[arg-type]

        create()
        real, made = job.store.list, list[Savepoint]()

        def replaced(prefix: str, *, start_after: str = "") -> list[ObjectMeta]:
            if lists.append(prefix) or len(lists) == 2:
                job.store.list = real  # type: ignore[method-assign]
                delete_savepoint(job.store, "nightly")
                made.append(create())
            return real(prefix, start_after=start_after)

        lists: list[str] = []
        job.store.list = replaced  # type: ignore[assignment,method-assign]
        assert list_savepoints(job.store) == tuple(made)


def test_pins_and_savepoints_are_read_side_by_side() -> None:
    """One after the other, 500 of them on S3 cost each collection half a minute."""
    job = ChainJob(FULL)
    commit = empty(job.driver(0), 0)
    pins = [create_pin(job.reader, commit, "a reader", job.clock, job.tokens) for _ in range(READ_THREADS)]
    for n in range(READ_THREADS):
        create_native(job.reader, commit, f"s{n}", job="job", holder="h", clock=job.clock, tokens=job.tokens)
    all_at_once, get = threading.Barrier(READ_THREADS, timeout=10), job.store.get

    def meeting(name: str) -> bytes:
        if name.startswith((layout.PINS, layout.SAVEPOINTS)):
            all_at_once.wait()
        return get(name)

    job.store.get = meeting  # type: ignore[method-assign]
    assert list_pins(job.reader) == tuple(sorted(pins, key=lambda pin: pin.token))
    assert [one.name for one in list_savepoints(job.store)] == [f"s{n}" for n in range(READ_THREADS)]
    assert [one.name for one in list_all_savepoints(job.store)] == [f"s{n}" for n in range(READ_THREADS)]


class TestPins:
    def test_a_pin_keeps_a_commit_complete(self) -> None:
        job = ChainJob(FULL)
        driver = job.driver(0)
        commit = empty(driver, 0)
        pin = create_pin(job.reader, commit, "a reader", job.clock, job.tokens)
        for n in range(1, 5):
            empty(driver, n)
        collector(job).collect()
        assert job.reader.read_commit(commit.link).commit == commit
        assert list_pins(job.reader) == (pin,)
        release_pin(job.reader, pin, job.clock)
        release_pin(job.reader, pin, job.clock)
        assert collector(job).collect().cut == 5
        assert chain_seqs(job) == [1, 5, 6]

    def test_a_commit_that_is_truncated_already_cannot_be_pinned(self) -> None:
        job = ChainJob(FULL)
        driver = job.driver(0)
        commit = empty(driver, 0)
        for n in range(1, 3):
            empty(driver, n)
        with pytest.raises(DidNotHappenError, match="choose a newer checkpoint"):
            create_pin(job.reader, commit, "late", job.clock, job.tokens)
        assert list_pins(job.reader) == ()

    @pytest.mark.parametrize("is_checked", [True, False])
    def test_what_only_a_checked_pin_keeps_can_be_pinned(self, is_checked: bool) -> None:
        """A collector may have read its head and listed the pins before one that nobody has checked was written."""
        job = ChainJob(FULL)
        driver = job.driver(0)
        commits = [empty(driver, n) for n in range(3)]
        create_pin(job.reader, commits[1], "retention", job.clock, job.tokens, for_others=is_checked)
        for n in range(3, 6):
            empty(driver, n)
        for commit, can in ((commits[0], False), (commits[1], is_checked), (commits[2], is_checked)):
            if can:
                pin = create_pin(job.reader, commit, "a reader", job.clock, job.tokens)
                assert pin in list_pins(job.reader)
            else:
                with pytest.raises(DidNotHappenError, match="no longer complete"):
                    create_pin(job.reader, commit, "a reader", job.clock, job.tokens)
        kept = {pin.commit for pin in list_pins(job.reader)}
        assert kept == {commit.link for commit in (commits[1:3] if is_checked else commits[1:2])}

    def test_the_head_is_read_after_the_pin_is_written(self) -> None:
        """Truncation between the two must be noticed."""
        job = ChainJob(FULL)
        driver = job.driver(0)
        commit = empty(driver, 0)
        real = job.store.put

        def put(name: str, data: bytes) -> None:
            real(name, data)
            for n in range(1, 4):
                empty(driver, n)

        job.store.put = put  # type: ignore[method-assign]
        with pytest.raises(DidNotHappenError, match="choose a newer checkpoint"):
            create_pin(job.reader, commit, "unlucky", job.clock, job.tokens)

    def test_a_pin_that_cannot_be_written_leaves_nothing(self) -> None:
        job = ChainJob(FULL)
        commit = empty(job.driver(0), 0)
        real = job.store.put

        def put(name: str, data: bytes) -> None:
            real(name, data)
            raise MayHaveHappenedError("timeout")

        job.store.put = put  # type: ignore[method-assign]
        with pytest.raises(DidNotHappenError, match="could not be written"):
            create_pin(job.reader, commit, "x", job.clock, job.tokens)
        assert list_pins(job.reader) == ()

    def test_a_damaged_pin_stops_collection(self) -> None:
        job = ChainJob(FULL)
        empty(job.driver(0), 0)
        job.store.put(layout.pin("x"), b"damaged")
        with pytest.raises(CorruptDataError):
            collector(job).collect()
