"""Thousands of summaries in columns say what each of them says."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workers.state_worker_setup import filled
from tests.workers.summaries import grouped, summary
from varvite.changelog.working_stores.contract import StoreSize
from varvite.spark_integration.messages.operator_summaries import OperatorSummaries
from varvite.spark_integration.messages.protocol import UserError, row_tag, row_tags
from varvite.spark_integration.messages.summary import (
    JOINED_MEAN_BYTES_MAX,
    Summary,
    WorkerNote,
    decode_summaries,
    decode_summary,
    encode_summary,
)
from varvite.spark_integration.messages.worker_figures import COUNTS, PHASES, AttemptFigures, LogRead
from varvite.storage.clock import SystemTokens
from varvite.storage.format.records import ObjectSlice, StateSchema

COUNT = st.integers(0, (1 << 63) - 1)
MAYBE = st.none() | COUNT
SIZES = st.none() | st.builds(StoreSize, MAYBE, MAYBE).filter(lambda size: size != StoreSize(None, None))
TIMINGS = st.dictionaries(st.sampled_from(PHASES), st.floats(0, 1e9))
FIGURES = st.builds(
    AttemptFigures,
    rows_in=COUNT,
    rows_out=COUNT,
    event_time_max_ms=st.none() | st.integers(-(1 << 62), 1 << 62),
    row_bytes_max=MAYBE,
    state_size=SIZES,
    log_read=st.builds(LogRead, COUNT, COUNT),
    timings_ms=TIMINGS,
)


@given(FIGURES)
def test_packed_figures_come_back(figures: AttemptFigures) -> None:
    packed = figures.packed()
    assert len(packed) == 8 * (len(COUNTS) + len(PHASES))
    assert AttemptFigures.unpacked(packed) == figures


@pytest.mark.parametrize("inline_bytes", [10, JOINED_MEAN_BYTES_MAX + 1])
def test_summaries_are_decoded_alike_together_and_one_by_one(inline_bytes: int) -> None:
    uploaded = (ObjectSlice("seg/1/x", 0, 5, 7),)
    wanted = [
        summary(partition=0, inline=b"i" * inline_bytes, restored="current", rows_in=4),
        summary(partition=1, inline=b"i" * inline_bytes, uploaded=uploaded, image=b"image", handed_over_bytes=3),
        summary(partition=2, inline=b"i" * inline_bytes, error=filled(UserError, exception_type="x"), mutations=9),
    ]
    encoded = [encode_summary(one) for one in wanted]
    assert decode_summaries(encoded) == [decode_summary(one) for one in encoded] == wanted
    assert decode_summaries([]) == []


def test_a_summary_without_a_note_says_nothing() -> None:
    bare = Summary(operator="o", partition=0, low=0, high=1, tag="", slot=1)
    assert bare.worker_note() == WorkerNote()
    assert bare.attempt_figures() == AttemptFigures()


def of_figures(*said: dict[str, Any]) -> OperatorSummaries:
    return OperatorSummaries.of("sums", [summary(partition=p, **fields) for p, fields in enumerate(said)])


def test_what_is_not_known_is_left_out_or_makes_the_sum_unknown() -> None:
    own = of_figures(
        {"rows_in": 3, "event_time_max_ms": -5, "state_size": StoreSize(2, None)},
        {"rows_in": 4, "event_time_max_ms": None, "state_size": StoreSize(5, 100)},
    )
    assert (own.total("rows_in"), own.largest("rows_in")) == (7, 4)
    assert (own.largest("event_time_max_ms"), own.largest("row_bytes_max")) == (-5, None)
    assert (own.total_if_known("state_rows"), own.total_if_known("state_bytes")) == (7, None)
    nobody = OperatorSummaries.of("sums", [])
    assert (nobody.total("rows_in"), nobody.total_if_known("rows_in"), nobody.largest("rows_in")) == (0, None, None)
    assert (nobody.restored(), nobody.with_note(())) == ({}, [])


def test_phases_that_no_partition_had_are_missing() -> None:
    own = of_figures({"timings_ms": {"process": 2.0, "restore": 5.0}}, {"timings_ms": {"process": 3.0}})
    assert own.total_ms() == {"restore": 5.0, "process": 5.0}
    assert own.slowest_ms() == {"restore": 5.0, "process": 3.0}


def test_notes_are_counted_by_partition_and_each_is_kept_once() -> None:
    states = (StateSchema(name="n", kind="value", value_type="long"),)
    said = [("confirmed", "a"), ("restored", "b"), ("confirmed", "a"), ("confirmed", "b")]
    own = of_figures(*({"restored": how, "executor": executor, "states": states} for how, executor in said))
    assert len(own.notes) == 3
    assert own.restored() == {"confirmed": 3, "restored": 1}
    assert (own.executors(), own.executor_of()) == ({"a": 2, "b": 2}, ["a", "b", "a", "b"])
    assert own.with_note(note.executor == "b" for note in own.notes) == [1, 3]
    assert {note.states for note in own.notes} == {states}


def test_summaries_are_grouped_by_operator_as_they_come() -> None:
    given_ones = [summary(operator=operator, partition=p) for operator in ("second", "first") for p in (0, 1)]
    found = grouped(given_ones)
    assert [own.operator for own in found] == ["second", "first"]
    assert [one for own in found for one in own.summaries] == given_ones


def test_row_tags_are_those_of_each_tag() -> None:
    tags = [SystemTokens().token() for _ in range(random.randrange(2, 50))]
    assert row_tags(tags) == [row_tag(tag) for tag in tags]
    assert (row_tags([]), row_tags(["f" * 32])) == ([], [(1 << 63) - 1])
