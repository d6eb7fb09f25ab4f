from __future__ import annotations

from typing import ClassVar

import msgspec
import pytest

from varvite.changelog.chain.retention_bounds import RetentionBounds, bounds_of
from varvite.changelog.commit.rules import ProtocolRules
from varvite.changelog.retention.collect_decision import (
    EntryNames,
    UploadGroup,
    collect_chain,
    collect_slots,
    collect_snapshots,
    may_delete_upload,
    names_of,
    retained_seqs,
    suspect_seqs,
)
from varvite.storage.format import layout
from varvite.storage.format.layout import SnapshotName
from varvite.storage.format.records import (
    ORIGIN,
    Commit,
    Fence,
    Link,
    ObjectSlice,
    PartitionCommit,
    Pin,
    SegmentRef,
    SnapshotDescriptor,
    SnapshotFile,
    SnapshotFloor,
    Tile,
)
from varvite.storage.object_stores.contract import ObjectMeta

NOTHING = EntryNames(frozenset(), frozenset())
HEAD = Fence(seq=9, token="f", job_id="j", parent=ORIGIN, keep_from=5, time_ms=0)
NEVER, ALWAYS = 0.0, 1e12


def pin(needs_from: int) -> Pin:
    return Pin(token="p", holder="h", needs_from=needs_from, commit=ORIGIN, created_ms=0)


def seg(slot: int, tag: str = "t") -> str:
    return layout.segment(slot, "op", 0, tag, 0)


def name(number: int, low: int = 0, high: int = 8) -> SnapshotName:
    return SnapshotName("op", low, high, number)


def file(number: int, uid: str = "u", text: str = "1.sst") -> str:
    return layout.snapshot_file("op", 0, 8, number, uid, text)


def descriptor(number: int, *files: str, uid: str = "u", status: str = "published") -> SnapshotDescriptor:
    return SnapshotDescriptor(
        status=status, job_id="j", token="t", uid=uid, operator="op", low=0, high=8, number=number,
        files=tuple(SnapshotFile(f, f, 1, 1) for f in files), created_ms=0,
    )  # type: ignore[arg-type]  # fmt: skip


class TestCut:
    def test_it_is_the_heads_unless_a_pin_needs_more(self) -> None:
        head = msgspec.structs.replace(HEAD, retained_from=7)
        assert bounds_of(head) == RetentionBounds(5, 7)
        assert bounds_of(head, [pin(6), pin(8)]) == RetentionBounds(5, 6)
        assert bounds_of(head, [pin(7), pin(3)]) == RetentionBounds(3, 3)

    def test_it_divides_the_chain(self) -> None:
        assert retained_seqs(range(1, 12), HEAD, 5) == (5, 6, 7, 8, 9)
        assert suspect_seqs(range(1, 12), HEAD, 5) == (1, 2, 3, 4)

    def test_the_head_is_never_suspect(self) -> None:
        assert suspect_seqs([7, 8, 9], HEAD, 20) == (7, 8)


class TestChain:
    def test_commits_below_the_cut_go_and_fences_stay(self) -> None:
        assert collect_chain({1: "fence", 3: "commit", 2: "commit"}) == (layout.chain(2), layout.chain(3))

    def test_without_the_rule_fences_would_go(self) -> None:
        assert collect_chain({1: "fence"}, ProtocolRules(keep_fences=False)) == (layout.chain(1),)


class TestSlots:
    RETAINED: ClassVar = {7: EntryNames(frozenset({seg(7), layout.pack(7, "p"), seg(6)}), frozenset()), 8: NOTHING}

    @pytest.mark.parametrize(
        ("listed", "goes"),
        [
            pytest.param(seg(4), True, id="below the cut"),
            pytest.param(layout.pack(4, "p"), True, id="pack below the cut"),
            pytest.param(seg(7), False, id="named"),
            pytest.param(layout.pack(7, "p"), False, id="pack that is named"),
            pytest.param(seg(7, "loser"), True, id="another attempt of a committed slot"),
            pytest.param(layout.pack(7, "late"), True, id="pack that was not ready"),
            pytest.param(seg(8), True, id="slot that a fence took"),
            pytest.param(seg(6), False, id="slot whose entry is not known"),
            pytest.param(seg(9), True, id="slot of the head, which is a fence"),
            pytest.param(seg(10), False, id="slot that may be committed next"),
        ],
    )
    def test_only_what_can_never_be_named_goes(self, listed: str, goes: bool) -> None:
        retained = {**self.RETAINED, 9: names_of(HEAD)}
        assert collect_slots([listed], HEAD.seq, 5, retained) == ((listed,) if goes else ())

    def test_an_entry_names_its_parts_log_and_files(self) -> None:
        part = PartitionCommit(
            operator="op", partition=0, low=0, high=8, tag="t", uploaded=(ObjectSlice(seg(7), 0, 1, 1),)
        )
        commit = Commit(
            seq=7, token="t", job_id="j", epoch=1, parent=ORIGIN, keep_from=0, batch=0, query_id="q", source_hash="h",
            time_ms=0, max_parallelism=8, operators=(), needs_from=6, parts=(part,), full=Link(7, "t"),
            log=(SegmentRef("op", 0, 8, 6, 6, ObjectSlice(layout.pack(7, "p"), 0, 1, 1)),),
            tiles=(
                Tile(operator="op", low=0, high=4, snapshot=3),
                Tile(operator="op", low=4, high=8, files=(SnapshotFile("f", seg(6), 1, 1),)),
            ),
        )  # fmt: skip
        assert names_of(commit) == EntryNames(self.RETAINED[7].objects, frozenset({name(3, 0, 4)}), full_seq=7)
        assert names_of(HEAD) == NOTHING


class TestSnapshots:
    FLOORS = (SnapshotFloor("op", 0, 8, 5),)

    def collect(
        self, descriptors: list[SnapshotDescriptor], files: list[str], *, named: int = 5, stale_before_s: float = NEVER
    ) -> tuple[list[str], list[str], list[tuple[int, str]]]:
        plan = collect_snapshots(
            self.FLOORS,
            frozenset({name(named)}),
            {name(d.number): d for d in descriptors},
            [ObjectMeta(f, 1, 100.0) for f in files],
            stale_before_s,
        )
        return list(plan.descriptors), list(plan.files), [(g.snapshot.number, g.uid) for g in plan.abandoned]

    def test_unnamed_snapshots_up_to_the_floor_go_with_their_files(self) -> None:
        found = self.collect([descriptor(4, file(4)), descriptor(5, file(5))], [file(4), file(5)])
        assert found == ([layout.snapshot(*name(4))], [file(4)], [])

    def test_a_named_snapshot_stays_and_one_at_the_floor_that_is_not_named_goes(self) -> None:
        found = self.collect([descriptor(4, file(4)), descriptor(5, file(5))], [file(4), file(5)], named=4)
        assert found == ([layout.snapshot(*name(5))], [file(5)], [])

    def test_above_the_floor_everything_stays(self) -> None:
        aborted = descriptor(7, status="aborted")
        assert self.collect([descriptor(6, file(6)), aborted], [file(6)], stale_before_s=ALWAYS) == ([], [], [])

    def test_files_that_a_kept_snapshot_shares_stay(self) -> None:
        found = self.collect([descriptor(4, file(4), file(4, text="2.sst")), descriptor(5, file(4))], [
            file(4), file(4, text="2.sst"),
        ])  # fmt: skip
        assert found == ([layout.snapshot(*name(4))], [file(4, text="2.sst")], [])

    def test_what_an_interrupted_run_left_goes(self) -> None:
        """The descriptor was deleted, the files were not."""
        assert self.collect([descriptor(5, file(5))], [file(3), file(5)])[1] == [file(3)]

    def test_uploads_for_a_number_that_somebody_else_has_go(self) -> None:
        assert self.collect([descriptor(6, file(6))], [file(6), file(6, uid="loser")])[1] == [file(6, uid="loser")]

    def test_an_unpublished_upload_is_given_up_only_when_it_is_old(self) -> None:
        assert self.collect([], [file(6)], stale_before_s=100.0) == ([], [], [])
        assert self.collect([], [file(6), file(6, uid="v")], stale_before_s=100.1) == ([], [], [(6, "u"), (6, "v")])

    @pytest.mark.parametrize(
        ("won", "holder", "goes"),
        [
            pytest.param(True, None, True, id="claimed as aborted"),
            pytest.param(False, descriptor(6, uid="u"), False, id="published meanwhile"),
            pytest.param(False, descriptor(6, uid="v"), True, id="somebody else published"),
            pytest.param(False, descriptor(6, uid="c", status="aborted"), True, id="given up by another collector"),
            pytest.param(False, None, False, id="unknown"),
        ],
    )
    def test_an_upload_goes_only_if_it_can_never_be_published(
        self, won: bool, holder: SnapshotDescriptor | None, goes: bool
    ) -> None:
        group = UploadGroup(name(6), "u", (file(6),))
        assert may_delete_upload(group, won, holder, self.FLOORS) is goes
        [floor] = self.FLOORS
        assert not may_delete_upload(group, won, holder, [msgspec.structs.replace(floor, number=6)]), (
            "it may have been published and collected"
        )

    def test_other_ranges_have_floors_of_their_own(self) -> None:
        other = msgspec.structs.replace(descriptor(2), low=0, high=4)
        plan = collect_snapshots(self.FLOORS, frozenset(), {name(2, 0, 4): other}, [], NEVER)
        assert plan.descriptors == ()
