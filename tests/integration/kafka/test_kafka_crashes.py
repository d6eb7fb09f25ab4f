"""The protocol of the Kafka sink: processes killed, or stopped and woken beside their successor, at any moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.sink_trial import Trial
from tests.stores.kafka_broker import Kafka

pytestmark = [pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(600)]


def test_processes_killed_or_stopped_at_any_moment_lose_and_double_nothing(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.new_topic(2)
    trial = Trial(tmp_path / topic, 1, "kafka", kafka.servers, topic, "exactly-once")
    trial.run(20)
    assert trial.figures(kafka.values(topic)) == (0, 0)
    assert trial.words()["REDONE"] + trial.words()["ADOPTED"] > 6


def test_without_transactions_the_same_trial_finds_rows_twice(kafka: Kafka, tmp_path: Path) -> None:
    """So the trial can see the fault."""
    topic = kafka.new_topic(2)
    trial = Trial(tmp_path / topic, 1, "kafka", kafka.servers, topic, "at-least-once")
    trial.run(14)
    missing, twice = trial.figures(kafka.values(topic))
    assert missing == 0
    assert twice > 0
