"""The decision if the rows of a large batch come to the driver, and the division of what has come."""

from __future__ import annotations

import pyarrow as pa
import pytest

from varvite.spark_integration.connectors.output.rows import SMALL_BYTES
from varvite.spark_integration.driver.answer_size import GROWTH, REST_BATCHES, PastAnswers
from varvite.spark_integration.driver.operator_executor import split_answers
from varvite.spark_integration.messages.protocol import SUMMARY_COLUMN


def test_nothing_is_expected_before_the_first_batch() -> None:
    assert not PastAnswers().is_next_small


def test_the_next_answer_may_be_twice_as_large() -> None:
    assert PastAnswers().after(SMALL_BYTES // GROWTH).is_next_small
    assert not PastAnswers().after(SMALL_BYTES // GROWTH + 1).is_next_small
    assert PastAnswers().after(SMALL_BYTES).after(0).is_next_small


def test_after_rows_that_the_driver_has_refused_a_hundred_batches_are_cached() -> None:
    past = PastAnswers().after(1).after_refusal()
    for _ in range(REST_BATCHES):
        assert not past.is_next_small
        past = past.after(1)
    assert past.is_next_small


Row = tuple[int | None, bytes | None]


def batch(*rows: Row) -> pa.RecordBatch:
    numbers, summaries = [number for number, _ in rows], [summary for _, summary in rows]
    return pa.RecordBatch.from_arrays(
        [pa.array(numbers, pa.int64()), pa.array(summaries, pa.binary())], ["v", SUMMARY_COLUMN]
    )


@pytest.mark.parametrize(
    ("answers", "summaries", "numbers"),
    [
        ([], [], []),
        ([batch((1, None), (2, None), (None, b"a"))], [b"a"], [[1, 2]]),
        ([batch((1, None)), batch((None, b"a")), batch((None, b"b"))], [b"a", b"b"], [[1], []]),
        ([batch((None, b"a")), batch((1, None)), batch((2, None), (None, b"b"))], [b"a", b"b"], [[], [1, 2]]),
        ([batch((1, None))], [], []),  # whoever counts the summaries misses it
    ],
)  # fmt: skip
def test_a_summary_ends_the_rows_of_its_partition(
    answers: list[pa.RecordBatch], summaries: list[bytes], numbers: list[list[int]]
) -> None:
    encoded, partitions = split_answers(answers)
    assert [bytes(each) for each in encoded] == summaries
    assert [[v for each in rows for v in each.column("v").to_pylist()] for rows in partitions] == numbers
