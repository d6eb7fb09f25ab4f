"""Offsets of PyFlink's initialisers: Flink's rules for partitions without an offset, and Spark's options."""

from __future__ import annotations

import pytest

from varvite.datastream.connectors.kafka import KafkaOffsetResetStrategy, KafkaOffsetsInitializer, KafkaTopicPartition
from varvite.spark_integration.connectors.kafka.offsets import Bounds, Subscription, decide_offset, spark_offsets
from varvite.storage.errors import InvalidRequestError

AT = KafkaTopicPartition("t", 0)
BOUNDS = Bounds(earliest=10, latest=20)
EARLIEST, LATEST, NONE = (KafkaOffsetResetStrategy[name] for name in ("EARLIEST", "LATEST", "NONE"))


@pytest.mark.parametrize(
    ("initializer", "committed", "offset"),
    [
        (KafkaOffsetsInitializer.offsets({AT: 15}), None, 15),
        (KafkaOffsetsInitializer.offsets({AT: 15}), 12, 15),
        (KafkaOffsetsInitializer.offsets({AT: 20}), None, 20),
        (KafkaOffsetsInitializer.offsets({AT: 5}), None, 10),
        (KafkaOffsetsInitializer.offsets({AT: 21}, LATEST), None, 20),
        (KafkaOffsetsInitializer.offsets({}), 12, 12),
        (KafkaOffsetsInitializer.offsets({}), None, 10),
        (KafkaOffsetsInitializer.committed_offsets(), 12, 12),
        (KafkaOffsetsInitializer.committed_offsets(EARLIEST), None, 10),
        (KafkaOffsetsInitializer.committed_offsets(LATEST), 3, 20),
    ],
)
def test_a_partition_begins_where_flink_begins(
    initializer: KafkaOffsetsInitializer, committed: int | None, offset: int
) -> None:
    assert decide_offset(AT, initializer, BOUNDS, committed) == offset


@pytest.mark.parametrize(
    ("initializer", "committed", "message"),
    [
        (KafkaOffsetsInitializer.committed_offsets(), None, "partition 0 of topic t .* committed none"),
        (KafkaOffsetsInitializer.committed_offsets(), 5, "5 is not there any more"),
        (KafkaOffsetsInitializer.offsets({AT: 25}, NONE), None, "KafkaOffsetResetStrategy"),
    ],
)
def test_without_a_strategy_there_is_an_error(
    initializer: KafkaOffsetsInitializer, committed: int | None, message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        decide_offset(AT, initializer, BOUNDS, committed)


def test_topics_and_offsets_are_sparks_options() -> None:
    other = KafkaTopicPartition("s", 1)
    assert spark_offsets({AT: 5, other: 7}) == '{"s": {"1": 7}, "t": {"0": 5}}'
    assert Subscription(topics=("a", "b")).spark_option() == ("subscribe", "a,b")
    assert Subscription(pattern="a.*").spark_option() == ("subscribePattern", "a.*")
    assert Subscription(partitions=(AT, other)).spark_option() == ("assign", '{"s": [1], "t": [0]}')
    assert {AT, KafkaTopicPartition("t", 0)} == {AT}
