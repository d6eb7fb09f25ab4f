"""Drivers of a job from Kafka to Kafka, killed with SIGKILL: each row is counted and written once."""

from __future__ import annotations

import random
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.spark.job.test_driver_crash import POINTS, run_driver, start_driver
from tests.spark.kafka.kafka_jobs import check_numbered, messages
from tests.stores.kafka_broker import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]


def log(directory: Path) -> str:
    return (directory / "driver.log").read_text()[-2000:]


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(2, marks=pytest.mark.timeout(1_200)),
        pytest.param(200, marks=[pytest.mark.rare, pytest.mark.timeout(7_200)]),
    ],
)
def test_a_driver_killed_at_every_step_loses_and_doubles_nothing(kafka: Kafka, tmp_path: Path, kills: int) -> None:
    """All that it has kept on its machine is gone at each start; the last runs are killed at any moment."""
    source, target = kafka.new_topic(), kafka.new_topic()
    end = 80 * (kills + 1)
    kafka.put(source, *messages(0, end))
    arguments = (kafka.servers, source, target)
    for point in POINTS:
        assert run_driver(tmp_path, point, *arguments, module="kafka_driver") == -signal.SIGKILL, log(tmp_path)
        assert (tmp_path / point).exists()
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
    rng = random.Random(1)
    while (before := len(kafka.values(target))) < end:
        deadline_s = time.monotonic() + 240
        driver = start_driver(tmp_path, None, *arguments, module="kafka_driver")
        try:
            while len(kafka.values(target)) < min(end, before + 80):
                assert driver.poll() is None, log(tmp_path)
                assert time.monotonic() < deadline_s, log(tmp_path)
                time.sleep(0.3)
            time.sleep(rng.random() / 2)
        finally:
            driver.kill()
            driver.wait()
    check_numbered(kafka.values(target), end)
