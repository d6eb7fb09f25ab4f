"""The topic that notes the last commit of each job, in the transaction of its rows: one partition, compacted.

Format: docs/reference/formats/output-markers.md#commits-in-kafka.

Jobs share the topic. A reader of committed messages ends before the first transaction that is open, of whatever job,
and so perhaps before this job's own last commit. So the end is asked for without regard to transactions, and the
reader waits until it is there.

Invariants: I8 (a frame with magic, version and checksums).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import msgspec

from varvite.changelog.commit.base_decision import SinkCommit
from varvite.spark_integration.connectors.kafka.client_errors import ConnectionErrors, translate, translated
from varvite.storage.errors import DidNotHappenError, InvalidRequestError
from varvite.storage.format.frame import decode_json, frame, unframe

if TYPE_CHECKING:
    from varvite.spark_integration.connectors.kafka.settings import KafkaSettings
    from varvite.storage.clock import Clock

_log: Final = logging.getLogger(__name__)
KIND: Final = b"KAFC"
VERSION: Final = 1
REQUEST_TIMEOUT_S: Final = 30.0
READ_TIMEOUT_S: Final = 120.0
"""Time for the transactions of other jobs to end: twice what a broker leaves one by default."""
_TOPIC_CONFIG: Final = {
    "cleanup.policy": "compact",
    # A start reads the whole topic: little is left uncompacted.
    "min.cleanable.dirty.ratio": "0.01",
    "segment.bytes": str(1 << 20),
    "segment.ms": "600000",
}
_UNREADABLE: Final = {"TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"}


class KafkaCommit(msgspec.Struct, frozen=True, kw_only=True):
    """The last commit of a job whose rows are in the cluster."""

    batch: int
    seq: int
    token: str


def encode_commit(commit: SinkCommit) -> bytes:
    """The value of a message of the topic."""
    return frame(KIND, VERSION, msgspec.json.encode(KafkaCommit(**commit._asdict())))


def decode_commit(data: bytes, object_name: str) -> SinkCommit:
    """The commit of such a value. Raises `CorruptDataError`, `IncompatibleError`."""
    opened = unframe(KIND, VERSION, data, object_name)
    commit = decode_json(opened.header, KafkaCommit, "the commit", object_name)
    return SinkCommit(commit.batch, commit.seq, commit.token)


class CommitTopic:
    """The topic, for one job."""

    def __init__(self, settings: KafkaSettings, job_id: str, clock: Clock, connection: ConnectionErrors) -> None:
        self.name = settings.commit_topic
        self.key = job_id.encode()
        self._connection = connection
        self._config: dict[str, Any] = {**settings.connection(), "logger": _log}
        self._clock = clock

    def ensure(self) -> None:
        """Create the topic, or check the one that is there.

        Raises:
            InvalidRequestError: It is not compacted, has several partitions, or cannot be created.
            DidNotHappenError: The brokers do not answer.
        """
        from confluent_kafka import KafkaException, TopicCollection
        from confluent_kafka.admin import (
            AdminClient,
            NewTopic,  # pyright: ignore[reportPrivateImportUsage]  its documented name
        )

        admin = AdminClient(self._config)
        with translated(f"describe the topic {self.name}", self._connection):
            try:
                described = admin.describe_topics(TopicCollection([self.name]), request_timeout=REQUEST_TIMEOUT_S)
                partitions = len(described[self.name].result().partitions)
            except KafkaException as error:
                if error.args[0].name() != "UNKNOWN_TOPIC_OR_PART":
                    raise
            else:
                self._check(admin, partitions)
                return
            topic = NewTopic(self.name, 1, -1, config=dict(_TOPIC_CONFIG))
            try:
                admin.create_topics([topic], request_timeout=REQUEST_TIMEOUT_S)[self.name].result()
            except KafkaException as error:
                if error.args[0].name() != "TOPIC_ALREADY_EXISTS":  # of another job that starts
                    raise

    def _check(self, admin: Any, partitions: int) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import (
            ConfigResource,  # pyright: ignore[reportPrivateImportUsage]  its documented name
        )

        advice = "give another commit_topic, or none, and it is created"
        if partitions != 1:
            raise InvalidRequestError(f"the topic {self.name} of commits has {partitions} partitions, not 1; {advice}")
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.name)
        try:
            answers = admin.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)
            policy = answers[resource].result()["cleanup.policy"].value
        except KafkaException as error:
            if error.args[0].name() not in _UNREADABLE:
                raise
            _log.warning("it is unknown if the topic %s of commits is compacted; make sure that it is", self.name)
            return
        if policy != "compact":
            raise InvalidRequestError(
                f"the topic {self.name} of commits has cleanup.policy={policy}, so commits in it vanish, and batches "
                f"would be written twice; {advice}"
            )

    def read(self) -> SinkCommit | None:
        """The job's last commit; None before the first. Call it when no older producer can write any more.

        Raises:
            DidNotHappenError: The brokers do not answer, or a transaction of another job does not end.
            CorruptDataError: The commit does not parse.
            IncompatibleError: It was written by a newer version.
        """
        from confluent_kafka import Consumer, TopicPartition

        config = {**self._config, "group.id": self.name, "enable.auto.commit": False}
        at = TopicPartition(self.name, 0)
        with translated(f"read the topic {self.name}", self._connection):
            every = Consumer({**config, "isolation.level": "read_uncommitted"})
            try:
                low, high = every.get_watermark_offsets(at, timeout=REQUEST_TIMEOUT_S)
            finally:
                every.close()
            if low == high:
                return None
            committed = Consumer({**config, "isolation.level": "read_committed", "enable.partition.eof": True})
            try:
                committed.assign([TopicPartition(self.name, 0, low)])
                value = self._last_value(committed, high)
            finally:
                committed.close()
        return None if value is None else decode_commit(value, f"{self.name}/{self.key.decode()}")

    def _last_value(self, reader: Any, end: int) -> bytes | None:
        from confluent_kafka import KafkaError

        value: bytes | None = None
        deadline_s = self._clock.monotonic_s() + READ_TIMEOUT_S
        while self._clock.monotonic_s() < deadline_s:
            for message in reader.consume(1000, timeout=0.2):
                error = message.error()
                if error is None:
                    value = message.value() if message.key() == self.key else value
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  its public name
                    if message.offset() >= end:
                        return value
                else:
                    failure = translate(self._connection.cause_of(error), f"read the topic {self.name}")
                    if not isinstance(failure, DidNotHappenError):  # the client itself tries again
                        raise failure
        raise DidNotHappenError(
            f"the topic {self.name} of commits could not be read to its end within {READ_TIMEOUT_S:.0f} s: a "
            "transaction of another job is open in it, or the brokers do not answer; start the query again, or give "
            "the job a commit_topic of its own"
        )
