"""Kafka sinks of one job: those of one cluster have one producer."""

from __future__ import annotations

import pytest

from varvite.spark_integration.connectors.kafka.sink import KafkaSink
from varvite.spark_integration.connectors.several_sinks import OutputSinks, SeveralSinks, share_transactions
from varvite.storage.errors import InvalidRequestError


def test_sinks_of_two_clusters_are_refused() -> None:
    several = SeveralSinks((KafkaSink("a:1", "t"), KafkaSink("b:1", "t")))
    with pytest.raises(InvalidRequestError, match="KafkaSink and KafkaSink would commit the same batch one after"):
        several.prepare("job")


@pytest.mark.parametrize("number", [2, 3])
def test_kafka_sinks_of_one_cluster_share_a_producer(number: int) -> None:
    sinks = [KafkaSink("a:1", f"topic-{i}") for i in range(number)]
    several = OutputSinks(((0, SeveralSinks(sinks[1:])), (None, sinks[0])))
    share_transactions(several.sinks)
    assert len({id(sink.producer) for sink in sinks}) == 1
    for sink in sinks:
        sink.close()
    assert len({id(sink.producer) for sink in sinks}) == number


def test_sinks_that_are_at_least_once_share_nothing_and_come_first() -> None:
    first, second = KafkaSink("a:1", "t"), KafkaSink("a:1", "t", delivery="at-least-once")
    several = SeveralSinks((first, second))
    assert several.sinks == [second, first]
    assert not second.share_transaction(first)
    assert not first.share_transaction(second)
