"""Drivers of a job from Kafka to Kafka or to a table, killed with SIGKILL: each row is counted and written once."""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import psycopg
import pytest
from deltalake import DeltaTable
from pyiceberg.exceptions import NoSuchTableError

from tests.integration.tables.iceberg_warehouse import Warehouse
from tests.spark.job.test_driver_crash import POINTS, run_driver, start_driver
from tests.spark.kafka.kafka_jobs import check_numbered, messages
from tests.stores.kafka_broker import Kafka
from tests.stores.postgres_server import Server

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]
Values: TypeAlias = Callable[[], list[str]]


def log(directory: Path) -> str:
    return (directory / "driver.log").read_text()[-2000:]


def delta_values(path: str) -> list[str]:
    if not DeltaTable.is_deltatable(path):
        return []
    return DeltaTable(path).to_pyarrow_table().column("value").to_pylist()


def iceberg_values(warehouse: Warehouse) -> list[str]:
    try:
        return [value for (value,) in warehouse.rows("value")]
    except NoSuchTableError:
        return []


def postgres_values(conninfo: str) -> list[str]:
    with psycopg.connect(conninfo) as connection, suppress(psycopg.errors.UndefinedTable):
        return [value for (value,) in connection.execute("select value from output").fetchall()]
    return []


def place(sink: str, kafka: Kafka, request: pytest.FixtureRequest, directory: Path) -> tuple[str, Values]:
    """A new place for the output of a sink, and what reads its values."""
    if sink == "kafka":
        topic = kafka.new_topic()
        return topic, lambda: kafka.values(topic)
    if sink == "delta":
        path = str(directory / "table")
        return path, lambda: delta_values(path)
    if sink == "iceberg":
        warehouse = Warehouse(directory / "iceberg")
        request.addfinalizer(warehouse.close)
        return str(directory / "iceberg"), lambda: iceberg_values(warehouse)
    server: Server = request.getfixturevalue("postgres")
    conninfo = server.new_database()
    return conninfo, lambda: postgres_values(conninfo)


@pytest.mark.parametrize(
    ("sink", "kills"),
    [
        pytest.param("kafka", 1, marks=pytest.mark.timeout(1_200)),
        pytest.param("kafka", 200, marks=[pytest.mark.rare, pytest.mark.timeout(7_200)]),
        *(
            pytest.param(sink, 50, marks=[pytest.mark.rare, pytest.mark.timeout(3_600)])
            for sink in ("delta", "iceberg", "postgres")
        ),
    ],
)
def test_a_driver_killed_at_every_step_loses_and_doubles_nothing(
    kafka: Kafka, tmp_path: Path, sink: str, kills: int, request: pytest.FixtureRequest
) -> None:
    """All that it has kept on its machine is gone at each start; the last runs are killed at any moment."""
    source = kafka.new_topic()
    target, values = place(sink, kafka, request, tmp_path)
    end = 80 * (kills + 2)  # of which two parts for the fail points
    kafka.put(source, *messages(0, end))
    arguments = (kafka.servers, source, sink, target)
    for point in POINTS:
        assert run_driver(tmp_path, point, *arguments, module="kafka_driver") == -signal.SIGKILL, log(tmp_path)
        assert (tmp_path / point).exists()
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
    rng = random.Random(1)
    while (before := len(values())) < end:
        deadline_s = time.monotonic() + 240
        driver = start_driver(tmp_path, None, *arguments, module="kafka_driver")
        try:
            while len(values()) < min(end, before + 80):
                assert driver.poll() is None, log(tmp_path)
                assert time.monotonic() < deadline_s, log(tmp_path)
                time.sleep(0.3)
            time.sleep(rng.random() / 2)
        finally:
            driver.kill()
            driver.wait()
    check_numbered(values(), end)
