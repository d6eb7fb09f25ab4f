"""Kafka's own admin client, in the JVM, where Spark's source brings it along."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError, Py4JJavaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NO_ANSWER: Final = (Py4JError, TypeError)
"""Errors of all methods, and of making it: Kafka does not answer, or its client is not there (`TypeError`)."""
_TIMEOUT_MS: Final = "20000"


@dataclass(frozen=True, order=True)
class KafkaTopicPartition:
    """A partition of a topic."""

    topic: str
    partition: int


class KafkaAdmin:
    """A client of one cluster. Raises `NO_ANSWER`.

    Args:
        jvm: Of the driver.
        options: Of Kafka's client.
    """

    def __init__(self, jvm: Any, options: Mapping[str, str]) -> None:
        self._jvm = jvm
        self._admins = jvm.org.apache.kafka.clients.admin
        timeouts = {"default.api.timeout.ms": _TIMEOUT_MS, "request.timeout.ms": _TIMEOUT_MS}
        self._client = self._admins.AdminClient.create(self._map({**options, **timeouts}))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def topics_like(self, pattern: str) -> list[str]:
        """The names of the topics that match one of Java's patterns."""
        matches = self._jvm.java.util.regex.Pattern.compile(pattern)
        return [name for name in self._client.listTopics().names().get() if matches.matcher(name).matches()]

    def descriptions(self, topics: Iterable[str]) -> dict[str, Any]:
        """Topic → its description, Java's; without those that are not there."""
        names = list(topics)
        listed = self._jvm.java.util.ArrayList()
        for name in names:
            listed.add(name)
        answers = self._client.describeTopics(listed).topicNameValues()
        descriptions: dict[str, Any] = {}
        for name in names:
            try:
                descriptions[name] = answers.get(name).get()
            except Py4JJavaError as error:
                if "UnknownTopicOrPartition" not in str(error):
                    raise
        return descriptions

    def earliest(self, partitions: Iterable[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        """The first offset of each partition."""
        return self._offsets(partitions, self._admins.OffsetSpec.earliest())

    def latest(self, partitions: Iterable[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        """The end of each partition."""
        return self._offsets(partitions, self._admins.OffsetSpec.latest())

    def of_time(self, partitions: Iterable[KafkaTopicPartition], time_ms: int) -> dict[KafkaTopicPartition, int]:
        """The first offset of each partition with this time or a later one; -1: there is none."""
        return self._offsets(partitions, self._admins.OffsetSpec.forTimestamp(time_ms))

    def committed(self, group: str) -> dict[KafkaTopicPartition, int]:
        """The committed offsets of a group."""
        answers = self._client.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
        offsets = {place: answers[place] for place in answers}
        return {
            KafkaTopicPartition(str(place.topic()), int(place.partition())): int(offset.offset())
            for place, offset in offsets.items()
            if offset is not None
        }

    def _offsets(self, partitions: Iterable[KafkaTopicPartition], spec: Any) -> dict[KafkaTopicPartition, int]:
        places = {at: self._jvm.org.apache.kafka.common.TopicPartition(at.topic, at.partition) for at in partitions}
        answers = self._client.listOffsets(self._map(dict.fromkeys(places.values(), spec)))
        return {at: int(answers.partitionResult(place).get().offset()) for at, place in places.items()}

    def _map(self, entries: Mapping[Any, Any]) -> Any:
        made = self._jvm.java.util.HashMap()
        for key, value in entries.items():
            made.put(key, value)
        return made


def reason_of(error: BaseException) -> str:
    """The text of an error without the JVM's stack."""
    return str(error).partition("\n\tat ")[0]
