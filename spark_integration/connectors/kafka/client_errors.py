"""Errors of Kafka's client as errors that say what to do."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from varvite.storage.errors import DidNotHappenError, FencedError, InvalidRequestError, VarviteError

if TYPE_CHECKING:
    from collections.abc import Iterator

_FENCED: Final = {"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING"}
_ADVICE: Final = {
    "UNKNOWN_TOPIC_OR_PART": "create the topic, or correct its name or the column `partition`",
    "_UNKNOWN_TOPIC": "create the topic, or correct its name",
    "_UNKNOWN_PARTITION": "correct the column `partition`, or leave it out",
    "TOPIC_EXCEPTION": "correct the topic's name",
    "MSG_SIZE_TOO_LARGE": "raise the topic's max.message.bytes and the option kafka.message.max.bytes, or yield less",
    "TOPIC_AUTHORIZATION_FAILED": "allow this user to write to the topic",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "allow this user the transactional id, or give another "
    "transactional_id_prefix",
    "CLUSTER_AUTHORIZATION_FAILED": "allow this user idempotent writes",
    "_AUTHENTICATION": "correct the security options",
    "_SSL": "correct the security options",
    "_RESOLVE": "correct kafka.bootstrap.servers, or the addresses that the brokers announce",
    "_INVALID_ARG": "correct the options",
    "INVALID_TRANSACTION_TIMEOUT": "give a kafka.transaction.timeout.ms that the broker allows "
    "(transaction.max.timeout.ms)",
}
_JAVA_OPTIONS: Final = {
    "sasl.jaas.config": "kafka.sasl.username and kafka.sasl.password",
    "ssl.truststore.location": "kafka.ssl.ca.location, a PEM file",
    "ssl.truststore.type": "kafka.ssl.ca.location, a PEM file",
    "ssl.truststore.password": "kafka.ssl.ca.location, a PEM file",
    "ssl.keystore.type": "kafka.ssl.keystore.location, a PKCS#12 file",
    "max.request.size": "kafka.message.max.bytes",
    "partitioner.class": "kafka.partitioner",
    "buffer.memory": "nothing: memory is bounded",
    "key.serializer": "nothing: keys are text or bytes",
    "value.serializer": "nothing: values are text or bytes",
}
"""Options of the Java client, which Spark's sink takes, and what the client here has in their place."""


_CONSEQUENCES: Final = {"_TIMED_OUT", "_MSG_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN"}
"""Errors of calls that say nothing of the cause."""
_REFUSALS: Final = {"_AUTHENTICATION", "_SSL", "_RESOLVE"}
"""Causes that do not go away by themselves."""
_CERTIFICATE: Final = "certificate verify failed"


class ConnectionErrors:
    """Keeps the reason why brokers cannot be reached, which clients report beside the calls that wait for it."""

    def __init__(self) -> None:
        self._reason: Any = None

    def note(self, error: Any) -> None:
        """Keep an error, as the client's `error_cb`; in any thread."""
        if self._reason is None or error.name() in _REFUSALS or self._reason.name() not in _REFUSALS:
            self._reason = error

    def cause_of(self, error: Any) -> Any:
        """The reason for the error of a call, or that error itself."""
        return self._reason if self._reason is not None and error.name() in _CONSEQUENCES else error

    @property
    def is_refused(self) -> bool:
        """Has a broker refused the user, or this client a broker?"""
        reason = self._reason
        return reason is not None and (reason.name() == "_AUTHENTICATION" or _CERTIFICATE in reason.str())

    def describe(self) -> str:
        """The reason in brackets, for the end of a message; empty if none is known."""
        return "" if self._reason is None else f" ({self._reason.name()}: {self._reason.str()})"


def check_option(name: str) -> None:
    """Raise `InvalidRequestError` for an option of the Java client that this one does not have."""
    if name in _JAVA_OPTIONS:
        raise InvalidRequestError(
            f"kafka.{name} is an option of Kafka's Java client, and this sink uses librdkafka; it has "
            f"{_JAVA_OPTIONS[name]}"
        )


@contextmanager
def kafka_exceptions() -> Iterator[None]:
    """Let what the client raises inside of the block be a `KafkaException`.

    It sets a fatal error and may call a function of the program before it raises. Python takes that for a fault of its
    own, and raises SystemError from the exception.
    """
    from confluent_kafka import KafkaException

    try:
        yield
    except SystemError as error:
        cause = error.__cause__
        if not isinstance(cause, KafkaException):
            raise
        raise cause from None


@contextmanager
def translated(action: str, connection: ConnectionErrors) -> Iterator[None]:
    """Translate what the client raises inside of the block. Raises as `translate`."""
    from confluent_kafka import KafkaException

    try:
        with kafka_exceptions():
            yield
    except KafkaException as error:
        raise translate(connection.cause_of(error.args[0]), action) from error


def translate(error: Any, action: str) -> VarviteError:
    """The error to raise for one of the client's.

    Args:
        error: A `KafkaError`.
        action: The attempt that failed, behind "Kafka did not".
    """
    name, text = error.name(), error.str()
    if name in _FENCED:
        return FencedError(
            f"Kafka did not {action}: a newer driver writes with this transactional id, and this one must end; or the "
            f"transaction took longer than kafka.transaction.timeout.ms: raise it and start again ({name}: {text})"
        )
    advice = _ADVICE.get(name)
    if advice is not None:
        return InvalidRequestError(f"Kafka did not {action} ({name}: {text}); {advice}")
    return DidNotHappenError(f"Kafka did not {action} ({name}: {text}); start the query again")
