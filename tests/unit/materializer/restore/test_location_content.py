"""A location made from the chain: which commit it says, when its batch is open, and what is written and deleted."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.unit.changelog.commit.test_base_decision import commit
from varvite.changelog.commit.base_decision import RestoreRequest, SinkCommit
from varvite.materializer.restore.location_content import (
    LocationState,
    LocationTarget,
    change_of,
    choose_commit,
    content_of,
    decide_target,
)
from varvite.storage.errors import CorruptDataError, LineageError
from varvite.storage.format.records import Commit, InputPosition, Link, SourceFile, StateSource

START = SourceFile("sources/0/0", b"v1\nstart")


def positioned(batch: int, seq: int, parent: Commit | None = None, query: str = "q", *, in_log: bool = False) -> Commit:
    position = InputPosition(
        offsets=f"v1\n{{}}\n{batch * 10}", watermark_ms=batch, files=(START,), is_in_spark_log=in_log
    )
    return replace(commit(batch, seq, parent, query), position=position)


C0 = positioned(0, 2)
C1 = positioned(1, 3, C0)
C2 = positioned(2, 5, C1)
EMPTY = LocationState(None, frozenset(), frozenset())
HELD = SinkCommit(2, 5, "t5")


def location(planned: set[int], acknowledged: set[int], newest: Commit = C2, query: str | None = "q") -> LocationState:
    assert newest.position is not None
    offsets = newest.position.offsets if newest.batch in planned else None
    return LocationState(query, frozenset(planned), frozenset(acknowledged), offsets)


def test_without_a_position_the_location_stays() -> None:
    assert choose_commit(None, EMPTY) is None
    assert choose_commit(commit(2, 5), EMPTY) is None


def test_the_newest_commit_counts_whatever_the_location_says() -> None:
    for state in (EMPTY, location({0}, {0}), location({0, 1, 2, 3}, {0, 1, 2})):
        assert choose_commit(C2, state) == C2


def test_the_location_of_another_query_is_an_error() -> None:
    with pytest.raises(LineageError, match="location of query other; use the location of this state, or an empty one"):
        choose_commit(C2, location({0}, set(), query="other"))


@pytest.mark.parametrize(
    ("state", "ahead", "expected"),
    [
        (location({0, 1, 2}, {0, 1}), True, C1),
        (EMPTY, True, None),  # a new location: the query begins at batch 0 with that state
        (LocationState(None, frozenset(), frozenset(), is_private=True), True, C1),
        (location({0, 1, 2}, {0, 1}), False, None),
        (location({0}, set(), query="other"), True, None),
    ],
)
def test_the_choice_of_an_operator_counts(state: LocationState, ahead: bool, expected: Commit | None) -> None:
    assert choose_commit(C2, state, RestoreRequest(3, C1, ahead)) == expected


def test_the_choice_of_another_query_s_commit_does_not_hide_that_the_location_s_query_has_begun() -> None:
    other = positioned(4, 1, query="before")
    assert choose_commit(C2, location({0}, set()), RestoreRequest(1, other, ahead=True)) == C2


@pytest.mark.parametrize(
    ("sink", "noted", "state", "is_open"),
    [
        (HELD, None, EMPTY, False),
        (HELD._replace(token="other"), None, EMPTY, True),
        (SinkCommit(1, 3, "t3"), C2.link, EMPTY, True),  # what the sink says counts
        (None, C2.link, EMPTY, False),
        (None, C1.link, EMPTY, True),
        (None, Link(5, "of another line"), EMPTY, True),
        (None, None, location({1, 2}, {1, 2}), True),  # Spark has written its log at some time, of some execution
    ],
)
def test_a_batch_is_open_until_its_sink_is_known_to_be_done(
    sink: SinkCommit | None, noted: Link | None, state: LocationState, is_open: bool
) -> None:
    target = decide_target(C2, C1, state, sink=sink, noted=noted)
    assert target == LocationTarget(C2, C1, is_open)
    assert target.next_batch == (2 if is_open else 3)


@pytest.mark.parametrize(
    ("state", "is_open"),
    [
        (location({1, 2}, {1, 2}), False),
        (location({1, 2}, {1}), True),
        (location({1, 2}, {1, 2}, query="other"), True),
        (LocationState("q", frozenset({2}), frozenset({2}), "other offsets"), True),
        (EMPTY, True),
    ],
)
def test_spark_s_commit_log_counts_if_it_was_written_in_each_batch(state: LocationState, is_open: bool) -> None:
    newest = positioned(2, 5, C1, in_log=True)
    target = decide_target(newest, C1, state)
    assert target is not None
    assert target.is_open is is_open


def test_what_a_batch_has_followed_and_what_was_copied_is_done() -> None:
    followed = decide_target(C1, C0, EMPTY, is_newest=False)
    assert followed == LocationTarget(C1, C0, is_open=False)
    copied = replace(C2, source=StateSource("j", Link(1, "t")))
    assert decide_target(copied, None, EMPTY) == LocationTarget(copied, None, is_open=False)


def test_an_open_batch_needs_the_position_before_it() -> None:
    assert decide_target(C2, commit(1, 3, C0), EMPTY) is None
    assert decide_target(C2, positioned(7, 3, query="before"), EMPTY) is None
    assert decide_target(C0, None, EMPTY) == LocationTarget(C0, None, is_open=True)
    before = positioned(7, 3, query="before")
    first = positioned(0, 5, before)
    assert decide_target(first, before, EMPTY) == LocationTarget(first, None, is_open=True)


def test_the_files_say_that_the_batch_is_open_or_done() -> None:
    open_files = content_of(LocationTarget(C2, C1, is_open=True))
    assert open_files == {
        "metadata": b'{"id":"q"}',
        "sources/0/0": START.data,
        "offsets/1": b"v1\n{}\n10",
        "commits/1": b'v1\n{"nextBatchWatermarkMs":1}',
        "offsets/2": b"v1\n{}\n20",
    }
    done = content_of(LocationTarget(C2, C1, is_open=False))
    assert done == open_files | {"commits/2": b'v1\n{"nextBatchWatermarkMs":2}'}


@pytest.mark.parametrize(
    "name", ["../../x", "sources/0/1", "/etc/passwd", "sources/../0", "offsets/3", "sources/a/b/0"]
)
def test_an_entry_cannot_write_elsewhere(name: str) -> None:
    assert C0.position is not None
    evil = replace(C0, position=replace(C0.position, files=(SourceFile(name, b""),)))
    with pytest.raises(CorruptDataError, match="which no source of Spark writes"):
        content_of(LocationTarget(evil, None, is_open=True))


def test_a_location_that_says_it_is_left_alone() -> None:
    target = LocationTarget(C2, C1, is_open=False)
    assert change_of(target, location({1, 2}, {1, 2})).write == {}
    assert change_of(target, location({0, 1, 2}, {0, 1, 2})).write == {}


@pytest.mark.parametrize(
    ("state", "is_open", "deleted"),
    [
        (EMPTY, False, ()),
        (location({1, 2, 3}, {1, 2}), False, ("offsets/3",)),
        (location({1, 2}, {1, 2}), True, ("commits/2",)),
        (location({0, 2, 5}, {0, 5}), True, ("commits/5", "offsets/5")),
        (LocationState("q", frozenset({1, 2}), frozenset({1, 2}), "other offsets"), False, ()),
    ],
)
def test_what_differs_is_deleted_and_all_is_written(
    state: LocationState, is_open: bool, deleted: tuple[str, ...]
) -> None:
    target = LocationTarget(C2, C1, is_open)
    change = change_of(target, state)
    assert change.delete == deleted
    assert change.write == content_of(target)
