"""Schedule of garbage collection."""

from __future__ import annotations

from varvite.changelog.chain.retention_bounds import RetentionBounds
from varvite.materializer.service.collect_schedule import REPLACED_PART, CollectSchedule, log_sizes
from varvite.storage.format import layout
from varvite.storage.format.records import ORIGIN, Link, ObjectSlice, SegmentRef, Tile

INTERVAL_MS = 60_000
SIZE = 1 << 20


def tile(low: int, snapshot: int | None) -> Tile:
    at = ORIGIN if snapshot is None else Link(snapshot, "t")
    return Tile(operator="totals", low=low, high=low + 1, at=at, snapshot=snapshot)


def running(*snapshots: int | None) -> CollectSchedule:
    """Collected at 0; commit 10 is the newest and has these bases, and entries from 3 on are kept."""
    schedule = CollectSchedule().collected(0)
    return schedule.seen(
        10, 3, RetentionBounds(3, 3), {tile(low, snapshot): SIZE for low, snapshot in enumerate(snapshots)}
    )


def test_the_first_collection_is_due_at_once_and_the_next_after_the_interval() -> None:
    schedule = CollectSchedule()
    assert schedule.is_due(INTERVAL_MS, 0, SIZE)
    schedule = schedule.collected(5)
    assert not schedule.is_due(INTERVAL_MS, INTERVAL_MS + 4, SIZE)
    assert schedule.is_due(INTERVAL_MS, INTERVAL_MS + 5, SIZE)


def test_a_replaced_base_is_collected_early_once_no_entry_that_is_kept_names_it() -> None:
    schedule = running(1, 1).seen(11, 3, RetentionBounds(3, 3), {tile(0, 2): SIZE, tile(1, 1): SIZE})
    newest = schedule.sizes
    assert not schedule.is_due(INTERVAL_MS, 1, SIZE)
    assert not schedule.seen(30, 10, RetentionBounds(10, 10), newest).is_due(INTERVAL_MS, 1, SIZE)
    garbage = schedule.seen(31, 11, RetentionBounds(11, 11), newest)
    assert garbage.is_due(INTERVAL_MS, 1, SIZE)
    assert not garbage.collected(1).is_due(INTERVAL_MS, 2, SIZE), "once"


def test_a_collection_in_between_does_not_forget_what_it_could_not_delete() -> None:
    schedule = running(1, 1).seen(11, 3, RetentionBounds(3, 3), {tile(0, 2): SIZE, tile(1, 1): SIZE}).collected(1)
    assert schedule.seen(30, 11, RetentionBounds(11, 11), schedule.sizes).is_due(INTERVAL_MS, 2, SIZE)


def test_little_garbage_waits_for_the_interval() -> None:
    count = round(1 / REPLACED_PART) + 1
    one = {tile(low, 2 if low == 0 else 1): SIZE for low in range(count)}
    schedule = running(*[1] * count).seen(11, 3, RetentionBounds(3, 3), one).seen(30, 30, RetentionBounds(30, 30), one)
    assert not schedule.is_due(INTERVAL_MS, 1, SIZE)
    two = {tile(low, 2 if low < 2 else 1): SIZE for low in range(count)}
    schedule = schedule.seen(31, 30, RetentionBounds(30, 30), two)
    assert not schedule.is_due(INTERVAL_MS, 1, SIZE)
    assert schedule.seen(50, 50, RetentionBounds(50, 50), two).is_due(INTERVAL_MS, 1, SIZE), "together they are much"


def segment(slot: int, name: str, size_bytes: int = SIZE) -> SegmentRef:
    return SegmentRef("totals", 0, 1, slot, slot, ObjectSlice(name, 0, size_bytes, 0))


def test_entries_whose_segments_a_pack_has_taken_up_are_garbage_like_a_base() -> None:
    inline = [segment(seq, layout.chain(seq), SIZE // 2) for seq in (8, 9, 10)]
    schedule = CollectSchedule().collected(0).seen(10, 3, RetentionBounds(3, 3), log_sizes(inline))
    after = log_sizes([segment(10, layout.pack(11, "t")), segment(11, layout.chain(11), 1)])
    assert after == {layout.pack(11, "t"): SIZE, layout.chain(11): 1}
    schedule = schedule.seen(11, 3, RetentionBounds(3, 3), after)
    assert not schedule.is_due(INTERVAL_MS, 1, SIZE), "retained commits need them"
    assert schedule.seen(14, 11, RetentionBounds(11, 11), after).is_due(INTERVAL_MS, 1, SIZE)


def test_a_base_is_garbage_before_the_log_is_that_older_objects_keep() -> None:
    """Commits from 12 on are retained, all of them after the full entry 12; an old object keeps entries from 3 on."""
    before = {tile(0, 1): SIZE, layout.chain(9): SIZE}
    after = {tile(0, 2): SIZE, layout.pack(12, "t"): SIZE}
    schedule = (
        CollectSchedule()
        .collected(0)
        .seen(10, 3, RetentionBounds(3, 3), before)
        .seen(12, 12, RetentionBounds(3, 10), after)
    )
    assert not schedule.is_due(INTERVAL_MS, 1, SIZE)
    schedule = schedule.seen(14, 12, RetentionBounds(3, 12), after)
    assert schedule.is_due(INTERVAL_MS, 1, SIZE)
    schedule = schedule.collected(1)
    assert not schedule.is_due(INTERVAL_MS, 1, SIZE)
    assert schedule.seen(17, 12, RetentionBounds(12, 15), after).is_due(INTERVAL_MS, 1, SIZE), "then the log"


def test_garbage_of_a_small_state_waits_for_the_interval() -> None:
    schedule = (
        CollectSchedule()
        .collected(0)
        .seen(10, 3, RetentionBounds(3, 3), {tile(0, 1): SIZE - 1})
        .seen(11, 11, RetentionBounds(11, 11), {tile(0, 2): SIZE - 1})
    )
    assert not schedule.is_due(INTERVAL_MS, INTERVAL_MS - 1, SIZE)
    assert schedule.is_due(INTERVAL_MS, INTERVAL_MS, SIZE)


def test_empty_bases_are_no_garbage() -> None:
    schedule = (
        CollectSchedule()
        .collected(0)
        .seen(1, 0, RetentionBounds(0, 0), {tile(0, None): 0})
        .seen(2, 0, RetentionBounds(0, 0), {tile(0, 1): SIZE})
    )
    assert not schedule.seen(30, 30, RetentionBounds(30, 30), schedule.sizes).is_due(INTERVAL_MS, 1, SIZE)
