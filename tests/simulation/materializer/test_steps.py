"""The materializer's steps against a real chain and real RocksDB."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.jobs.materializer_world import CONFIG, IDLE, INTERVAL_MS, World
from tests.jobs.state_model import KEY_GROUPS, BatchChanges
from varvite.materializer.monitoring.events import Adopted, Collected, Waiting
from varvite.storage.format import layout
from varvite.storage.format.records import Commit
from varvite.storage.object_stores.local.store import LocalStore
from varvite.storage.transfer.slice_reader import read_slice

if TYPE_CHECKING:
    from pathlib import Path


def test_the_log_is_folded_adopted_truncated_and_collected(world: World) -> None:
    world.commit(4)
    world.commit(8, upload=True)
    chain, segments = len(world.names(layout.CHAIN)), len(world.names(layout.SEGMENTS))
    sidecar = world.sidecar()
    assert sidecar.fold()
    target = world.newest().parent.seq
    published = [(e.low, e.high, e.snapshot, e.base_seq, e.at_seq, e.at_batch) for e in sidecar.materialized]
    assert published == [(0, 4, 1, 0, target, 10), (4, 8, 1, 0, target, 10)]
    assert {(e.batches, e.log_before.batches, e.log_after.batches) for e in sidecar.materialized} == {(11, 11, 0)}
    world.check()
    world.commit()
    assert [tile.snapshot for tile in world.job.adopted[0].tiles] == [1, 1]
    assert world.log_length() <= 4
    world.check()
    world.commit(6)
    assert sidecar.poll()
    assert [e.snapshot for e in sidecar.events.of(Adopted)] == [1, 1]
    assert sum(e.deleted for e in sidecar.events.of(Collected)) > 0
    assert len(world.names(layout.CHAIN)) < chain
    assert len(world.names(layout.SEGMENTS)) < segments
    world.check()
    world.check_no_garbage()


def test_non_keyed_state_stays_while_the_log_is_folded_and_truncated(world: World) -> None:
    world.commit(images=(b"first", b"second"))
    first = world.newest()
    sidecar = world.sidecar()
    for number in range(4):
        world.commit(6)
        assert sidecar.fold()
        world.commit(6, images=(b"", b"second %d" % number))
        sidecar.poll()
        view = world.reader.load_line(world.newest().link, KEY_GROUPS).view
        assert [read_slice(world.store, i.data) for i in view.images] == [b"first", b"second %d" % number]
        world.check()
    assert layout.chain(first.seq) not in world.names(layout.CHAIN)
    world.check_no_garbage()


def test_the_number_of_folded_mutations_is_that_of_the_log(world: World) -> None:
    world.commit(5)
    sidecar = world.sidecar()
    sidecar.fold()
    commits = [world.reader.read(seq).entry for seq in world.reader.list_seqs()]
    logged = sum(p.mutations for c in commits[:-1] if isinstance(c, Commit) for p in c.parts)
    assert sum(e.mutations for e in sidecar.materialized) == logged > 0


def test_only_final_batches_are_folded(world: World) -> None:
    """The newest batch may be executed again with another result; a snapshot must not hold it."""
    world.commit(3)
    sidecar = world.sidecar()
    sidecar.fold()
    world.job.start(redo=True)
    world.commit()
    assert len(world.job.adopted) == 1
    world.check()
    assert sidecar.fold()
    world.commit(2)
    world.check()


def test_a_snapshot_of_an_adoption_that_was_redone_is_replaced_by_another(world: World) -> None:
    """The floor stays risen after the lost adoption, so the old snapshot is dead and a new one is needed."""
    world.commit(4)
    sidecar = world.sidecar()
    sidecar.fold()
    world.commit()
    world.job.start(redo=True)
    world.commit()
    assert len(world.job.adopted) == 1
    world.check()
    assert sidecar.fold()
    assert [e.snapshot for e in sidecar.materialized] == [1, 1, 2, 2]
    world.commit()
    assert len(world.job.adopted) == 2
    world.check()
    world.commit(2)
    sidecar.fold()
    world.check()
    world.check_no_garbage()


def test_a_job_whose_state_does_not_change_gets_no_new_snapshots(world: World) -> None:
    world.commit(3)
    sidecar = world.sidecar()
    for _ in range(12):
        world.job.commit(IDLE)
        sidecar.fold()
    assert [e.snapshot for e in sidecar.materialized] == [1, 1]
    assert len(world.names(layout.SNAPSHOTS)) == 2
    world.check()


def test_the_base_of_an_idle_range_moves_up_without_new_data(world: World) -> None:
    """The line is kept from the oldest base on, so it would grow for ever (I10)."""
    world.commit(3)
    world.job.commit(IDLE)
    sidecar = world.sidecar(replace(CONFIG, log_batches=6))
    sidecar.fold()
    for _ in range(5):
        world.job.commit(IDLE)
    assert sidecar.poll()
    assert len(sidecar.materialized) == 2
    world.job.commit(IDLE)
    world.job.commit(IDLE)
    assert sidecar.poll()
    moved = sidecar.materialized[2:]
    assert {(e.trigger, e.mutations) for e in moved} == {("log-batches", 0)}
    assert all(e.reused_files >= 1 for e in moved)
    world.job.commit(IDLE)
    assert len(world.job.adopted) == 2
    world.check()


def test_only_changed_files_are_uploaded(world: World) -> None:
    world.job.commit(BatchChanges(totals={f"key {i}": i for i in range(4000)}))
    world.commit(2)
    sidecar = world.sidecar()
    sidecar.fold()
    world.commit(4)
    sidecar.fold()
    first, second = sidecar.materialized[:2], sidecar.materialized[2:]
    assert {e.reused_files for e in first} == {0}
    assert all(e.reused_bytes > 10_000 > e.uploaded_bytes for e in second)
    world.commit(4)
    world.check()
    sidecar.fold()
    world.check()
    world.check_no_garbage()


def test_the_local_copy_is_used_again_after_a_restart(world: World) -> None:
    world.commit(4)
    first = world.sidecar()
    first.fold()
    world.commit(3)
    first.die()
    again = world.sidecar()
    again.fold()
    assert {e.batches for e in again.materialized} == {3}
    world.commit(2)
    world.check()


def test_without_its_local_copy_a_materializer_goes_on_from_the_base(world: World) -> None:
    world.commit(4)
    world.sidecar().fold()
    world.commit(3)
    other = world.sidecar(place="elsewhere")
    other.fold()
    assert {(e.batches, e.log_before.batches) for e in other.materialized} == {(3, 3)}
    world.commit(2)
    assert len(world.job.adopted) == 2
    world.check()


def test_a_grown_parallelism_splits_the_base(world: World) -> None:
    world.job.parallelism = 1
    world.commit(4)
    sidecar = world.sidecar()
    sidecar.fold()
    world.commit()
    assert [(t.low, t.high) for t in world.job.adopted[0].tiles] == [(0, 8)]
    world.job.parallelism = 4
    world.job.start()
    world.commit(3)
    assert sidecar.fold()
    assert [(e.low, e.high) for e in sidecar.materialized[1:]] == [(0, 2), (2, 4), (4, 6), (6, 8)]
    world.commit()
    assert [(t.low, t.high) for t in world.job.adopted[1].tiles] == [(0, 2), (2, 4), (4, 6), (6, 8)]
    world.check()
    world.commit(2)
    sidecar.fold()
    world.commit(2)
    world.check()


def test_a_shrunk_parallelism_keeps_the_bases(world: World) -> None:
    world.job.parallelism = 3
    world.commit(4)
    sidecar = world.sidecar()
    sidecar.fold()
    world.commit()
    world.job.parallelism = 2
    world.job.start()
    world.commit(3)
    assert sidecar.fold()
    world.commit(2)
    assert len(world.job.adopted) == 2
    assert len(world.job.adopted[1].tiles) == 3
    world.check()


def test_nothing_is_done_for_a_job_that_writes_its_snapshots_itself(world: World) -> None:
    world.job.changelog = False
    for _ in range(4):
        world.job.commit(IDLE)
    sidecar = world.sidecar(replace(CONFIG, log_batches=2))
    assert sidecar.fold()
    assert sidecar.materialized == []
    assert world.names(layout.SNAPSHOTS) == []


def test_the_triggers_work_with_time_and_length_of_the_log(world: World) -> None:
    world.commit(4)
    sidecar = world.sidecar(replace(CONFIG, log_bytes=100_000))
    sidecar.poll()
    assert sidecar.materialized == []
    world.clock.advance(INTERVAL_MS / 1_000)
    sidecar.poll()
    assert {e.trigger for e in sidecar.materialized} == {"interval"}
    world.commit(3)
    world.clock.advance(INTERVAL_MS / 2_000)
    sidecar.poll()
    assert len(sidecar.materialized) == 2
    rng = random.Random(3)
    world.job.commit(BatchChanges(events={"a": (False, [rng.randbytes(90_000).hex()])}))
    world.commit(2)
    sidecar.poll()
    assert [e.trigger for e in sidecar.materialized[2:]] == ["log-bytes"]
    world.clock.advance(INTERVAL_MS / 1_000)
    sidecar.poll()
    assert [e.trigger for e in sidecar.materialized[3:]] == ["interval"]


def test_it_waits_for_a_job_and_for_its_first_checkpoint(tmp_path: Path) -> None:
    world = World(tmp_path, started=False)
    named, any_job = world.sidecar(replace(CONFIG, job="job"), place="a"), world.sidecar(place="b")
    for sidecar in (named, any_job):
        assert sidecar.poll()
        assert sidecar.poll()
        assert len(sidecar.events.of(Waiting)) == 1
    world.job.start()
    world.clock.advance(CONFIG.poll_ms / 1_000)
    for sidecar in (named, any_job):
        assert sidecar.poll()
        assert "no checkpoint yet" in sidecar.events.of(Waiting)[-1].message
    world.commit(4)
    for sidecar in (named, any_job):
        assert sidecar.fold()
    assert len(named.materialized) == 2
    world.close()


def test_two_materializers_of_one_job_are_harmless(world: World) -> None:
    a, b = world.sidecar(place="a"), world.sidecar(place="b")
    for _ in range(4):
        world.commit(2)
        a.fold()
        b.fold()
        world.commit()
        b.fold()
        a.fold()
        world.check()
    world.commit(2)
    a.fold()
    world.check()
    world.check_no_garbage()


def test_materializers_that_share_do_each_range_once(world: World) -> None:
    world.job.parallelism = 8
    world.job.start()
    config = replace(CONFIG, share=True)
    a, b = world.sidecar(config, place="a"), world.sidecar(config, place="b")
    a.poll(), b.poll()
    world.clock.advance(5)
    a.poll()
    world.commit(4)
    a.fold(), b.fold()
    done = [sorted((e.low, e.high) for e in sidecar.materialized) for sidecar in (a, b)]
    assert sorted(done[0] + done[1]) == [(i, i + 1) for i in range(8)]
    assert all(done)
    world.commit(3)
    assert len(world.job.adopted) == 1
    b.service.close()
    world.clock.advance(5)
    a.poll()
    world.commit(2)
    a.fold()
    assert len(a.materialized) == len(done[0]) + 8
    world.check()


def test_it_works_on_local_disk(tmp_path: Path) -> None:
    world = World(tmp_path, LocalStore(str(tmp_path / "storage")))
    sidecar = world.sidecar()
    for _ in range(3):
        world.commit(4)
        assert sidecar.fold()
        world.check()
    world.commit(2)
    sidecar.fold()
    world.check()
    world.check_no_garbage()
    world.close()
