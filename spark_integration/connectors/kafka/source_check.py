"""The Kafka sources of a query: compared by Kafka's client in the JVM, with the sources' own options.

At a start the topics are compared with those that were read before. Where rows may be lost (`failOnDataLoss=false`),
each batch is compared with what Kafka has deleted.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError

from varvite.spark_integration.connectors.kafka.admin import NO_ANSWER, KafkaAdmin, KafkaTopicPartition, reason_of
from varvite.spark_integration.connectors.kafka.source_topics import (
    TOPICS,
    Topic,
    check_ids,
    decode_topics,
    encode_topics,
    kafka_offsets,
    lost_rows,
    next_offsets,
)
from varvite.spark_integration.plan.stateless import children_of
from varvite.storage.errors import InvalidRequestError
from varvite.storage.format.records import SourceFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame

    from varvite.spark_integration.connectors.kafka.source_topics import LostRows
    from varvite.storage.format.records import Commit

_log: Final = logging.getLogger(__name__)
_PREFIX: Final = "kafka."


@dataclass(frozen=True, slots=True)
class PlannedKafkaSource:
    """A Kafka source of a plan."""

    client: tuple[tuple[str, str], ...]
    """Options of Kafka's client, with their values."""
    fails_on_loss: bool


def kafka_sources(df: DataFrame) -> list[PlannedKafkaSource]:
    """The Kafka sources of a streaming DataFrame, in Spark's order."""
    java: Any = df._jdf  # noqa: SLF001  there is no other way to the options of a source
    return [
        PlannedKafkaSource(
            client=tuple((name[len(_PREFIX) :], value) for name, value in options.items() if name.startswith(_PREFIX)),
            fails_on_loss=options.get("failondataloss", "true").lower() != "false",
        )
        for options in _options(java.queryExecution().analyzed())
    ]


def _options(plan: Any) -> list[dict[str, str]]:
    if str(plan.nodeName()).startswith("StreamingRelation"):
        if str(plan.sourceName()) != "kafka":
            return []
        options = dict(plan.extraOptions().asCaseSensitiveMap())
        return [{name if name.lower().startswith(_PREFIX) else name.lower(): options[name] for name in options}]
    return [options for child in children_of(plan) for options in _options(child)]


class SourceCheck:
    """The check of one run.

    Args:
        df: The job's input.
        job: Its name.
    """

    def __init__(self, df: DataFrame, job: str) -> None:
        self._jvm: Any = df.sparkSession.sparkContext._jvm  # noqa: SLF001  as above
        self._sources = kafka_sources(df)
        self._job = job
        self._noted: dict[str, dict[str, str]] = {}
        self._checked: dict[str, dict[str, Topic]] = {}
        """Topics of each source, as `check` has found them."""
        self._read: dict[str, dict[str, dict[int, int]]] = {}
        """Source → topic → partition → the offset from which the next batch reads."""
        self._clients: dict[PlannedKafkaSource, KafkaAdmin] = {}
        self._lost = 0

    def take_lost(self) -> int:
        """The number of offsets that Kafka has deleted before the job has read them, since the last call."""
        lost, self._lost = self._lost, 0
        return lost

    def close(self) -> None:
        """Close the connections. May be called twice."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            with suppress(Py4JError):
                client.close()

    def check(self, commit: Commit) -> None:
        """Compare the position of a commit, from which the query goes on, with the topics that there are.

        Raises:
            LineageError: A topic was deleted and made anew.
            InvalidRequestError: Rows are gone, and the source is to fail then.
            CorruptDataError: The note of topics does not parse.
        """
        position = commit.position
        if position is None or not self._sources:
            return
        for file in position.files:
            if file.name == TOPICS:
                self._noted = decode_topics(file.data, file.name)
        read = kafka_offsets(position.offsets.encode(), commit.batch)
        for source, name in self._paired(read):
            now = self._checked[name] = self._topics(source, read[name])
            check_ids(self._noted.get(name, {}), now, commit.batch, commit.seq)
            earliest = {topic: state.earliest for topic, state in now.items()}
            lost = lost_rows(read[name], earliest)
            if lost and source.fails_on_loss:
                text = "; ".join(map(str, lost))
                raise InvalidRequestError(
                    f"Kafka has deleted rows that the job has not read yet (offsets {text}). To go on without them, "
                    "set the source's option failOnDataLoss to false: they are counted, and lost. Longer retention of "
                    "the topic keeps it from happening again",
                    batch=commit.batch,
                )
            self._count(lost)
            self._read[name] = next_offsets(read[name], earliest)

    def _count(self, lost: list[LostRows]) -> None:
        if lost:
            self._lost += sum(each.end - each.begin for each in lost)
            text = "; ".join(map(str, lost))
            _log.warning("job %s: rows are lost, because Kafka has deleted them unread (offsets %s)", self._job, text)

    @property
    def may_lose(self) -> bool:
        """Does a source go on without rows that Kafka has deleted?"""
        return not all(source.fails_on_loss for source in self._sources)

    def look(self, offsets: bytes, batch: int) -> None:
        """Count the rows of a batch that Kafka has deleted, before Spark reads it; only if sources may lose some.

        Rows that Kafka deletes while Spark reads are not counted; those that Spark has fetched before are.
        """
        if not self.may_lose:
            return
        ends = kafka_offsets(offsets, batch)
        for source, name in self._paired(ends):
            begins = self._read.get(name)
            self._read[name] = ends[name]
            if begins is None or source.fails_on_loss:
                continue
            earliest: dict[str, dict[int, int]] = {topic: {} for topic in begins}
            places = [
                KafkaTopicPartition(topic, number) for topic, partitions in begins.items() for number in partitions
            ]
            try:
                for at, offset in self._client(source).earliest(places).items():
                    earliest[at.topic][at.partition] = offset
            except NO_ANSWER as error:
                _log.warning("job %s: Kafka does not say which rows it has deleted: %s", self._job, reason_of(error))
                continue
            self._count(lost_rows(begins, earliest, ends[name]))
            self._read[name] = next_offsets(ends[name], earliest)

    def note(self, offsets: bytes, batch: int) -> SourceFile | None:
        """The note of the topics up to these offsets; None without Kafka, or if it does not answer."""
        if not self._sources:
            return None
        read = kafka_offsets(offsets, batch)
        ids: dict[str, dict[str, str]] = {}
        for source, name in self._paired(read):
            topics = self._checked.get(name, {})
            if not topics.keys() >= read[name].keys():
                topics = self._topics(source, read[name])
            ids[name] = {**self._noted.get(name, {}), **{topic: state.id for topic, state in topics.items()}}
        return SourceFile(TOPICS, encode_topics(ids)) if any(ids.values()) else None

    def _paired(self, read: Mapping[str, Any]) -> list[tuple[PlannedKafkaSource, str]]:
        """The sources, each with its name in the offset log; none if the plan does not say which is which."""
        names = sorted(read, key=lambda name: (len(name), name))
        is_clear = len(names) == 1 or all(name.isdigit() for name in names)  # Spark's numbers are in its plan's order
        return list(zip(self._sources, names, strict=True)) if is_clear and len(names) == len(self._sources) else []

    def _topics(self, source: PlannedKafkaSource, read: Mapping[str, Mapping[int, int]]) -> dict[str, Topic]:
        """The topics as they are now; without those that are gone. Empty if Kafka does not answer."""
        try:
            return _described(self._client(source), read)
        except NO_ANSWER as error:
            _log.warning(
                "job %s: its topics cannot be compared with those that it has read before: %s",
                self._job, reason_of(error),
            )  # fmt: skip
            return {}

    def _client(self, source: PlannedKafkaSource) -> KafkaAdmin:
        if source not in self._clients:
            self._clients[source] = KafkaAdmin(self._jvm, dict(source.client))
        return self._clients[source]


def _described(admin: KafkaAdmin, names: Iterable[str]) -> dict[str, Topic]:
    descriptions = admin.descriptions(names)
    partitions = {name: [int(p.partition()) for p in topic.partitions()] for name, topic in descriptions.items()}
    earliest = admin.earliest(KafkaTopicPartition(name, number) for name in partitions for number in partitions[name])
    return {
        name: Topic(
            id=str(topic.topicId().toString()),
            earliest={number: earliest[KafkaTopicPartition(name, number)] for number in partitions[name]},
        )
        for name, topic in descriptions.items()
    }
