"""A producer of a job, and the transaction of a batch: rows of all sinks of a job in one cluster, and their commit.

A new driver's `take_over` ends the transaction that an older driver has left open, waits for one that is being
committed, and refuses the older driver's later writes; then it reads the last commit. It has to come after the older
driver was fenced off in the job's chain: a commit of the chain that is on the new driver's line is either in the topic
then, or never will be.

Invariants: I6 (Kafka fences what the chain has fenced), I10 (bytes in the client's queue are bounded).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from varvite.changelog.commit.base_decision import SinkCommit, WriteKind, decide_write
from varvite.spark_integration.connectors.kafka.client_errors import (
    ConnectionErrors,
    kafka_exceptions,
    translate,
    translated,
)
from varvite.spark_integration.connectors.kafka.commit_topic import CommitTopic, encode_commit
from varvite.spark_integration.connectors.kafka.settings import Delivery
from varvite.storage.clock import SystemClock
from varvite.storage.errors import (
    DidNotHappenError,
    FencedError,
    InvalidRequestError,
    LineageError,
    MayHaveHappenedError,
)
from varvite.storage.fail_point import fail_point

if TYPE_CHECKING:
    from collections.abc import Callable

    from varvite.spark_integration.connectors.kafka.settings import KafkaSettings
    from varvite.storage.clock import Clock
    from varvite.storage.errors import VarviteError

_log: Final = logging.getLogger(__name__)
QUEUE_BYTES_MAX: Final = 64 << 20
"""Bytes that are handed to the client before it has sent earlier ones, and one piece more."""
CALL_TIMEOUT_S: Final = 10.0
CONNECT_TIMEOUT_S: Final = 30.0
"""Time for the brokers to answer at the start."""
POLL_S: Final = 0.1
LIMIT_S: Final = 120.0
"""Time for the brokers to come back."""


class KafkaProducer:
    """One producer. All methods but `settings` raise as `client_errors.translate`.

    Args:
        settings: Of the sink, and of those that share the transaction.
        clock: Of the driver.
    """

    def __init__(self, settings: KafkaSettings, clock: Clock | None = None) -> None:
        self.settings = settings
        self._clock = clock or SystemClock()
        self._producer: Any = None
        self._connection = ConnectionErrors()
        self._commits: CommitTopic | None = None
        self._is_ready = False
        self._last: SinkCommit | None = None
        self._written: SinkCommit | None = None
        """The commit whose rows are being written."""
        self._queued_bytes = 0
        self._failure: Any = None
        """The first error of a message, and the message."""

    @property
    def is_transactional(self) -> bool:
        """Is each batch a transaction?"""
        return self.settings.delivery is Delivery.EXACTLY_ONCE

    def prepare(self, job_id: str) -> None:
        """Check options and brokers. Raises `InvalidRequestError`, also if the client is not installed."""
        try:
            from confluent_kafka import Producer
        except ImportError:
            raise InvalidRequestError(
                "a Kafka sink needs the package confluent-kafka in the driver: pip install 'varvite[kafka]'"
            ) from None
        self.close()
        config = self.settings.producer(job_id)
        with translated("take the options", self._connection):
            self._producer = Producer(
                {**config, "on_delivery": self._on_delivery, "error_cb": self._connection.note, "logger": _log}
            )
        self._connect()
        if self.is_transactional:
            self._commits = CommitTopic(self.settings, job_id, self._clock, self._connection)
            self._commits.ensure()

    def _connect(self) -> None:
        """Wait until brokers answer: of all clients only a producer that is polled says why they do not."""
        from confluent_kafka import KafkaException

        deadline_s = self._clock.monotonic_s() + CONNECT_TIMEOUT_S
        while True:
            try:
                self._producer.list_topics(timeout=1.0)
            except KafkaException as error:
                self._producer.poll(0)
                if self._connection.is_refused or self._clock.monotonic_s() > deadline_s:
                    raise self._error(error.args[0], "answer") from error
            else:
                return

    def take_over(self) -> None:
        """Refuse writes of older drivers, and read the last commit. A second call has no effect."""
        if self._is_ready:
            return
        if self._commits is not None:
            self._retry(self._producer.init_transactions, "begin the job's transactions")
            self._last = self._commits.read()
        self._is_ready = True

    @property
    def last_committed(self) -> SinkCommit | None:
        """The last commit whose rows are visible; None before the first, and without transactions."""
        return self._last

    def begin(self, commit: SinkCommit) -> bool:
        """Begin the transaction of a commit, if no other sink has; False if its rows are in the topics already.

        Raises:
            FencedError: A newer driver has written.
            LineageError: The topics have rows of this batch, or of later ones, of an execution that counts no more.
        """
        if not self._is_ready:
            raise InvalidRequestError("take_over() of the Kafka sink was not called before the first write")
        if self._written == commit:
            return True
        if self.is_transactional:
            kind = decide_write(self._last, commit)
            if kind is WriteKind.NOTHING:
                return False
            if kind is WriteKind.REPLACE:
                self._check_repeat(commit)
            self.abort()
            with translated("begin a transaction", self._connection):
                self._producer.begin_transaction()
        self._failure, self._queued_bytes, self._written = None, 0, commit
        return True

    def _check_repeat(self, commit: SinkCommit) -> None:
        assert self._last is not None  # noqa: S101  for the type checker
        if self.settings.allow_repeats:
            _log.warning(
                "rows of batch %d are written once more: the topics have those of batch %d (seq %d) already",
                commit.batch, self._last.batch, self._last.seq,
            )  # fmt: skip
            return
        raise LineageError(
            f"the topics hold the output up to batch {self._last.batch} (seq {self._last.seq}) already, batch "
            f"{commit.batch} was executed again (after `varvite restore`, say), and rows in Kafka cannot be replaced: "
            "set allow_repeats to have them there twice, or give the job other topics and another commit_topic",
            batch=commit.batch,
        )

    def produce(self, topic: str, messages: list[dict[str, Any]], size_bytes: int, *, is_plain: bool) -> None:
        """Hand messages to the client, in their order.

        Args:
            topic: Of all.
            messages: With `key`, `value` and perhaps `partition`, `headers` and `timestamp`.
            size_bytes: Of all.
            is_plain: They have only the first two.
        """
        if self._queued_bytes and self._queued_bytes + size_bytes > QUEUE_BYTES_MAX:
            self._flush()
        self._queued_bytes += size_bytes
        action = f"take a message for topic {topic!r}"
        with translated(action, self._connection):
            if not is_plain:  # the faster call takes no headers and times, and a partition without regard to it
                for message in messages:
                    self._producer.produce(topic, **message)
            elif self._producer.produce_batch(topic, messages) < len(messages):
                self._producer.poll(0)  # a fatal error says more
                self._check_delivered()
                raise self._error(next(m["_error"] for m in messages if "_error" in m), action)
            self._producer.poll(0)
        self._check_delivered()

    def complete(self, commit: SinkCommit) -> None:
        """Commit the transaction, or wait until all messages are delivered. A second call has no effect."""
        if self._written != commit:
            return
        if self._commits is not None:
            self.produce(
                self._commits.name,
                [{"key": self._commits.key, "value": encode_commit(commit)}],
                len(self._commits.key),
                is_plain=True,
            )
        self._flush()
        fail_point("driver.in_sink")
        if self.is_transactional:
            self._retry(self._producer.commit_transaction, "commit a transaction", may_have_happened=True)
            self._last = commit
        self._written = None

    def abort(self) -> bool:
        """Abort the transaction that is open: its batch is not complete. False if the producer can do nothing more."""
        from confluent_kafka import KafkaException

        is_open, self._written = self._written is not None, None
        try:
            if is_open and self.is_transactional:
                self._producer.abort_transaction(CALL_TIMEOUT_S)
        except (KafkaException, SystemError) as error:  # fenced, or no broker: then the next `take_over` aborts it
            _log.info("a transaction was not aborted: %s", error)
            return False
        return True

    def close(self) -> None:
        """Abort what is open, and release the connections. May be called twice."""
        producer = self._producer
        if producer is not None and self._is_ready and self.abort():
            producer.close()  # of one that is fenced it says that it cannot abort
        self._producer, self._is_ready, self._last, self._written = None, False, None, None

    def _flush(self) -> None:
        """Wait until everything is delivered.

        Not by the client's `flush`: after a fatal error it goes on to call `_on_delivery`, with that error pending.
        """
        deadline_s = self._clock.monotonic_s() + LIMIT_S
        while len(self._producer) and self._failure is None:
            with translated("take messages", self._connection):
                self._producer.poll(POLL_S)
            if self._clock.monotonic_s() > deadline_s:
                raise DidNotHappenError(
                    f"Kafka has not taken {len(self._producer)} messages within {LIMIT_S:.0f} s"
                    f"{self._connection.describe()}; see that the brokers can be reached, and start the query again"
                )
        self._queued_bytes = 0
        self._check_delivered()

    def _on_delivery(self, error: Any, message: Any) -> None:
        """Keep the first error. It asks the message nothing, see `kafka_exceptions`."""
        if error is not None and self._failure is None:
            self._failure = (error, message)

    def _error(self, error: Any, action: str) -> VarviteError:
        return translate(self._connection.cause_of(error), action)

    def _check_delivered(self) -> None:
        if self._failure is not None:
            error, message = self._failure
            raise self._error(error, f"take a message for topic {message.topic()!r}")

    def _retry(self, call: Callable[[float], Any], action: str, *, may_have_happened: bool = False) -> None:
        """Call until the answer is not that the brokers need longer."""
        from confluent_kafka import KafkaException

        deadline_s = self._clock.monotonic_s() + LIMIT_S
        while True:
            try:
                with kafka_exceptions():
                    call(CALL_TIMEOUT_S)
            except KafkaException as raised:
                error = raised.args[0]
                if error.retriable() and self._clock.monotonic_s() < deadline_s:
                    continue
                failure = self._error(error, action)
                is_unknown = may_have_happened and error.retriable() and not isinstance(failure, FencedError)
                if is_unknown:
                    failure = MayHaveHappenedError(f"{failure.message}: the next start finds out if it did")
                raise failure from raised
            else:
                return
