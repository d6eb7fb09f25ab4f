"""One Spark session for all tests of this directory, and a stream of small files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.materialized_batches import materialize_every_other_batch
from tests.storage_switches import StorageSwitches
from tests.stores.kafka_broker import connector_jars

CHANGELOG = "spark.varvite.state.changelog.enabled"
SMALL_BATCH = "spark.varvite.execution.small-batch.max-rows"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1500m",
    # A machine that stands still for two minutes would cost the session: Spark takes its own executor for lost, cannot
    # register it again in local mode, and ends ten minutes later.
    "spark.network.timeout": "3600s",
    # Commits in 11 ms instead of 48: rename instead of create-and-rename through FileContext.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.pollingDelay": "10ms",
    "spark.sql.streaming.stopTimeout": "30s",
    "spark.log.level": "ERROR",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with two task slots; tests leave its configuration and its active queries as they found them."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    directory = tmp_path_factory.mktemp("spark")
    # Two slots; a task that fails is tried again, as on a cluster.
    builder = SparkSession.builder.master("local[2,4]").appName("varvite-tests")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    builder = builder.config("spark.sql.warehouse.dir", str(directory / "warehouse"))
    builder = builder.config("spark.local.dir", str(directory / "local"))
    if connector_jars():  # a session that runs takes no more of them
        builder = builder.config("spark.jars", connector_jars())
    session = builder.getOrCreate()
    yield session
    for query in session.streams.active:
        query.stop()
    session.stop()


@pytest.fixture(autouse=True)
def switched(
    request: pytest.FixtureRequest,
    storage_switches: StorageSwitches,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[None]:
    """Jobs of the session that do not say themselves are switched; see `tests.storage_switches`."""
    if "spark" not in request.fixturenames:
        yield
        return
    if storage_switches.materializes:
        materialize_every_other_batch(monkeypatch, tmp_path_factory.mktemp("materializer"))
    session: SparkSession = request.getfixturevalue("spark")
    session.conf.set(CHANGELOG, str(storage_switches.changelog).lower())
    if not storage_switches.small_batches:
        session.conf.set(SMALL_BATCH, "0")
    yield
    session.conf.unset(CHANGELOG)
    session.conf.unset(SMALL_BATCH)


class FileStream:
    """A directory of one-column-per-field JSON files as a stream: each file becomes one micro-batch."""

    def __init__(self, spark: SparkSession, directory: Path, schema: str) -> None:
        self._spark = spark
        self._schema = schema
        self._next = 0
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def add(self, *rows: str) -> None:
        """One more file, of JSON objects."""
        temporary = self.directory / f".{self._next:05d}.tmp"
        temporary.write_text("".join(row + "\n" for row in rows))
        # Spark orders files by their time, in milliseconds.
        os.utime(temporary, (1_700_000_000 + self._next, 1_700_000_000 + self._next))
        temporary.rename(self.directory / f"{self._next:05d}.json")
        self._next += 1

    def read(self) -> DataFrame:
        """The stream, one file per batch."""
        reader = self._spark.readStream.schema(self._schema).option("maxFilesPerTrigger", 1)
        return reader.json(str(self.directory))


@pytest.fixture
def rows_of_k(spark: SparkSession, tmp_path: Path) -> FileStream:
    """A stream of rows (k string, v long) with three files: keys a, b; a; c."""
    stream = FileStream(spark, tmp_path / "input", "k string, v long")
    stream.add('{"k": "a", "v": 1}', '{"k": "b", "v": 2}')
    stream.add('{"k": "a", "v": 3}')
    stream.add('{"k": "c", "v": 4}')
    return stream
