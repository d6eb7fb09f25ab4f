"""PyFlink's initialisers of offsets, and the offsets that they stand for; asked of Kafka's client in the JVM.

A query that has begun goes on where it was; offsets to start from count for a new one alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from varvite.spark_integration.connectors.kafka.admin import NO_ANSWER, KafkaAdmin, KafkaTopicPartition, reason_of
from varvite.storage.errors import DidNotHappenError, InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping


class KafkaOffsetResetStrategy(Enum):
    """The offset of a partition that has none, or none that is there; PyFlink's numbers."""

    LATEST = 0
    EARLIEST = 1
    NONE = 2


class Start(Enum):
    """Kinds of initialisers."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIMESTAMP = "timestamp"
    OFFSETS = "offsets"
    COMMITTED = "committed_offsets"


@dataclass(frozen=True)
class KafkaOffsetsInitializer:
    """Offsets to start from, or to stop at."""

    kind: Start
    timestamp_ms: int = 0
    chosen: Mapping[KafkaTopicPartition, int] = field(default_factory=dict)
    reset: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE

    @staticmethod
    def committed_offsets(
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE,
    ) -> KafkaOffsetsInitializer:
        """The group's committed offsets; those of the strategy where it has none."""
        return KafkaOffsetsInitializer(Start.COMMITTED, reset=offset_reset_strategy)

    @staticmethod
    def timestamp(timestamp: int) -> KafkaOffsetsInitializer:
        """The first record with this time or a later one, milliseconds; the end where there is none."""
        if not isinstance(timestamp, int) or timestamp < 0:
            raise InvalidRequestError(f"{timestamp!r} is no time: give milliseconds since 1970")
        return KafkaOffsetsInitializer(Start.TIMESTAMP, timestamp_ms=timestamp)

    @staticmethod
    def earliest() -> KafkaOffsetsInitializer:
        """The first record that is there."""
        return KafkaOffsetsInitializer(Start.EARLIEST)

    @staticmethod
    def latest() -> KafkaOffsetsInitializer:
        """The end, as it is when the job starts."""
        return KafkaOffsetsInitializer(Start.LATEST)

    @staticmethod
    def offsets(
        offsets: Mapping[KafkaTopicPartition, int],
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST,
    ) -> KafkaOffsetsInitializer:
        """These offsets; the group's for other partitions, and those of the strategy where it has none."""
        return KafkaOffsetsInitializer(Start.OFFSETS, chosen=dict(offsets), reset=offset_reset_strategy)


@dataclass(frozen=True)
class Bounds:
    """The offsets that a partition has."""

    earliest: int
    latest: int


def decide_offset(
    at: KafkaTopicPartition,
    initializer: KafkaOffsetsInitializer,
    bounds: Bounds,
    committed: int | None,
) -> int:
    """The offset of a partition, as Flink has it; pure.

    Args:
        at: The partition.
        initializer: With offsets, or of the group's.
        bounds: The offsets that are there.
        committed: The group's.

    Raises:
        InvalidRequestError: There is none, and the strategy is NONE.
    """
    offset = initializer.chosen.get(at, committed)
    if offset is not None and bounds.earliest <= offset <= bounds.latest:
        return offset
    if initializer.reset is KafkaOffsetResetStrategy.NONE:
        group = "its group has committed none" if offset is None else f"{offset} is not there any more, or not yet"
        raise InvalidRequestError(
            f"partition {at.partition} of topic {at.topic} has no offset to begin at, for {group}: give "
            "KafkaOffsetsInitializer a KafkaOffsetResetStrategy"
        )
    return bounds.earliest if initializer.reset is KafkaOffsetResetStrategy.EARLIEST else bounds.latest


def spark_offsets(offsets: Mapping[KafkaTopicPartition, int]) -> str:
    """Offsets as Spark's options have them."""
    topics: dict[str, dict[str, int]] = {}
    for at in sorted(offsets):
        topics.setdefault(at.topic, {})[str(at.partition)] = offsets[at]
    return json.dumps(topics)


@dataclass(frozen=True)
class Subscription:
    """The topics of a source: by name, by a pattern, or single partitions."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[KafkaTopicPartition, ...] = ()

    def spark_option(self) -> tuple[str, str]:
        """Spark's option, and its value."""
        if self.partitions:
            numbers: dict[str, list[int]] = {}
            for at in sorted(self.partitions):
                numbers.setdefault(at.topic, []).append(at.partition)
            return "assign", json.dumps(numbers)
        return ("subscribePattern", self.pattern) if self.pattern else ("subscribe", ",".join(self.topics))

    def __str__(self) -> str:
        return " ".join(self.spark_option())


class KafkaOffsets:
    """Asks a cluster for offsets.

    Args:
        jvm: Of the driver.
        client: Options of Kafka's client.

    Raises (all methods):
        DidNotHappenError: Kafka does not answer.
    """

    def __init__(self, jvm: Any, client: Mapping[str, str]) -> None:
        self._jvm, self._client = jvm, client

    def resolve(
        self, initializer: KafkaOffsetsInitializer, subscription: Subscription, group: str | None
    ) -> dict[KafkaTopicPartition, int]:
        """The offset of each partition of a subscription that is there.

        Raises:
            InvalidRequestError: A partition has none; or a topic is not there.
        """
        try:
            admin = KafkaAdmin(self._jvm, self._client)
            try:
                return _resolved(admin, initializer, subscription, group)
            finally:
                admin.close()
        except NO_ANSWER as error:
            raise DidNotHappenError(
                f"Kafka could not be asked for the offsets of {subscription}: {reason_of(error)}"
            ) from error


def _resolved(
    admin: KafkaAdmin, initializer: KafkaOffsetsInitializer, subscription: Subscription, group: str | None
) -> dict[KafkaTopicPartition, int]:
    partitions = _partitions(admin, subscription)
    latest = admin.latest(partitions)
    if initializer.kind is Start.LATEST:
        return latest
    if initializer.kind is Start.TIMESTAMP:
        of_time = admin.of_time(partitions, initializer.timestamp_ms)
        return {at: latest[at] if offset < 0 else offset for at, offset in of_time.items()}
    earliest = admin.earliest(partitions)
    if initializer.kind is Start.EARLIEST:
        return earliest
    committed = admin.committed(group) if group else {}
    return {
        at: decide_offset(at, initializer, Bounds(earliest[at], latest[at]), committed.get(at)) for at in partitions
    }


def _partitions(admin: KafkaAdmin, subscription: Subscription) -> list[KafkaTopicPartition]:
    """The partitions of a subscription."""
    if subscription.partitions:
        return sorted(subscription.partitions)
    topics = admin.topics_like(subscription.pattern) if subscription.pattern else list(subscription.topics)
    descriptions = admin.descriptions(topics)
    for topic in topics:
        if topic not in descriptions:
            raise InvalidRequestError(f"there is no Kafka topic {topic!r}; create it, or correct its name")
    return sorted(
        KafkaTopicPartition(topic, int(p.partition())) for topic in topics for p in descriptions[topic].partitions()
    )
