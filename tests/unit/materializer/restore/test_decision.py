"""Choice of the checkpoint that fits Spark's location."""

from __future__ import annotations

import msgspec
import pytest

from tests.unit.changelog.commit.test_base_decision import commit
from varvite.changelog.chain.retention_bounds import RetentionBounds
from varvite.materializer.restore.decision import RequestedCheckpoint, RestorePlan, SparkLocation, decide_restore
from varvite.storage.errors import LineageError, StateMissingError
from varvite.storage.format.records import InputPosition

C0 = commit(0, 2)
C1 = commit(1, 3, C0, needs_from=3)
C2 = commit(2, 5, C1, needs_from=4)
LINE = (C2, C1, C0)
ANY = RequestedCheckpoint()


def location(acknowledged: int, planned: int | None = None, query: str | None = "q") -> SparkLocation:
    hashes = {n: f"h{n}" for n in range(acknowledged if planned is None else planned)}
    return SparkLocation(query, hashes, frozenset(range(acknowledged)))


@pytest.mark.parametrize(
    ("spark", "wanted", "expected"),
    [
        pytest.param(None, ANY, RestorePlan(C2, None), id="no location: the newest"),
        pytest.param(None, RequestedCheckpoint(batch=1), RestorePlan(C1, None), id="no location: the wanted batch"),
        pytest.param(location(3), ANY, RestorePlan(C2, None), id="in step"),
        pytest.param(location(3, 4), ANY, RestorePlan(C2, None), id="in step, the next batch is planned"),
        pytest.param(location(9), ANY, RestorePlan(C2, 2), id="Spark is ahead"),
        pytest.param(location(3, 5), ANY, RestorePlan(C2, 2), id="Spark has planned two batches more"),
        pytest.param(location(2), ANY, RestorePlan(C1, 1), id="Spark is behind"),
        pytest.param(location(2, 3), ANY, RestorePlan(C1, 1), id="the newest batch is not acknowledged"),
        pytest.param(location(3), RequestedCheckpoint(seq=2), RestorePlan(C0, 0), id="an older one is wanted"),
        pytest.param(location(0, 0, None), ANY, RestorePlan(C2, begins_anew=True), id="lost"),
        pytest.param(location(0, 1, "new"), ANY, RestorePlan(C2, begins_anew=True), id="lost, a new query has tried"),
    ],
)
def test_the_newest_checkpoint_that_fits_is_chosen(
    spark: SparkLocation | None, wanted: RequestedCheckpoint, expected: RestorePlan
) -> None:
    assert decide_restore(LINE, RetentionBounds(0), spark, wanted) == expected


@pytest.mark.parametrize(
    ("spark", "wanted", "why"),
    [
        (location(3, query="other"), ANY, "of query q, the location of query other"),
        (location(2), RequestedCheckpoint(seq=5), "no offsets of batch 2 .it has 0 to 1."),
        (location(2, 3), RequestedCheckpoint(seq=5), "not acknowledged batch 2"),
        (location(0, 1), ANY, "no offsets of batch 2"),
        (location(0, 0), ANY, "it has none"),
        (SparkLocation("q", {2: "x"}, frozenset({2})), ANY, "other input"),
    ],
)
def test_what_does_not_fit_is_an_error(spark: SparkLocation, wanted: RequestedCheckpoint, why: str) -> None:
    with pytest.raises(LineageError, match=why):
        decide_restore(LINE, RetentionBounds(0), spark, wanted)


def test_what_is_not_complete_any_more_is_never_chosen() -> None:
    assert decide_restore(LINE, RetentionBounds(4), None, ANY).commit == C2
    with pytest.raises(StateMissingError, match=r"complete are: 5 \(batch 2\)"):
        decide_restore(LINE, RetentionBounds(4), location(3), RequestedCheckpoint(batch=1))
    with pytest.raises(StateMissingError, match="none"):
        decide_restore((), RetentionBounds(), None, ANY)


def test_a_checkpoint_with_the_position_of_its_input_fits_a_location_that_lags_behind() -> None:
    position = InputPosition(offsets="v1\n{}\n7")
    c1, c2 = (msgspec.structs.replace(c, position=position) for c in (C1, C2))
    lagging = SparkLocation("q", {0: "h0"}, frozenset({0}))
    for spark in (lagging, SparkLocation("q", {}, frozenset()), location(9)):
        assert decide_restore((c2, c1, C0), RetentionBounds(0), spark, RequestedCheckpoint(seq=3)) == RestorePlan(c1)
    with pytest.raises(LineageError, match="the location of query other"):
        decide_restore((c2, c1, C0), RetentionBounds(0), location(1, query="other"), ANY)


def test_a_location_that_says_nothing_yet_is_of_a_query_that_has_begun_if_the_newest_commit_is() -> None:
    begun = msgspec.structs.replace(commit(1, 9, query="new"), position=InputPosition(offsets="v1\n{}\n7"))
    spark = SparkLocation("new", {0: "x"}, frozenset())
    with pytest.raises(LineageError, match="of query q, the location of query new"):
        decide_restore((begun, C0), RetentionBounds(0), spark, RequestedCheckpoint(seq=2))
