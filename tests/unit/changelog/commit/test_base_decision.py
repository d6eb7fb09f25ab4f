from __future__ import annotations

import msgspec
import pytest

from varvite.changelog.chain.retention_bounds import RetentionBounds
from varvite.changelog.commit.base_decision import (
    Adopt,
    ChainProgress,
    Execute,
    RestoreRequest,
    SinkCommit,
    SparkProgress,
    WriteKind,
    decide_base,
    decide_write,
    needs_parent,
)
from varvite.storage.errors import (
    FencedError,
    GapError,
    InvariantError,
    LineageError,
    RewindError,
    StartError,
    StateMissingError,
)
from varvite.storage.format.records import ORIGIN, Commit, Link, StateSource


def commit(batch: int, seq: int, parent: Commit | None = None, query: str = "q", needs_from: int = 2) -> Commit:
    return Commit(
        seq=seq, token=f"t{seq}", job_id="j", epoch=1, parent=parent.link if parent else ORIGIN, keep_from=0,
        batch=batch, query_id=query, source_hash=f"h{batch}", time_ms=0, max_parallelism=8, operators=(),
        needs_from=needs_from, parts=(), full=Link(seq, f"t{seq}"),
    )  # fmt: skip


C0 = commit(0, 2)
C1 = commit(1, 3, C0)
C2 = commit(2, 5, C1)
OTHER = commit(7, 9, query="another")


def spark(batch: int, query: str = "q", previous: str | None = "") -> SparkProgress:
    if previous == "":
        previous = f"h{batch - 1}" if batch else None
    return SparkProgress(batch, query, f"h{batch}", previous)


def chain(newest: Commit | None, parent: Commit | None = None, keep_from: int = 0) -> ChainProgress:
    return ChainProgress(newest, parent, RetentionBounds(keep_from))


def test_a_new_job_starts_from_the_empty_state() -> None:
    assert decide_base(spark(0), chain(None)) == Execute(None)


def test_the_next_batch_is_executed_on_the_newest_commit() -> None:
    assert decide_base(spark(2), chain(C1)) == Execute(C1)


def test_a_batch_that_was_not_acknowledged_is_executed_again_on_the_same_base() -> None:
    assert decide_base(spark(2), chain(C2, C1)) == Execute(C1)
    assert decide_base(spark(0), chain(C0)) == Execute(None)


@pytest.mark.parametrize(
    ("sink", "expected"),
    [
        pytest.param(SinkCommit(2, 5), Adopt(C2), id="the sink holds this very commit"),
        pytest.param(SinkCommit(2, 4), Execute(C1), id="the sink holds an older attempt of the batch"),
        pytest.param(SinkCommit(1, 3), Execute(C1), id="the sink holds the batch before"),
        pytest.param(SinkCommit(2, 5, "t5"), Adopt(C2), id="the sink has noted the token"),
        pytest.param(None, Execute(C1), id="the sink does not tell"),
    ],
)
def test_a_commit_whose_output_is_durable_is_adopted(sink: SinkCommit | None, expected: Execute | Adopt) -> None:
    assert decide_base(spark(2), chain(C2, C1), sink) == expected


@pytest.mark.parametrize(
    ("noted", "planned", "expected"),
    [
        pytest.param("h2.f", "h2.f", Adopt, id="the same files"),
        pytest.param("h2.f", "h2.g", LineageError, id="other files under the same offset"),
        pytest.param("h2", "h2.f", Execute, id="an older version has noted no files"),
        pytest.param("h2.f", "h2", Execute, id="Spark has cleaned its log"),
        pytest.param("h2.f", "h3.f", LineageError, id="other offsets"),
    ],
)
def test_a_commit_is_adopted_for_the_same_files_only(noted: str, planned: str, expected: type) -> None:
    newest, progress = msgspec.structs.replace(C2, source_hash=noted), SparkProgress(2, "q", planned, "h1")
    if expected is LineageError:
        with pytest.raises(LineageError, match="other input"):
            decide_base(progress, chain(newest, C1), SinkCommit(2, 5))
    else:
        decision = decide_base(progress, chain(newest, C1), SinkCommit(2, 5))
        assert decision == (Adopt(newest) if expected is Adopt else Execute(C1))


@pytest.mark.parametrize(
    ("batch", "sink"),
    [
        pytest.param(2, SinkCommit(2, 5, "other"), id="the same seq on another line"),
        pytest.param(3, SinkCommit(3, 6, "t6"), id="one batch ahead"),
        pytest.param(3, SinkCommit(9, 12), id="many ahead, by a sink without tokens"),
        pytest.param(3, SinkCommit(1, 5), id="the same seq of another batch"),
    ],
)
def test_output_ahead_of_the_state_is_an_error_until_the_operator_chooses(batch: int, sink: SinkCommit) -> None:
    """The storage came back from a backup, the output did not."""
    with pytest.raises(LineageError, match=r"ahead of the state.*varvite restore JOB --checkpoint 5"):
        decide_base(spark(batch), chain(C2, C1), sink)
    chosen = RestoreRequest(C1.seq, C1, ahead=True)
    assert decide_base(spark(2), chain(C2, C1), sink, chosen) == Execute(C1)


def test_output_of_a_job_without_state_is_an_error() -> None:
    with pytest.raises(LineageError, match="no state yet"):
        decide_base(spark(0), chain(None), SinkCommit(3, 6, "t"))
    with pytest.raises(StateMissingError):
        decide_base(spark(4), chain(None), SinkCommit(3, 6, "t"))


class TestDecideWrite:
    def test_rows_are_added_replaced_or_there(self) -> None:
        held = SinkCommit(3, 7, "t")
        assert decide_write(None, held) is WriteKind.APPEND
        assert decide_write(held, held) is WriteKind.NOTHING
        assert decide_write(held, SinkCommit(4, 8, "u")) is WriteKind.APPEND
        assert decide_write(held, SinkCommit(3, 8, "u")) is WriteKind.REPLACE
        assert decide_write(held, SinkCommit(1, 9, "u")) is WriteKind.REPLACE
        assert decide_write(held, SinkCommit(3, 7, "u")) is WriteKind.REPLACE, "storage of a backup uses a seq again"

    def test_an_older_driver_is_refused(self) -> None:
        with pytest.raises(FencedError, match=r"batch 3 \(seq 7\)"):
            decide_write(SinkCommit(3, 7, "t"), SinkCommit(3, 6, "s"))


def test_a_batch_whose_rows_cannot_be_told_is_executed_again() -> None:
    progress = SparkProgress(2, "q", "h2", "h1", is_identified=False)
    assert decide_base(progress, chain(C2, C1), SinkCommit(2, 5)) == Execute(C1)


@pytest.mark.parametrize(("previous", "is_other"), [("h2.f", False), ("h2.g", True), ("h2", False), ("h1.f", True)])
def test_the_lineage_covers_the_files_that_a_batch_has_read(previous: str, is_other: bool) -> None:
    newest, progress = msgspec.structs.replace(C2, source_hash="h2.f"), SparkProgress(3, "q", "h3", previous)
    if is_other:
        with pytest.raises(LineageError, match="files of its sources"):
            decide_base(progress, chain(newest))
    else:
        assert decide_base(progress, chain(newest)) == Execute(newest)


def test_what_the_sink_holds_does_not_matter_for_a_new_batch() -> None:
    assert decide_base(spark(3), chain(C2), SinkCommit(2, 5)) == Execute(C2)


def test_a_commit_made_from_other_offsets_than_sparks_is_not_adopted() -> None:
    changed = SparkProgress(2, "q", "other offsets", "h1")
    with pytest.raises(LineageError, match=r"other input.*varvite restore JOB --batch 1"):
        decide_base(changed, chain(C2, C1), SinkCommit(2, 5))
    assert decide_base(changed, chain(C2, C1)) == Execute(C1)


@pytest.mark.parametrize(
    ("progress", "stored", "error", "text"),
    [
        pytest.param(spark(3), chain(None), StateMissingError, "holds no state", id="storage lost or another one"),
        pytest.param(spark(1), chain(C2), RewindError, "set back", id="checkpoint location rolled back"),
        pytest.param(spark(0), chain(C2), RewindError, "set back", id="rolled back to the start"),
        pytest.param(spark(4), chain(C2), GapError, "batches 3 to 3 are missing", id="storage rolled back"),
        pytest.param(spark(9), chain(C2), GapError, "batches 3 to 8 are missing", id="storage rolled far back"),
        pytest.param(spark(0, "new"), chain(C2), LineageError, "explicit restore from seq 5", id="location deleted"),
        pytest.param(spark(3, "new"), chain(C2), LineageError, "made by query q", id="location of another query"),
        pytest.param(spark(0, "new"), chain(C0), LineageError, "made by query q", id="another query, same batch"),
        pytest.param(spark(3, previous="x"), chain(C2), LineageError, "offsets/2", id="other offsets"),
        pytest.param(spark(3, previous=None), chain(C2), LineageError, "offsets/2", id="offsets are gone"),
        pytest.param(spark(2, previous="x"), chain(C2, C1), LineageError, "offsets/1", id="other offsets, redone"),
        pytest.param(spark(1), chain(commit(1, 4), None), StateMissingError, "no parent", id="first commit"),
        pytest.param(spark(2), chain(commit(2, 5, C0), C0), LineageError, "is of batch 0", id="parent of another"),
        pytest.param(spark(3), chain(C2, keep_from=3), StateMissingError, "no longer complete", id="truncated"),
    ],
)
def test_a_base_that_does_not_match_sparks_progress_is_an_error(
    progress: SparkProgress, stored: ChainProgress, error: type[StartError], text: str
) -> None:
    """I11: never the empty state, never a guess."""
    with pytest.raises(error, match=text):
        decide_base(progress, stored)


def test_a_batch_that_a_copied_state_holds_is_never_executed_on_the_empty_state() -> None:
    """An import has no parent, but that does not mean that there was nothing before its batch."""
    for batch in (0, 2):
        copied = msgspec.structs.replace(commit(batch, 9), source=StateSource("other", Link(5, "t5")))
        for sink in (None, SinkCommit(batch, 9)):
            with pytest.raises(StateMissingError, match="copied"):
                decide_base(spark(batch), chain(copied), sink)
        assert decide_base(spark(batch + 1), chain(copied)) == Execute(copied)


def test_the_parent_must_be_the_one_that_the_commit_names() -> None:
    with pytest.raises(InvariantError):
        decide_base(spark(2), chain(C2, C0))


def test_the_parent_is_only_needed_for_the_newest_batch_again() -> None:
    asked = [needs_parent(spark(n, q), C2) for n, q in ((1, "q"), (2, "q"), (3, "q"), (2, "new"))]
    assert asked == [False, True, False, False]
    assert not needs_parent(spark(0), None)


class TestExplicitRestore:
    """The operator chose a commit; batch ids of a new query begin at 0 again."""

    def test_a_new_query_starts_from_the_chosen_commit(self) -> None:
        assert decide_base(spark(0, "new"), chain(C2), restore=RestoreRequest(3, C1)) == Execute(C1)

    def test_its_first_batch_is_done_again_on_the_chosen_commit(self) -> None:
        first = commit(0, 8, C1, query="new")
        again = decide_base(spark(0, "new"), chain(first, C1), restore=RestoreRequest(3, C1))
        assert again == Execute(C1)
        assert decide_base(spark(0, "new"), chain(first, C1)) == Execute(C1)

    def test_what_was_chosen_ahead_is_executed_on_although_the_sink_holds_the_batch_after_it(self) -> None:
        chosen = RestoreRequest(3, C1, ahead=True)
        assert decide_base(spark(2), chain(C2, C1), SinkCommit(2, 5), chosen) == Execute(C1)
        assert decide_base(spark(2), chain(C2, C1), SinkCommit(2, 5), RestoreRequest(3, C1)) == Adopt(C2)
        missing = RestoreRequest(99, None, ahead=True)
        assert decide_base(spark(0), chain(C0), SinkCommit(0, 2), missing) == Adopt(C0)

    @pytest.mark.parametrize("sink", [None, SinkCommit(0, 8)])
    def test_a_first_batch_that_spark_has_not_acknowledged_is_done_again_on_what_is_chosen_then(
        self, sink: SinkCommit | None
    ) -> None:
        """Found by the simulation: the query began on C1, and then on C1 again or not at all, whatever was chosen."""
        first = commit(0, 8, C1, query="new")
        chosen = RestoreRequest(2, C0, ahead=True)
        assert decide_base(spark(0, "new"), chain(first, C1), sink, chosen) == Execute(C0)
        for own in (RestoreRequest(8, first, ahead=True), RestoreRequest(2, C0)):
            expected = Execute(C1) if sink is None else Adopt(first)
            assert decide_base(spark(0, "new"), chain(first, C1), sink, own) == expected

    def test_its_first_batch_is_adopted_if_the_sink_holds_it(self) -> None:
        first = commit(0, 8, C1, query="new")
        assert decide_base(spark(0, "new"), chain(first, C1), SinkCommit(0, 8)) == Adopt(first)

    def test_the_sinks_output_of_the_old_query_is_not_mistaken_for_it(self) -> None:
        first = commit(0, 8, C1, query="new")
        assert decide_base(spark(0, "new"), chain(first, C1), SinkCommit(0, 2)) == Execute(C1)

    def test_later_restarts_go_on_as_usual_whether_the_option_is_still_set_or_not(self) -> None:
        first = commit(0, 8, C1, query="new")
        for restore in (None, RestoreRequest(3, C1), RestoreRequest(99, None)):
            assert decide_base(spark(1, "new"), chain(first), restore=restore) == Execute(first)

    def test_a_query_that_is_past_batch_0_cannot_start_from_a_chosen_commit(self) -> None:
        with pytest.raises(LineageError, match="only batch 0"):
            decide_base(spark(3, "new"), chain(C2), restore=RestoreRequest(3, C1))

    def test_a_chosen_commit_that_does_not_exist_is_an_error_even_for_a_new_job(self) -> None:
        for newest in (None, OTHER):
            with pytest.raises(StateMissingError, match="no commit with seq 3"):
                decide_base(spark(0, "new"), chain(newest), restore=RestoreRequest(3, None))

    def test_a_chosen_commit_that_was_truncated_is_an_error(self) -> None:
        with pytest.raises(StateMissingError, match="no longer complete"):
            decide_base(spark(0, "new"), chain(C2, keep_from=3), restore=RestoreRequest(3, C1))

    def test_a_rewound_query_goes_on_from_the_chosen_commit_of_the_batch_before(self) -> None:
        assert decide_base(spark(1), chain(C2), restore=RestoreRequest(2, C0)) == Execute(C0)

    @pytest.mark.parametrize("restore", [RestoreRequest(3, C1), RestoreRequest(9, OTHER), RestoreRequest(4, None)])
    def test_a_rewound_query_refuses_any_other_commit(self, restore: RestoreRequest) -> None:
        with pytest.raises(RewindError):
            decide_base(spark(1), chain(C2), restore=restore)

    def test_lineage_is_checked_for_a_rewound_query(self) -> None:
        with pytest.raises(LineageError, match="offsets/0"):
            decide_base(spark(1, previous="x"), chain(C2), restore=RestoreRequest(2, C0))

    def test_a_gap_cannot_be_restored_away(self) -> None:
        with pytest.raises(GapError):
            decide_base(spark(4), chain(C2), restore=RestoreRequest(3, C1))
