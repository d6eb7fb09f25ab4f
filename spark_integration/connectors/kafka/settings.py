"""Settings of a Kafka sink, from a program's arguments or from options of a writer, and the client's configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from varvite.spark_integration.connectors.kafka.client_errors import check_option
from varvite.spark_integration.options.format_options import read_truth
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

COMMIT_TOPIC: Final = "varvite-commits"
TRANSACTIONAL_ID_PREFIX: Final = "varvite"
SERVERS: Final = "bootstrap.servers"
_KAFKA: Final = "kafka."
_RESERVED: Final = {
    "transactional.id": "transactional_id_prefix",
    "queue.buffering.max.messages": "nothing: memory is bounded",
    "queue.buffering.max.kbytes": "nothing: memory is bounded",
    "delivery.report.only.error": "nothing",
}
"""Options that the sink sets itself, and what there is in their place."""
_OF_CONNECTIONS: Final = ("sasl.", "ssl.", "security.", "socket.", "broker.", "client.", "enable.ssl.", "reconnect.")
"""Beginnings of the options that every kind of client has."""
TRANSACTION_TIMEOUT_MS: Final = 180_000
"""Longer than brokers may be away; the client's own minute also ends its tries to deliver a message."""
_DEFAULTS: Final = {
    # As Kafka's Java client, and so Spark's sink, chooses partitions: the same key goes to the same partition.
    "partitioner": "murmur2_random",
    "linger.ms": 0,
}


class Delivery(Enum):
    """The guarantee of a sink."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True)
class KafkaSettings:
    """Settings of one sink."""

    servers: str
    topic: str | None = None
    """None: the column `topic` says it."""
    delivery: Delivery = Delivery.EXACTLY_ONCE
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Options of librdkafka, passwords among them."""
    commit_topic: str = COMMIT_TOPIC
    transactional_id_prefix: str = TRANSACTIONAL_ID_PREFIX
    allow_repeats: bool = False
    """Rows of a batch that the topic has already are appended once more, where they would be refused."""

    def connection(self) -> dict[str, Any]:
        """The client's configuration for reading and for administration."""
        options = {name: value for name, value in self.options if name.startswith(_OF_CONNECTIONS)}
        return {SERVERS: self.servers, **options}

    def producer(self, job_id: str) -> dict[str, Any]:
        """The configuration of the job's producer."""
        config: dict[str, Any] = {
            SERVERS: self.servers,
            **_DEFAULTS,
            "enable.idempotence": True,
            # A full queue would let later rows overtake earlier ones; `producer` bounds what is in it.
            "queue.buffering.max.messages": 0,
            "queue.buffering.max.kbytes": 2_147_483_647,
            "delivery.report.only.error": True,
            **dict(self.options),
        }
        if self.delivery is Delivery.EXACTLY_ONCE:
            config.setdefault("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS)
            config["transactional.id"] = f"{self.transactional_id_prefix}-{job_id}"
        return config

    def shares_transaction(self, other: KafkaSettings) -> bool:
        """Do both write in one transaction?"""
        of_transaction = [
            (s.servers, s.delivery, s.options, s.commit_topic, s.transactional_id_prefix, s.allow_repeats)
            for s in (self, other)
        ]
        return self.delivery is Delivery.EXACTLY_ONCE and of_transaction[0] == of_transaction[1]


def settings(servers: str, topic: str | None, options: Mapping[str, Any], **others: Any) -> KafkaSettings:
    """The settings of a program's arguments. Raises `InvalidRequestError`."""
    if not servers:
        raise InvalidRequestError("a Kafka sink needs the brokers' addresses: kafka.bootstrap.servers")
    known = sorted((str(name), _text(value)) for name, value in options.items())
    for name, _ in known:
        if name in _RESERVED:
            raise InvalidRequestError(f"a Kafka sink sets kafka.{name} itself; in its place it has {_RESERVED[name]}")
        check_option(name)
    others["delivery"] = _delivery(others.get("delivery", Delivery.EXACTLY_ONCE))
    return KafkaSettings(servers, topic, options=tuple(known), **others)


def arguments_of_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a sink, from a writer's options: Spark's, and the names of arguments.

    Raises:
        InvalidRequestError: Another option.
    """
    of_client: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for key, value in options.items():
        name = key.lower()
        if name.startswith(_KAFKA):
            of_client[key[len(_KAFKA) :]] = value
        elif name == "allow_repeats":
            others[name] = read_truth(key, value)
        elif name in {"topic", "delivery", "commit_topic", "transactional_id_prefix"}:
            others[name] = value
        else:
            raise InvalidRequestError(
                f"option {key!r} is not one of a Kafka sink: topic, delivery, commit_topic, transactional_id_prefix, "
                "allow_repeats, and those of the client behind kafka."
            )
    return {"servers": str(of_client.pop(SERVERS, "")), "options": of_client, **others}


def _delivery(value: Any) -> Delivery:
    try:
        return value if isinstance(value, Delivery) else Delivery(str(value).lower())
    except ValueError:
        choices = " or ".join(repr(each.value) for each in Delivery)
        raise InvalidRequestError(f"delivery is {value!r}; it is {choices}") from None


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
