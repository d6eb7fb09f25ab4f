"""The commit protocol, searched exhaustively: the product's own decision functions over a simulated store.

Driver runs may stall for ever between any two storage operations; a collector may stall with any part of an old plan
in its hands while others collect. Each case says its bounds; the number of worlds is printed (`pytest -s`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import pytest

from tests.simulation.chain.model_check import driver_steps, side_steps
from tests.simulation.chain.model_check.search import Outcome, Search
from tests.simulation.chain.model_check.world import Bounds
from varvite.changelog.chain.retention_bounds import RetentionBounds, bounds_of
from varvite.changelog.commit.rules import ProtocolRules
from varvite.changelog.retention.collect_decision import EntryNames, named_snapshots
from varvite.storage.format.layout import SnapshotName
from varvite.storage.format.records import Entry, Pin

WORLDS_MAX = 2_000_000


def search(bounds: Bounds, *, trace: bool = False) -> Outcome:
    outcome = Search(bounds, trace=trace).run(WORLDS_MAX)
    # The numbers are for whoever runs this with -s.
    print(f"\n{bounds}: {outcome.worlds} worlds, {outcome.depth} steps deep")  # noqa: T201
    if outcome.violation:
        print(outcome.violation.message, *outcome.violation.trace, sep="\n  ")  # noqa: T201
    return outcome


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bounds", "worlds_min"),
    [
        pytest.param(Bounds(slots=8), 500_000, id="three runs, 8 slots, every entry full", marks=pytest.mark.rare),
        pytest.param(Bounds(slots=8, full_every=2), 200_000, id="three runs, 8 slots, every other entry full"),
        pytest.param(Bounds(slots=6, rollbacks=1), 200_000, id="three runs, 6 slots, Spark set back"),
        pytest.param(Bounds(slots=7, drivers=2, rollbacks=1, sink_tells=True), 80_000, id="sink that tells"),
        pytest.param(
            Bounds(slots=7, drivers=2, writes_files=False, full_every=2, snapshots=1),
            80_000,
            id="changelog, a snapshot",
        ),
        pytest.param(
            Bounds(slots=5, drivers=2, writes_files=False, full_every=2, snapshots=2),
            50_000,
            id="changelog, 2 snapshots",
            marks=pytest.mark.long,
        ),
        pytest.param(
            Bounds(slots=7, drivers=1, writes_files=False, snapshots=2), 100_000, id="changelog, every entry full"
        ),
        pytest.param(Bounds(slots=6, drivers=2, pins=1), 80_000, id="a reader with a pin"),
        pytest.param(Bounds(slots=6, drivers=1, savepoints=1), 5_000, id="a savepoint"),
        pytest.param(
            Bounds(slots=7, drivers=1, writes_files=False, full_every=2, snapshots=1, savepoints=1),
            200_000,
            id="a savepoint of changelog and snapshot",
            marks=pytest.mark.rare,
        ),
        pytest.param(Bounds(slots=7, late=True), 400_000, id="commits sent twice", marks=pytest.mark.rare),
        pytest.param(Bounds(slots=8, drivers=2, full_every=2, late=True), 50_000, id="commits sent twice, some full"),
        pytest.param(Bounds(slots=6, drivers=2, pins=1, late=True), 100_000, id="commits sent twice, a reader"),
        pytest.param(Bounds(slots=7, drivers=3, restores=1), 100_000, id="an operator who goes back"),
        pytest.param(
            Bounds(slots=7, drivers=2, restores=1, sink_tells=True),
            10_000,
            id="an operator who goes back, sink that tells",
        ),
        pytest.param(Bounds(slots=6, drivers=2, in_chain=True), 20_000, id="progress in chain"),
        pytest.param(
            Bounds(slots=6, drivers=3, in_chain=True),
            400_000,
            id="progress in chain, three runs",
            marks=pytest.mark.long,
        ),
        pytest.param(
            Bounds(slots=6, drivers=2, in_chain=True, sink_tells=True),
            5_000,
            id="progress in chain, sink that tells",
        ),
        pytest.param(
            Bounds(slots=7, drivers=3, in_chain=True, full_every=2),
            800_000,
            id="progress in chain, every other entry full",
            marks=pytest.mark.long,
        ),
    ],
)
def test_no_reachable_world_breaks_an_invariant(bounds: Bounds, worlds_min: int) -> None:
    """I5 (state is exactly the acknowledged batches), I6, I7, I11. A search that shrinks would prove nothing."""
    outcome = search(bounds)
    assert outcome.violation is None
    assert outcome.is_exhausted
    assert outcome.worlds >= worlds_min


@pytest.mark.parametrize(
    ("bounds", "broken"),
    [
        (Bounds(slots=7, rules=ProtocolRules(list_after_claim=False)), "I6"),
        (Bounds(slots=7, rules=ProtocolRules(keep_fences=False)), "I6"),
        (Bounds(slots=7, rollbacks=1, rules=ProtocolRules(rewind_check=False)), "I11"),
    ],
    ids=["without LIST after claim", "without kept fences", "without the rewind check"],
)
def test_each_rule_is_needed(bounds: Bounds, broken: str) -> None:
    outcome = search(bounds, trace=True)
    assert outcome.violation is not None
    assert broken in outcome.violation.message
    assert outcome.violation.trace


@pytest.mark.parametrize("sink_tells", [False, True])
def test_a_batch_that_counts_as_written_once_it_is_durable_is_found(
    monkeypatch: pytest.MonkeyPatch, sink_tells: bool
) -> None:
    right = driver_steps.decide_target
    monkeypatch.setattr(
        driver_steps,
        "decide_target",
        lambda commit, *rest, **kw: right(commit, *rest, **kw | {"sink": None, "noted": commit.link}),
    )
    outcome = search(Bounds(slots=6, drivers=2, in_chain=True, sink_tells=sink_tells), trace=True)
    assert outcome.violation is not None
    assert "no sink has got" in outcome.violation.message


def test_a_start_that_does_not_look_with_which_batch_spark_begins_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        driver_steps.DriverSteps,
        "_settled",
        lambda self, world, number, fence_id, _location: self._first_batch(
            world._replace(acked=world.location), number, fence_id
        ),
    )
    outcome = search(Bounds(slots=6, drivers=2, in_chain=True), trace=True)
    assert outcome.violation is not None
    assert "cannot start" in outcome.violation.message


def test_a_cut_that_is_one_too_high_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def higher(head: Entry, pins: Iterable[Pin] = ()) -> RetentionBounds:
        return RetentionBounds(bounds_of(head, pins).keep_from + 1)

    monkeypatch.setattr(side_steps, "bounds_of", higher)
    outcome = search(Bounds(slots=5, drivers=1), trace=True)
    assert outcome.violation is not None
    assert "I7" in outcome.violation.message


def test_snapshots_of_the_newest_commits_alone_are_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    def newest(names: Mapping[int, EntryNames], cut: RetentionBounds) -> frozenset[SnapshotName]:
        return named_snapshots(names, RetentionBounds(cut.keep_from, cut.retained_from + 1))

    monkeypatch.setattr(side_steps, "named_snapshots", newest)
    outcome = search(Bounds(slots=7, drivers=1, writes_files=False, snapshots=2), trace=True)
    assert outcome.violation is not None
    assert "I7" in outcome.violation.message


def test_a_collector_that_forgets_what_is_named_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = side_steps.collect_snapshots
    monkeypatch.setattr(
        side_steps, "collect_snapshots", lambda floors, named, *rest, **kw: right(floors, frozenset(), *rest, **kw)
    )
    outcome = search(Bounds(slots=6, drivers=1, writes_files=False, snapshots=1), trace=True)
    assert outcome.violation is not None
    assert "I7" in outcome.violation.message


def test_a_collector_that_gives_an_upload_up_late_and_does_not_look_at_the_floor_again_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The snapshot was published and collected meanwhile, so its number is free; a newer one shares its files."""
    right = side_steps.may_delete_upload
    monkeypatch.setattr(
        side_steps, "may_delete_upload", lambda group, won, holder, _floors: right(group, won, holder, ())
    )
    outcome = search(Bounds(slots=6, drivers=1, writes_files=False, snapshots=2), trace=True)
    assert outcome.violation is not None
    assert "I7" in outcome.violation.message


def test_a_pin_that_is_not_checked_against_the_head_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        side_steps.ReaderSteps,
        "_pinned",
        lambda self, world, wanted: iter([("reader trusts its pin", world._replace(reader=("holding", wanted)))]),
    )
    outcome = search(Bounds(slots=6, drivers=1, pins=1), trace=True)
    assert outcome.violation is not None
    assert "pinned" in outcome.violation.message


def test_pins_that_are_listed_before_the_head_is_read_are_found_to_be_unsafe(monkeypatch: pytest.MonkeyPatch) -> None:
    def idle(self: side_steps.CollectorSteps, world: side_steps.World) -> side_steps.Iterator[side_steps.Step]:
        pins = [side_steps._pin(world.reader[1])] if world.reader[0] in ("pinned", "holding") else []
        yield "collector lists the pins first", world._replace(collector=("listed", tuple(pins)))

    def listed(
        self: side_steps.CollectorSteps, world: side_steps.World, pins: tuple[side_steps.Pin, ...]
    ) -> side_steps.Iterator[side_steps.Step]:
        head = self._tables.head(world.chain)
        entry = self._tables.entries[head]
        if entry is not None:
            yield from self._pins(world, head, side_steps.bounds_of(entry, pins))

    monkeypatch.setattr(side_steps.CollectorSteps, "_idle", idle)
    monkeypatch.setattr(side_steps.CollectorSteps, "_listed", listed, raising=False)
    outcome = search(Bounds(slots=6, drivers=1, pins=1), trace=True)
    assert outcome.violation is not None
    assert "pinned" in outcome.violation.message


def test_a_manifest_that_is_written_after_its_pin_has_gone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_steps, "PINNED", ("pinned",))
    outcome = search(Bounds(slots=7, drivers=1, savepoints=1), trace=True)
    assert outcome.violation is not None
    assert "pinned" in outcome.violation.message


def test_savepoints_that_are_listed_before_the_pins_are_found_to_be_unsafe(monkeypatch: pytest.MonkeyPatch) -> None:
    def head(
        self: side_steps.CollectorSteps, world: side_steps.World, head: int
    ) -> side_steps.Iterator[side_steps.Step]:
        yield (
            "collector lists the savepoints first",
            world._replace(collector=("pins", head, side_steps._kept(world))),
        )

    def pins(
        self: side_steps.CollectorSteps, world: side_steps.World, head: int, kept: int
    ) -> side_steps.Iterator[side_steps.Step]:
        yield "collector lists the pins", world._replace(collector=("kept", head, self._cut(head, world), kept))

    monkeypatch.setattr(side_steps.CollectorSteps, "_head", head)
    monkeypatch.setattr(side_steps.CollectorSteps, "_pins", pins)
    outcome = search(Bounds(slots=7, drivers=1, savepoints=1), trace=True)
    assert outcome.violation is not None
    assert "pinned" in outcome.violation.message


def test_a_choice_that_the_next_run_does_not_take_over_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = driver_steps.plan_fence
    monkeypatch.setattr(
        driver_steps, "plan_fence", lambda head, **kw: msgspec.structs.replace(right(head, **kw), restore=None)
    )
    outcome = search(Bounds(slots=7, drivers=2, restores=1), trace=True)
    assert outcome.violation is not None
    assert "cannot start" in outcome.violation.message
