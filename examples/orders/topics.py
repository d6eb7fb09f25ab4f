"""The orders that the demo writes to Kafka, and what it reads of the totals: only committed messages."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec

from examples.orders.job import ORDERS, TOTALS

PARTITIONS = 2
PIECE = 10_000
QUEUE_MAX = 200_000
"""Messages that wait in the client."""


def client(servers: str) -> dict[str, Any]:
    """Options of all clients; a broker that is away is not worth a line for each try."""
    return {"bootstrap.servers": servers, "log_level": 2}


def make_topics(servers: str) -> None:
    """Create both topics."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient(client(servers))
    for topic in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (ORDERS, TOTALS)]).values():
        topic.result()


def write_orders(servers: str, count: int, customers: int, seed: int, written: Callable[[int], object]) -> None:
    """Write orders of random customers over random amounts; calls `written` with the number so far."""
    from confluent_kafka import Producer

    rng = random.Random(seed)
    config: dict[str, Any] = {"linger.ms": 50, "queue.buffering.max.messages": 0, "enable.idempotence": True}
    with Producer({**client(servers), **config}) as producer:
        for begin in range(0, count, PIECE):
            piece = [
                {"key": f"customer {rng.randrange(customers)}", "value": str(rng.randrange(100, 100_000))}
                for _ in range(min(PIECE, count - begin))
            ]
            producer.produce_batch(ORDERS, piece)
            while len(producer) > QUEUE_MAX:
                producer.poll(0.05)
            written(begin + len(piece))
        producer.flush()


class TotalsReader:
    """Follows the topic of totals, and checks that no order is counted twice and none is left out."""

    def __init__(self, servers: str) -> None:
        from confluent_kafka import Consumer, TopicPartition

        options = {"group.id": "demo", "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
        self._consumer = Consumer({**client(servers), **options})
        self._consumer.assign([TopicPartition(TOTALS, number, 0) for number in range(PARTITIONS)])
        self._decode = msgspec.json.Decoder(list[int]).decode
        self.totals: dict[str, tuple[int, int]] = {}
        """Customer → number and sum of the orders, in cents."""
        self.count = 0
        """Messages."""
        self.faults = 0
        """Messages that do not follow the one before of their customer."""

    def read(self, timeout_s: float) -> int:
        """Read what there is; answers the number of messages."""
        messages = self._consumer.consume(PIECE, timeout_s)
        for message in messages:
            if message.error() is not None:
                continue
            customer = message.key().decode()
            orders, cents = self._decode(message.value())
            self.faults += orders != self.totals.get(customer, (0, 0))[0] + 1
            self.totals[customer] = orders, cents
            self.count += 1
        return len(messages)

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()


def sum_of_orders(count: int, customers: int, seed: int) -> dict[str, tuple[int, int]]:
    """The totals that there must be at the end, computed without the job."""
    rng = random.Random(seed)
    totals: dict[str, tuple[int, int]] = {}
    for _ in range(count):
        customer, cents = f"customer {rng.randrange(customers)}", rng.randrange(100, 100_000)
        orders, spent = totals.get(customer, (0, 0))
        totals[customer] = orders + 1, spent + cents
    return totals
