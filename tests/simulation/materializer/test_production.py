"""Running for long and side by side: demand, retention, limits, wrong clocks, split brain."""

from __future__ import annotations

import random
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry

from tests.jobs.materializer_world import CONFIG, INTERVAL_MS, Sidecar, World
from tests.jobs.state_model import BatchChanges
from tests.stores.faulty import Faults, FaultyStore
from tests.stores.manual_clock import ManualClock
from varvite.changelog.retention.collector import Collector
from varvite.changelog.retention.pins import create_pin, list_pins
from varvite.materializer.monitoring.events import Adopted, Collected, Failed, JobFailed, Overdue
from varvite.materializer.service.demand import LOOK_MS, ask
from varvite.materializer.service.retention import HOLDER, STEPS
from varvite.materializer.service.sharing import HEARTBEAT_MS
from varvite.storage.format import layout

if TYPE_CHECKING:
    from pathlib import Path

    from varvite.materializer.ranges import RangeKey
    from varvite.storage.object_stores.contract import ObjectStore

PATIENCE_S = 60
QUIET = replace(CONFIG, interval_ms=None, collect_ms=1_000)


def metric(sidecar: Sidecar, name: str) -> float:
    """Sum over all labels of what the sidecar shows under that name."""
    registry: CollectorRegistry = sidecar.context.metrics.registry
    return sum(sample.value for family in registry.collect() for sample in family.samples if sample.name == name)


class Gate:
    """Holds the publication of snapshots until it is opened."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.waiting = threading.Semaphore(0)

    def hook(self, operation: str, name: str, phase: str) -> None:
        if operation == "put_if_absent" and phase == "before" and "/snap/" in name:
            self.waiting.release()
            assert self.open.wait(PATIENCE_S)

    def root(self, world: World) -> ObjectStore:
        return FaultyStore(world.root, random.Random(1), Faults(), clock=world.clock, crash_hook=self.hook)


def test_a_request_is_served_once_by_a_running_materializer(world: World) -> None:
    world.commit(4)
    sidecar = world.sidecar(QUIET)
    sidecar.poll()
    assert sidecar.materialized == []
    ask(world.store, world.clock, world.job.tokens)
    sidecar.poll()
    assert sidecar.materialized == [], "it does not look at every poll"
    world.clock.advance(LOOK_MS / 1_000)
    sidecar.poll()
    assert [e.trigger for e in sidecar.materialized] == ["demand", "demand"]
    world.commit(3)
    for _ in range(30):
        world.clock.advance(LOOK_MS / 1_000)
        sidecar.poll()
    assert len(sidecar.materialized) == 2
    world.check()


def test_materializers_that_share_serve_a_request_together(world: World) -> None:
    world.job.parallelism = 8
    world.job.start()
    world.commit(4)
    config = replace(QUIET, share=True)
    sidecars = [world.sidecar(config, place="a"), world.sidecar(config, place="b")]
    for _ in range(2):
        for sidecar in sidecars:
            sidecar.poll()
        world.clock.advance(LOOK_MS / 1_000)
    ask(world.store, world.clock, world.job.tokens)
    for _ in range(2):
        world.clock.advance(LOOK_MS / 1_000)
        for sidecar in sidecars:
            sidecar.poll()
    done = [sorted(e.low for e in sidecar.materialized) for sidecar in sidecars]
    assert sorted(done[0] + done[1]) == list(range(8))
    assert all(done)


def test_ranges_are_materialized_at_the_same_time(world: World) -> None:
    world.commit(4)
    gate = Gate()
    sidecar = world.sidecar(replace(QUIET, parallel=2), root=gate.root(world))
    folding = threading.Thread(target=sidecar.fold)
    folding.start()
    assert all(gate.waiting.acquire(timeout=PATIENCE_S) for _ in range(2)), "both ranges are at their publication"
    gate.open.set()
    folding.join(PATIENCE_S)
    assert len(sidecar.materialized) == 2
    world.commit(2)
    assert len(world.job.adopted) == 1
    world.check()


def test_the_loop_goes_on_while_a_range_is_slow(world: World) -> None:
    """Heartbeats, the job's adoptions and the collection of garbage do not wait for it, and it is not begun twice."""
    world.commit(6, upload=True)
    gate = Gate()
    config = replace(CONFIG, share=True, parallel=2, interval_ms=1)
    sidecar = world.sidecar(config, root=gate.root(world))
    for _ in range(5):
        world.clock.advance(HEARTBEAT_MS / 1_000)
        sidecar.service.step(wait_for_ranges=False)
    assert metric(sidecar, "varvite_started_materialization_total") == 2
    before = [world.store.get(name) for name in world.names(layout.MEMBERS)]
    world.clock.advance(HEARTBEAT_MS / 1_000)
    sidecar.service.step(wait_for_ranges=False)
    assert [world.store.get(name) for name in world.names(layout.MEMBERS)] != before
    assert sidecar.materialized == []
    gate.open.set()
    assert sidecar.poll()
    assert len(sidecar.materialized) == 2
    world.commit(2)
    sidecar.poll()
    assert len(sidecar.events.of(Adopted)) == 2
    world.check()


def test_what_a_slow_fold_reads_is_not_collected_meanwhile(world: World) -> None:
    """It would fail, and begin anew with a longer log; a fold that is slower than the job would never end."""
    world.commit(4, upload=True)
    reading, go_on = threading.Event(), threading.Event()

    def hook(operation: str, name: str, phase: str) -> None:
        if operation == "get_range" and phase == "before" and "/seg/" in name:
            reading.set()
            assert go_on.wait(PATIENCE_S)

    root = FaultyStore(world.root, random.Random(1), Faults(), clock=world.clock, crash_hook=hook)
    slow = world.sidecar(replace(CONFIG, interval_ms=1), root=root)
    slow.service.step(wait_for_ranges=False)
    assert reading.wait(PATIENCE_S)
    world.sidecar(QUIET, place="fast").fold()
    world.commit(12)
    before = world.names(layout.SEGMENTS)
    assert world.newest().keep_from > layout.slot_of(before[0]).slot, "the job does not need them any more"
    world.clock.advance(10)
    slow.service.step(wait_for_ranges=False)
    assert world.names(layout.SEGMENTS) == before
    go_on.set()
    assert slow.poll(), slow.events.of(Failed)
    world.clock.advance(10)
    slow.poll()
    assert set(world.names(layout.SEGMENTS)) < set(before)
    world.check()


def test_a_range_that_the_job_gave_up_meanwhile_ends_well(world: World) -> None:
    """The parallelism changes during the fold: the snapshots still fit no tile or some, and no local copy is left."""
    world.commit(4)
    gate = Gate()
    sidecar = world.sidecar(replace(CONFIG, parallel=2, interval_ms=1), root=gate.root(world))
    sidecar.service.step(wait_for_ranges=False)
    world.job.parallelism = 4
    world.job.start()
    world.commit(3)
    sidecar.service.step(wait_for_ranges=False)
    gate.open.set()
    assert sidecar.poll(), sidecar.events.of(Failed)
    world.commit(2)
    world.clock.advance(1)
    assert sidecar.fold()
    world.commit(2)
    world.check()
    copies = sorted(path.name for path in (world.directory / "work/0/ranges").glob("*/*/*"))
    assert copies == [f"{low:05d}-{high:05d}" for low, high in world.job.ranges]


def test_local_copies_stay_below_their_limit_and_are_made_anew(world: World) -> None:
    world.commit(4)
    sidecar = world.sidecar(replace(QUIET, disk_bytes=1))
    assert sidecar.fold()
    assert list((world.directory / "work/0/ranges").glob("*/*/*")) == []
    world.commit(3)
    assert sidecar.fold()
    assert metric(sidecar, "varvite_local_copy_misses_total") == 4
    assert metric(sidecar, "varvite_local_copy_hits_total") == 0
    world.commit(2)
    world.check()


def test_bytes_are_paid_for(world: World) -> None:
    world.commit(4, upload=True)
    slow = world.sidecar(QUIET, bytes_per_s=1_000)
    began_s = world.clock.monotonic_s()
    assert slow.fold()
    took_s = world.clock.monotonic_s() - began_s
    moved = metric(slow, "varvite_uploaded_bytes_total") + metric(slow, "varvite_replayed_bytes_total")
    assert moved > 2_000
    assert took_s >= moved / 1_000 - 1.001
    world.commit(2)
    world.check()


def test_what_it_did_is_counted(world: World) -> None:
    world.commit(5)
    sidecar = world.sidecar(QUIET)
    sidecar.fold()
    world.commit(1)
    sidecar.fold()
    sidecar.fold()
    counted = {
        name: metric(sidecar, f"varvite_{name}_total")
        for name in ("started_materialization", "completed_materialization", "failed_materialization")
    }
    assert counted["started_materialization"] == counted["completed_materialization"] == len(sidecar.materialized)
    assert counted["failed_materialization"] == 0
    assert metric(sidecar, "varvite_adopted_snapshots_total") == len(sidecar.events.of(Adopted)) > 0
    assert metric(sidecar, "varvite_checkpoint_seq") == world.newest().seq
    assert world.newest().keep_from < world.newest().retained_from == metric(sidecar, "varvite_retained_from_seq")
    assert metric(sidecar, "varvite_replayed_mutations_total") == sum(e.mutations for e in sidecar.materialized)
    bases = [
        world.descriptor(layout.SnapshotName("flights", t.low, t.high, t.snapshot or 0))
        for t in world.job.adopted[-1].tiles
    ]
    assert metric(sidecar, "varvite_base_bytes") == sum(f.size_bytes for d in bases for f in d.files)
    own = world.log_length()
    assert metric(sidecar, "varvite_log_segments") == own
    assert metric(sidecar, "varvite_upload_queue_size") == 0
    assert metric(sidecar, "varvite_number_of_upload_requests_total") == sum(
        e.uploaded_files for e in sidecar.materialized
    )


def test_the_watchdog_complains_once_and_readiness_with_it(world: World) -> None:
    world.commit(5)
    gate = Gate()
    sidecar = world.sidecar(replace(CONFIG, log_batches=2, parallel=2), root=gate.root(world))
    assert not sidecar.context.health.ready(0).ok
    for _ in range(4):
        world.clock.advance(1)
        world.commit(2)
        sidecar.service.step(wait_for_ranges=False)
    complaints = sidecar.events.of(Overdue)
    assert [(e.low, "log batches" in e.reason) for e in complaints] == [(0, True), (4, True)]
    ready = sidecar.context.health.ready(sidecar.context.now_ms())
    assert not ready.ok
    assert "overdue" in ready.reasons[0]
    assert metric(sidecar, "varvite_overdue") == 2
    gate.open.set()
    for _ in range(3):
        sidecar.poll()
        world.commit(1)
    sidecar.poll()
    assert sidecar.context.health.ready(sidecar.context.now_ms()).ok, sidecar.context.health.ready(0)
    assert metric(sidecar, "varvite_overdue") == 0


def test_failing_ranges_make_it_not_ready(world: World) -> None:
    world.commit(2)
    world.job.commit(BatchChanges(totals={"N1": 1}), upload=True)
    world.commit(2)
    name = world.names(layout.SEGMENTS)[0]
    whole = world.store.get(name)
    world.store.put(name, whole[:-1] + bytes([whole[-1] ^ 1]))
    sidecar = world.sidecar(replace(CONFIG, max_failures_allowed=1))
    sidecar.fold()
    assert sidecar.context.health.ready(sidecar.context.now_ms()).ok, "once is allowed"
    sidecar.fold()
    [reason] = sidecar.context.health.ready(sidecar.context.now_ms()).reasons
    assert "2 failed materializations in a row" in reason
    assert metric(sidecar, "varvite_failing") == 1
    assert (
        metric(sidecar, "varvite_consecutive_failures") == metric(sidecar, "varvite_failed_materialization_total") == 2
    )
    world.store.put(name, whole)
    sidecar.fold()
    assert sidecar.context.health.ready(sidecar.context.now_ms()).ok
    assert metric(sidecar, "varvite_failing") == 0


RETENTION_MS = 80_000


def test_checkpoints_of_the_retention_stay_complete_and_older_ones_go(world: World) -> None:
    sidecar = world.sidecar(replace(QUIET, retention_ms=RETENTION_MS))
    times: dict[int, int] = {}
    for _ in range(45):
        world.clock.advance(4)
        world.commit(1)
        times[world.newest().seq] = world.newest().time_ms
        sidecar.fold()
        assert len(list_pins(world.reader)) <= STEPS + 2
    newest_ms = world.newest().time_ms
    present = set(world.reader.list_seqs())
    inside = {seq for seq, time_ms in times.items() if time_ms >= newest_ms - RETENTION_MS}
    assert len(inside) >= 15
    assert inside <= present, "they were collected"
    for seq in sorted(inside)[:2]:
        commit = world.reader.find_commit(seq)
        assert commit is not None
        world.check_commit(commit.link)
    # Besides, what the oldest pin needs: the full entry before it, which may come late.
    slack_ms = 2 * RETENTION_MS // STEPS + 60_000
    old = [seq for seq, time_ms in times.items() if time_ms < newest_ms - RETENTION_MS - slack_ms]
    assert len(old) >= 5
    assert not present & set(old)


def overtaken(world: World, operation: str, area: str, phase: str, **config: Any) -> Sidecar:
    """A materializer with a retention; whenever it has come to such an effect, the job makes many checkpoints."""

    def hook(done: str, name: str, when: str) -> None:
        if (done, when) == (operation, phase) and f"/{area}" in name:
            world.commit(25)

    root = FaultyStore(world.root, random.Random(1), Faults(), clock=world.clock, crash_hook=hook)
    return world.sidecar(replace(QUIET, retention_ms=RETENTION_MS, **config), root=root)


def test_a_checkpoint_that_a_fast_job_has_let_go_meanwhile_is_not_the_one_that_is_pinned(world: World) -> None:
    """A `--once` that took long asked for a pin of what was newest when it began: nothing was pinned, or collected."""
    world.commit(4)
    assert overtaken(world, "put_if_absent", layout.SNAPSHOTS, "after").fold()
    [pin] = list_pins(world.reader)
    assert pin.commit == world.newest().link
    assert 2 not in world.reader.list_seqs(), "and garbage is collected"
    world.check()


@pytest.mark.parametrize("is_pinned", [False, True])
def test_a_job_that_overtakes_every_pin_is_collected_all_the_same(world: World, *, is_pinned: bool) -> None:
    """A checkpoint with an earlier pin stays. (Beside one that says that it is checked, none can be overtaken.)"""
    world.commit(8)
    world.sidecar(replace(QUIET, collect_ms=None), place="first").fold()
    world.commit(25)
    kept = world.newest()
    pins = (create_pin(world.reader, kept, HOLDER, world.clock, world.job.tokens),) if is_pinned else ()
    world.clock.advance(RETENTION_MS)
    world.commit(25)
    sidecar = overtaken(world, "put", layout.PINS, "after", max_failures_allowed=0)
    assert not sidecar.fold(), "it says that it has not done all"
    failed = sidecar.events.of(JobFailed)
    assert [(event.step, event.error_type) for event in failed] == [("retention by time", "DidNotHappenError")]
    assert any("retention by time failed" in text for text in sidecar.context.health.ready(0).reasons)
    [collected] = sidecar.events.of(Collected)
    assert collected.entries
    assert list_pins(world.reader) == pins
    if is_pinned:
        assert collected.cut == kept.needs_from
        world.check_commit(kept.link)
    assert world.sidecar(replace(QUIET, retention_ms=RETENTION_MS), place="later").fold()
    assert len(list_pins(world.reader)) == 1 + len(pins)
    world.check()


def test_retention_ends_when_it_is_switched_off(world: World) -> None:
    keeping = world.sidecar(replace(QUIET, retention_ms=RETENTION_MS))
    for _ in range(6):
        world.clock.advance(12)
        world.commit(2)
        keeping.fold()
    assert {pin.holder for pin in list_pins(world.reader)} == {HOLDER}
    chain = len(world.names(layout.CHAIN))
    by_hand = world.sidecar(QUIET, place="by-hand")
    world.commit(2)
    by_hand.fold()
    pins = list_pins(world.reader)
    assert {pin.holder for pin in pins} == {HOLDER}, "a materializer without a retention lets go of another's"
    assert set(range(pins[0].needs_from, world.newest().seq)) <= set(world.reader.list_seqs())
    without = world.sidecar(replace(QUIET, retention_ms=0), place="without")
    world.commit(2)
    without.fold()
    assert list_pins(world.reader) == ()
    assert len(world.names(layout.CHAIN)) < chain
    world.check()
    world.check_no_garbage()


SKEWS_S = (2 * 86_400.0, -2 * 86_400.0)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_wrong_clocks_and_split_brain_harm_nothing(tmp_path: Path, seed: int) -> None:
    """Two materializers two days off to either side, each of which takes itself for alone now and then, and a third
    collector whose grace is over at once; the job commits on."""
    rng = random.Random(seed)
    world = World(tmp_path)
    clocks = [ManualClock(world.clock.now_ms() + round(s * 1_000)) for s in SKEWS_S]
    config = replace(CONFIG, share=True, retention_ms=RETENTION_MS, interval_ms=INTERVAL_MS)
    sidecars = [world.sidecar(config, place=f"work-{i}", clock=clock) for i, clock in enumerate(clocks)]
    for _ in range(25):
        world.clock.advance(rng.choice([1, 10, 30]))
        for clock in clocks:
            clock.advance(rng.choice([0.1, 5, 120]))
        world.commit(rng.randint(1, 2), upload=rng.random() < 0.3)
        if rng.random() < 0.3:
            world.store.delete(world.names(layout.MEMBERS))
        for sidecar in rng.sample(sidecars, 2):
            sidecar.service.step(on_demand=rng.random() < 0.6)
        if rng.random() < 0.3:
            Collector(world.reader, rng.choice(clocks), world.job.tokens, upload_grace_s=0).collect()
        world.check()
    assert len(world.job.adopted) >= 3
    for sidecar in sidecars:
        assert {e.error_type for e in sidecar.events.of(Failed)} <= {"DidNotHappenError"}
    world.close()


def test_a_scrape_during_a_fold_sees_how_far_it_is_and_one_after_it_what_was_skipped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sidecar = world.sidecar(replace(QUIET, parallel=1))  # with one range at a time, what is summed up is one gauge
    world.commit(2)
    assert sidecar.fold()
    world.commit(8)
    metrics, seen = sidecar.context.metrics, dict[int, list[float]]()
    replaying = metrics.replaying

    def scraped(job: str, key: RangeKey, part: float | None) -> None:
        replaying(job, key, part)
        seen.setdefault(key.low, []).append(metric(sidecar, "varvite_replay_progress_ratio"))

    monkeypatch.setattr(metrics, "replaying", scraped)
    assert sidecar.fold()
    assert sorted(seen) == [0, 4]
    for parts in seen.values():
        assert parts[:-1] == sorted(parts[:-1])
        assert any(0 < part < 1 for part in parts)
    before = metric(sidecar, "varvite_skipped_materialization_total")
    assert sidecar.fold()
    assert metric(sidecar, "varvite_skipped_materialization_total") >= before + 2
    world.check()


def test_of_a_job_that_was_deleted_nothing_is_kept(world: World) -> None:
    """A materializer of all jobs went on polling it, showed it as it was, and kept its local copies for ever."""
    asked: list[str] = []

    def hook(_operation: str, name: str, _phase: str) -> None:
        asked.append(name)

    root = FaultyStore(world.root, random.Random(1), Faults(), clock=world.clock, crash_hook=hook)
    world.commit(4)
    sidecar = world.sidecar(QUIET, root=root)
    assert sidecar.fold()
    copies = sidecar.workspace.directory / "ranges"
    assert metric(sidecar, "varvite_checkpoint_seq") > 0
    assert list(copies.glob("*/*/*"))
    world.root.delete([meta.name for meta in world.root.list("")])
    for _ in range(2):  # the job is found to be empty, then not to be among the jobs
        world.clock.advance(QUIET.discovery_ms / 1000)
        sidecar.poll()
    assert metric(sidecar, "varvite_checkpoint_seq") == metric(sidecar, "varvite_base_bytes") == 0
    assert not list(copies.glob("*/*/*"))
    asked.clear()
    sidecar.poll()
    assert not [name for name in asked if name.startswith("job/")]
