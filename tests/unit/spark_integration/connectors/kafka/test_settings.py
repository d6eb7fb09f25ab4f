"""Settings of a Kafka sink: Spark's options are taken, those of the Java client are refused with what to type."""

from __future__ import annotations

from typing import Any

import pytest

from varvite.spark_integration.connectors.kafka.settings import Delivery, arguments_of_options, settings
from varvite.spark_integration.connectors.kafka.sink import KafkaSink
from varvite.storage.errors import InvalidRequestError

SERVERS = {"kafka.bootstrap.servers": "a:1,b:2"}


def made(**options: Any) -> Any:
    named = {name.replace("__", "."): value for name, value in options.items()}
    return KafkaSink(**arguments_of_options({**SERVERS, **named})).settings


def test_sparks_options_are_taken() -> None:
    of_writer = made(topic="t", kafka__compression__type="lz4", kafka__sasl__username="u")
    assert of_writer == settings("a:1,b:2", "t", {"compression.type": "lz4", "sasl.username": "u"})
    config = of_writer.producer("0" * 32)
    assert config["compression.type"] == "lz4"
    assert config["transactional.id"] == f"varvite-{'0' * 32}"
    assert config["partitioner"] == "murmur2_random"
    assert of_writer.connection() == {"bootstrap.servers": "a:1,b:2", "sasl.username": "u"}


def test_names_of_options_are_taken_in_any_case_as_by_spark() -> None:
    assert made(TOPIC="t").topic == "t"


def test_at_least_once_has_no_transactions() -> None:
    of_writer = made(delivery="At-Least-Once")
    assert of_writer.delivery is Delivery.AT_LEAST_ONCE
    assert "transactional.id" not in of_writer.producer("j")
    assert of_writer.producer("j")["enable.idempotence"] is True


@pytest.mark.parametrize(("value", "truth"), [(True, True), ("false", False), ("TRUE", True)])
def test_a_truth_is_a_bool_or_its_text(value: Any, truth: bool) -> None:
    assert made(allow_repeats=value).allow_repeats is truth


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kafka__sasl__jaas__config": "x"}, r"Java client.* kafka\.sasl\.username and kafka\.sasl\.password"),
        ({"kafka__ssl__truststore__location": "x"}, r"kafka\.ssl\.ca\.location"),
        ({"kafka__key__serializer": "x"}, "keys are text or bytes"),
        ({"kafka__transactional__id": "x"}, "transactional_id_prefix"),
        ({"kafka__queue__buffering__max__messages": 5}, "memory is bounded"),
        ({"delivery": "once"}, "'exactly-once' or 'at-least-once'"),
        ({"allow_repeats": "yes"}, "true or false"),
        ({"path": "x"}, "'path' is not one of a Kafka sink: topic,"),
        ({"kafka__bootstrap__servers": ""}, r"kafka\.bootstrap\.servers"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_to_type(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        made(**options)


def test_passwords_are_not_shown() -> None:
    assert "secret" not in repr(made(kafka__sasl__password="secret"))


def test_settings_that_make_another_producer_share_no_transaction() -> None:
    base = made(topic="t")
    assert base.shares_transaction(made(topic="other"))
    for options in ({"kafka__acks": "1"}, {"commit_topic": "c"}, {"delivery": "at-least-once"}):
        assert not base.shares_transaction(made(topic="t", **options))
