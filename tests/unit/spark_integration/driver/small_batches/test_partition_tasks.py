"""Attempts of a partition as in Spark's local mode, and the limit of answers."""

from __future__ import annotations

import pytest

from varvite.spark_integration.driver.small_batches.partition_tasks import (
    AnswerRoom,
    AnswerTooLargeError,
    failures_max,
)


@pytest.mark.parametrize(
    ("master", "failures"),
    [("local", 1), ("local[2]", 1), ("local[*]", 1), ("local[2,4]", 4), ("local[*, 3]", 3), ("local[2,0]", 1)],
)
def test_a_partition_fails_as_often_as_a_task_of_spark(master: str, failures: int) -> None:
    assert failures_max(master) == failures


def test_answers_above_the_limit_are_given_up() -> None:
    room = AnswerRoom(10, "counts", 3)
    room.take(6)
    room.take(4)
    with pytest.raises(AnswerTooLargeError, match="executed again by Spark's tasks") as raised:
        room.take(1)
    assert raised.value.context["operator"] == "counts"
