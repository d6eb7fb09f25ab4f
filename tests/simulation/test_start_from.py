"""Starting a job from a savepoint or a checkpoint of another job: its state, and what either job does afterwards."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.jobs.committing_job import CommittingJob, random_batch
from tests.jobs.materializer_world import CONFIG, World
from tests.jobs.started_job import MAKERS, TOKENS, Started, canonical, fill, native, origin_of
from tests.jobs.state_model import KEY_GROUPS, BatchChanges
from tests.workers.raw_image import raw_image
from varvite.changelog.chain.retention_bounds import bounds_of
from varvite.changelog.commit.run import JobRun
from varvite.changelog.reading.checkpoints import complete_checkpoints
from varvite.changelog.retention.collector import Collector
from varvite.changelog.retention.pins import list_pins, release_pin
from varvite.changelog.retention.savepoints import create_native, delete_savepoint, list_savepoints
from varvite.materializer.restore.decision import RequestedCheckpoint
from varvite.materializer.restore.job import JobRestore
from varvite.materializer.restore.origin import StateOrigin, find_origin, find_start
from varvite.materializer.savepoints.canonical import CanonicalSavepoints
from varvite.storage.errors import (
    CorruptDataError,
    IncompatibleError,
    InvalidRequestError,
    LineageError,
    StateMissingError,
)
from varvite.storage.format import layout
from varvite.storage.job.record import read_job
from varvite.storage.job.store import JobStore
from varvite.storage.object_stores.local.store import LocalStore
from varvite.storage.transfer.slice_reader import read_slice

if TYPE_CHECKING:
    from pathlib import Path

    from varvite.storage.format.records import Commit


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_another_job_goes_on_from_the_state_and_needs_nothing_of_its_source(
    world: World, kind: str, parallelism: int
) -> None:
    fill(world)
    origin = origin_of(world, MAKERS[kind](world))
    other = Started(world, origin, parallelism=parallelism)
    other.check()
    world.commit()
    for name in world.names(""):
        world.store.delete([name])
    for _ in range(7):
        other.job.commit(random_batch(world.rng))
        other.check()
    other.job.start()
    other.job.commit(random_batch(world.rng))
    other.check()


@pytest.mark.parametrize("kind", [*MAKERS, "clone"])
def test_non_keyed_state_goes_with_the_keyed_one(world: World, kind: str) -> None:
    fill(world)
    written = tuple(raw_image(world.reader.job_id, stream) for stream in (b"first", b"second", b"first"))
    world.commit(images=written)
    origin = origin_of(world, MAKERS[kind](world) if kind in MAKERS else None)
    other = Started(world, origin, clone=kind == "clone", parallelism=3)
    if kind != "clone":
        world.commit()
        for name in world.names(""):
            world.store.delete([name])
    assert other.job.run is not None
    for _ in range(9):
        view = other.job.run.state.view
        assert tuple(read_slice(other.store, image.data) for image in view.images) == written
        other.job.commit(random_batch(world.rng))
    assert not any(layout.is_shared(image.data.name) for image in view.images), "a full entry has copied them"


@pytest.mark.parametrize("kind", MAKERS)
def test_the_first_materialization_is_complete_and_the_copy_is_collected(world: World, kind: str) -> None:
    fill(world)
    other = Started(world, origin_of(world, MAKERS[kind](world)), parallelism=2)
    slots = {layout.slot_of(name).slot for area in (layout.SEGMENTS, layout.PACKS) for name in other.names(area)}
    assert len(slots) == 1, "the copy is below the import's slot alone"
    sidecar = world.sidecar(replace(CONFIG, job="other"), place="of-other")
    for _ in range(3):
        for _ in range(4):
            other.job.commit(random_batch(world.rng))
        assert sidecar.fold()
        other.check()
    other.job.commit(random_batch(world.rng))
    other.job.commit(random_batch(world.rng))
    assert sidecar.poll()
    assert other.job.run is not None
    Collector(other.job.run.reader, world.clock, TOKENS).collect()
    left = {layout.slot_of(name).slot for area in (layout.SEGMENTS, layout.PACKS) for name in other.names(area)}
    assert not slots & left
    other.check()


@pytest.mark.parametrize("kind", ["native", "canonical"])
def test_a_savepoint_outlives_the_log_and_goes_when_it_is_deleted(world: World, kind: str) -> None:
    """Only what it names is kept: the job's own log is truncated as ever (I10)."""
    fill(world)
    kept = MAKERS[kind](world)
    assert kept is not None
    sidecar = world.sidecar()
    for _ in range(6):
        world.commit(3, upload=True)
        sidecar.fold()
    world.commit(2)
    Collector(world.reader, world.clock, TOKENS).collect()
    everything = set(world.names(""))
    assert set(kept.objects) <= everything
    below = [s for s in world.reader.list_seqs() if s < world.newest().keep_from and world.reader.find_commit(s)]
    assert {layout.chain(seq) for seq in below} <= set(kept.objects)
    other = Started(world, origin_of(world, kept), parallelism=4)
    other.check()
    delete_savepoint(world.store, "before")
    Collector(world.reader, world.clock, TOKENS).collect()
    world.check()
    world.check_no_garbage()
    assert world.names("savepoint") == []


def test_a_canonical_savepoint_may_be_anywhere(world: World, tmp_path: Path) -> None:
    fill(world)
    target = LocalStore(str(tmp_path / "export"))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    heard: list[tuple[int, int]] = []
    writer = CanonicalSavepoints(world.reader, "job", target, scratch, clock=world.clock, tokens=TOKENS)
    savepoint = writer.create(world.newest(), "before", "test", lambda *done: heard.append(done))
    assert heard == [(1, 3), (2, 3), (3, 3)]
    assert world.names("savepoint") == []
    found = find_origin(f"{target.url}/savepoints/before", world.store)
    assert found.savepoint == savepoint
    Started(world, found).check()


def test_a_query_that_goes_on_is_not_started_anew(world: World) -> None:
    """The option may stay set: Spark's checkpoint location tells whether the query has begun."""
    fill(world)
    origin = origin_of(world, native(world))
    other = Started(world, origin)
    before = other.job.run
    assert before is not None
    imported = before.state.base
    other.job.start_from(origin, other.model)
    assert other.job.run is not None
    assert other.job.run.state.base == imported, "no batch has followed: it is not copied again"
    other.job.commit(random_batch(world.rng))
    newest = other.job.run.state.base
    other.job.close()
    fence = _start(other, origin, "other")
    assert (fence.restore, fence.commit) == (None, newest.link if newest else None)


def test_another_state_is_never_replaced(world: World) -> None:
    fill(world)
    other = Started(world, origin_of(world, native(world)))
    other.job.commit(random_batch(world.rng))
    other.job.close()
    world.commit()
    later = origin_of(world, native(world, name="later"))
    with pytest.raises(LineageError, match="state of its own"):
        _start(other, later, None)


def test_a_start_that_was_interrupted_is_done_again_from_what_is_newest_then(world: World) -> None:
    """Found by the simulation: the source's newest checkpoint was another one then, and every later start failed."""
    fill(world)
    for is_copied in (False, True):
        other = Started(world, origin_of(world, None), name=f"other-{is_copied}", runs=1 + is_copied)
        other.job.close()
        if not is_copied:  # killed before its first entry
            for name in other.names(layout.CHAIN):
                other.store.delete([name])
        world.commit(20)
        again = Started(world, origin_of(world, None), name=f"other-{is_copied}", runs=5)
        again.check()
        again.job.commit(random_batch(world.rng))
        again.check()
        again.job.close()


def test_a_start_whose_savepoint_is_gone_says_that_the_state_is_there_already(world: World) -> None:
    fill(world)
    origin = origin_of(world, native(world))
    with pytest.raises(InvalidRequestError, match=r"no savepoint 'gone'[^;]*; see `varvite savepoint list`"):
        find_start("gone", world.store, None)
    other = Started(world, origin)
    imported = other.job.run.state.base if other.job.run else None
    assert imported is not None
    with pytest.raises(InvalidRequestError, match=rf"no savepoint 'gone'.*seq {imported.seq}, .* to `latest`"):
        find_start("gone", other.store, "other")
    other.job.commit(random_batch(world.rng))
    assert find_start("gone", other.store, "other") is None
    other.job.close()


def test_what_varvite_restore_chose_needs_no_savepoint_that_an_option_still_names(world: World) -> None:
    """The choice wins over the option, so a query with a new checkpoint location must be able to start."""
    fill(world)
    other = Started(world, origin_of(world, native(world)))
    for _ in range(2):
        other.job.commit(random_batch(world.rng))
    chosen = other.job.run.state.base if other.job.run else None
    assert chosen is not None
    other.job.close()
    with pytest.raises(InvalidRequestError, match="no savepoint 'gone'"):
        find_start("gone", other.store, "a new query")
    command = JobRestore("other", other.store, read_job(other.store), None, clock=world.clock, tokens=TOKENS)
    command.to_checkpoint(RequestedCheckpoint(chosen.seq))
    assert find_start("gone", other.store, "a new query") is None
    command.cancel()
    with pytest.raises(InvalidRequestError, match="no savepoint 'gone'"):
        find_start("gone", other.store, "a new query")


def test_a_job_whose_numbers_are_behind_is_refused(world: World) -> None:
    """Tiles and list elements are ordered by seq, so the numbers must go on."""
    fill(world)
    store = JobStore(world.root, "empty")
    job = CommittingJob(store, world.clock, name="empty")
    job.start()
    job.close()
    origin = origin_of(world, native(world))
    with pytest.raises(InvalidRequestError, match="numbers must"):
        job.start_from(origin, world.job.models[origin.commit.link])
    job.close()


def _start(other: Started, origin: StateOrigin, query_id: str | None) -> Any:
    """Only the decision: nothing may be copied."""
    run = JobRun.open(other.store, "other", KEY_GROUPS, other.job.policy, other.world.clock, TOKENS)
    try:
        return run.start_from(origin.commit, query_id, lambda _slot: pytest.fail("copied"))
    finally:
        run.close()


def kept_by_retention(world: World) -> Commit:
    """A checkpoint that only `--retention` keeps, of a job that has gone on."""
    sidecar = world.sidecar(replace(CONFIG, interval_ms=10_000, collect_ms=1_000, retention_ms=86_400_000))
    for _ in range(12):
        world.commit(1)
        world.clock.advance(4)
        sidecar.fold()
    kept = complete_checkpoints(world.reader)[-3]
    assert not bounds_of(world.newest()).is_complete(kept)
    return kept


def test_a_job_goes_back_to_a_checkpoint_that_only_the_retention_keeps(world: World) -> None:
    """`varvite checkpoints` listed it, and `varvite restore` refused it: it is below the cut, which never falls."""
    kept = kept_by_retention(world)
    head, model, reader = world.newest(), world.job.models[kept.link], world.reader
    given = {"clock": world.clock, "tokens": TOKENS}
    restore = JobRestore("job", world.store, read_job(world.store), None, dry_run=True, **given)
    assert restore.to_checkpoint(RequestedCheckpoint(kept.seq)).batch == kept.batch
    assert world.newest().link == head.link
    world.job.close()
    restore = JobRestore("job", world.store, read_job(world.store), None, **given)
    done = restore.to_checkpoint(RequestedCheckpoint(kept.seq))
    assert (done.batch, done.seq > head.seq) == (kept.batch, True)
    again = restore.to_checkpoint(RequestedCheckpoint(kept.seq))
    assert (again.batch, again.seq > done.seq) == (kept.batch, True), "stopped half-way it is done again"
    assert restore.to_checkpoint(RequestedCheckpoint(batch=kept.batch)).seq == again.seq
    done = again
    copied = reader.find_commit(done.seq)
    assert copied is not None
    world.job.models[copied.link] = model
    world.job.batch = kept.batch + 1
    world.job.start()
    assert world.job.model == model
    world.commit(4)
    world.sidecar().fold()
    world.commit(4)
    Collector(world.reader, world.clock, TOKENS).collect()
    world.check()
    assert world.newest().keep_from >= head.keep_from


def test_a_checkpoint_that_only_the_retention_keeps_becomes_a_savepoint(world: World) -> None:
    kept = kept_by_retention(world)
    made = create_native(world.reader, kept, "old", job="job", holder="a test", clock=world.clock, tokens=TOKENS)
    model = world.job.models[kept.link]
    for pin in list_pins(world.reader):
        release_pin(world.reader, pin, world.clock)
    world.commit(4)
    Collector(world.reader, world.clock, TOKENS).collect()
    other = Started(world, StateOrigin("old", world.store, made.commit, made))
    assert other.job.model == model
    other.check()
    other.job.close()


@pytest.mark.parametrize("kind", ["native", "canonical"])
def test_a_job_goes_back_to_its_own_savepoint(world: World, kind: str) -> None:
    """A new query of the same job; what has come since stays readable until it is collected."""
    fill(world)
    kept = MAKERS[kind](world)
    model = world.job.models[world.newest().link]
    sidecar = world.sidecar()
    for _ in range(6):
        world.commit(3)
        sidecar.fold()
    Collector(world.reader, world.clock, TOKENS).collect()
    world.job.query = "second"
    world.job.start_from(origin_of(world, kept), model)
    world.commit(4)
    delete_savepoint(world.store, "before")
    sidecar.fold()
    world.commit(4)
    Collector(world.reader, world.clock, TOKENS).collect()
    world.check()


@pytest.mark.parametrize("kind", ["native", "canonical"])
@pytest.mark.parametrize("how", ["gone", "shorter", "flipped"])
def test_a_copy_that_was_damaged_before_the_first_batch_is_made_again_by_the_same_command(
    world: World, kind: str, how: str
) -> None:
    """It was answered with the damaged copy, although the savepoint was whole, so that the job could never start."""
    fill(world)
    kept, model, reader = MAKERS[kind](world), world.job.models[world.newest().link], world.reader
    origin, record = origin_of(world, kept), read_job(world.store)
    world.job.close()

    def restored() -> Commit:
        command = JobRestore("job", world.store, record, None, clock=world.clock, tokens=TOKENS)
        commit = reader.find_commit(command.to_origin(origin).seq)
        assert commit is not None
        return commit

    first = restored()
    name = first.tiles[0].files[0].name
    data = world.store.get(name)
    if how == "gone":
        world.store.delete([name])
    else:
        world.store.put(name, data[:-1] + (bytes((data[-1] ^ 1,)) if how == "flipped" else b""))
    again = restored()
    assert again.seq > first.seq
    world.job.models[again.link] = model
    world.job.start()
    world.check_commit(again.link)
    world.commit(2)
    world.check()


def test_a_copy_that_fails_leaves_the_choice_of_the_one_before(world: World) -> None:
    """An earlier copy may be whole, so that the job can start from it even if the savepoint cannot be read any more."""
    fill(world)
    kept, model, reader = native(world), world.job.models[world.newest().link], world.reader
    origin, record = origin_of(world, kept), read_job(world.store)
    world.job.close()
    command = JobRestore("job", world.store, record, None, clock=world.clock, tokens=TOKENS)
    first = reader.find_commit(command.to_origin(origin).seq)
    assert first is not None
    world.store.delete([name for name in kept.objects if not name.startswith(layout.CHAIN)])
    with pytest.raises(CorruptDataError):
        command.to_origin(origin)
    world.job.models[first.link] = model
    world.job.start()
    world.check_commit(first.link)
    world.commit(2)
    world.check_commit(world.newest().link)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_snapshot_that_was_published_before_a_job_was_set_back_is_not_waited_for(
    world: World, *, restarted: bool
) -> None:
    """It is of the same line and tile, but shares files with a snapshot that the tile does not name any more."""
    world.job.commit(BatchChanges(totals={f"key {i}": i for i in range(4_000)}))
    world.commit()
    sidecar = world.sidecar()
    sidecar.fold()
    world.commit(3)
    kept, model = native(world), world.job.models[world.newest().link]
    world.commit()  # so that what is kept is final
    sidecar.fold()
    assert all(event.reused_files for event in sidecar.materialized[2:]), "they share files"
    assert len(world.job.adopted) == 1
    world.job.query = "second"
    world.job.start_from(origin_of(world, kept), model)
    if restarted:
        sidecar = world.sidecar()
    world.commit(3)
    assert sidecar.fold()
    world.commit(2)
    assert len(world.job.adopted) == 2
    world.check()


def test_a_copied_spark_location_goes_on_without_any_choice(world: World) -> None:
    """A clone of job and Spark's checkpoint location together: the same query, batch after batch."""
    fill(world)
    batch = world.job.batch
    other = Started(world, origin_of(world, native(world)))
    other.job.query, other.job.batch = "query", batch
    other.job.start()
    other.job.commit(random_batch(world.rng))
    other.check()


@pytest.mark.parametrize("kind", ["native", "canonical"])
def test_a_damaged_or_missing_object_is_found_before_the_job_has_a_state(world: World, kind: str) -> None:
    fill(world)
    kept = MAKERS[kind](world)
    assert kept is not None
    names = [f.name for f in kept.files] or [n for n in kept.objects if not n.startswith(layout.CHAIN)]
    for name in (names[0], names[-1]):
        data = world.store.get(name)
        for damaged in (data[:-1] + bytes((data[-1] ^ 1,)), data[:-1], None):
            if damaged is None:
                world.store.delete([name])
            else:
                world.store.put(name, damaged)
            with pytest.raises(CorruptDataError) as caught:
                Started(world, origin_of(world, kept))
            assert caught.value.context["object_name"].endswith(name)
        world.store.put(name, data)
    Started(world, origin_of(world, kept)).check()


def test_a_hold_goes_even_if_the_copy_fails_and_its_files_are_collected(world: World) -> None:
    fill(world)
    [name] = world.names(layout.SNAPSHOTS)[:1]
    data = world.store.get(name)
    world.store.delete([name])
    with pytest.raises(CorruptDataError):
        canonical(world)
    assert list_savepoints(world.store) == ()
    world.store.put(name, data)
    orphan = layout.savepoint_file("f" * 32, "flights", "total", 0, 8)
    world.store.put(orphan, b"left by a crash")
    kept = canonical(world)
    assert Collector(world.reader, world.clock, TOKENS).collect().savepoint_files == (orphan,)
    assert {file.name for file in kept.files} <= set(world.names(layout.SAVEPOINT_FILES))


def test_names_are_taken_once_and_of_savepoints_only(world: World) -> None:
    world.commit(2)
    native(world)
    for make in (native, canonical):
        with pytest.raises(InvalidRequestError, match="already"):
            make(world)
    assert world.names(layout.SAVEPOINT_FILES) == []
    with pytest.raises(InvalidRequestError, match="no savepoint"):
        delete_savepoint(world.store, "after")


def test_a_savepoint_that_cannot_be_read_stops_the_collection(world: World) -> None:
    world.commit(4)
    world.store.put(layout.savepoint("broken"), b"broken")
    with pytest.raises(CorruptDataError):
        Collector(world.reader, world.clock, TOKENS).collect()


def test_a_location_names_a_savepoint_a_checkpoint_or_a_job(tmp_path: Path) -> None:
    root = LocalStore(str(tmp_path / "storage"))
    world = World(tmp_path, root)
    world.commit(3)
    native(world)
    newest, at = world.newest(), f"{tmp_path}/storage/job"
    for location in (f"{at}/savepoints/before", f"{at}/chain/{newest.seq}", at, f"file://{at}", "before"):
        found = find_origin(location, world.store)
        assert found.commit.link == newest.link
        assert (found.savepoint is not None) == ("before" in location)
    assert find_origin(f"{at}/chain/{newest.parent.seq}", world.store).commit.link == newest.parent
    with pytest.raises(StateMissingError):
        find_origin(f"{at}/chain/1", world.store)
    for location in (f"{at}/savepoints/after", "after", f"{tmp_path}/nothing", f"{tmp_path}/storage"):
        with pytest.raises(InvalidRequestError):
            find_origin(location, world.store)
    found = find_origin(at, world.store)
    found.check(KEY_GROUPS)
    with pytest.raises(IncompatibleError, match="max-parallelism to 8"):
        found.check(16)
    world.close()
