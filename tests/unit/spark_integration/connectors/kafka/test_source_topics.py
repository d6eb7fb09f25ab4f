"""Topics that a query has read, compared with those that there are."""

from __future__ import annotations

import pytest

from varvite.spark_integration.connectors.kafka.source_topics import (
    LostRows,
    Topic,
    check_ids,
    decode_topics,
    encode_topics,
    kafka_offsets,
    lost_rows,
    next_offsets,
)
from varvite.storage.errors import LineageError

HEAD = b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n'


def test_offsets_of_kafka_are_told_from_those_of_other_sources() -> None:
    lines = [b'{"t":{"1":7,"0":5},"u":{"0":0}}', b"12", b'{"logOffset":3}', b"-", b'{"t":{"0":1}}']
    lines += [b'{"a":{"b":1}}']
    assert kafka_offsets(HEAD + b"\n".join(lines), 4) == {
        "0": {"t": {1: 7, 0: 5}, "u": {0: 0}},
        "4": {"t": {0: 1}},
    }


def test_a_topic_with_another_id_is_an_error_that_says_what_to_set() -> None:
    noted, now = {"t": "old", "gone": "x"}, {"t": Topic("new", {0: 0}), "later": Topic("y", {0: 0})}
    check_ids({"t": "new"}, now, 7, 12)
    with pytest.raises(LineageError, match=r"topic 't' is another one.* batch 7.*checkpointLocation, and .* to 12 for"):
        check_ids(noted, now, 7, 12)


def test_lost_rows_are_those_between_what_was_read_and_what_is_there() -> None:
    read = {"t": {0: 5, 1: 7, 2: 0}, "gone": {0: 3}}
    earliest = {"t": {0: 5, 1: 9, 3: 4}, "later": {0: 9}}
    assert lost_rows(read, earliest) == [LostRows("t", 1, 7, 9)]
    assert str(LostRows("t", 1, 7, 9)) == "t-1: 7 to 8"


def test_rows_that_a_batch_has_lost_end_with_the_batch() -> None:
    read, earliest = {"t": {0: 5, 1: 7, 2: 3}}, {"t": {0: 20, 1: 8, 2: 3}}
    ends = {"t": {0: 12, 1: 30, 2: 9}}
    assert lost_rows(read, earliest, ends) == [LostRows("t", 0, 5, 12), LostRows("t", 1, 7, 8)]
    begins = next_offsets(ends, earliest)
    assert begins == {"t": {0: 20, 1: 30, 2: 9}}
    assert lost_rows(begins, earliest, {"t": {0: 20, 1: 40}}) == []


def test_a_note_is_read_as_it_was_written() -> None:
    ids = {"1": {"t": "id"}, "0": {}}
    assert decode_topics(encode_topics(ids), "x") == ids
