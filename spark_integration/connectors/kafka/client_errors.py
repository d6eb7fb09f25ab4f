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
def translated(action: str) -> Iterator[None]:
    """Translate what the client raises inside of the block. Raises as `translate`."""
    from confluent_kafka import KafkaException

    try:
        with kafka_exceptions():
            yield
    except KafkaException as error:
        raise translate(error.args[0], action) from error


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
