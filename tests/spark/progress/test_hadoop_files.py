"""Small files by Hadoop's file systems, also by one that Hadoop's FileContext does not know."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.rate_jobs import RateJob, expected_rows
from varvite.spark_integration.connectors.hadoop_files import HadoopDirectory
from varvite.spark_integration.connectors.sink_note import NOTE

pytestmark = pytest.mark.spark
LINK = "fs.viewfs.mounttable.default.link./data"


@pytest.fixture
def plain_location(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """A directory behind a scheme that only Hadoop's FileSystem knows."""
    (tmp_path / "data").mkdir()
    conf = {
        "fs.plain.impl": "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme",
        "fs.plain.impl.disable.cache": "true",  # each test has a directory of its own
        LINK: f"file://{tmp_path}/data",
    }
    for key, value in conf.items():
        spark.conf.set(key, value)
    yield "plain:/data"
    for key in conf:
        spark.conf.unset(key)


@pytest.fixture(params=["file", "plain"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "plain":
        url: str = request.getfixturevalue("plain_location")
        return url
    return str(tmp_path)


def test_a_file_is_created_once_and_replaced(spark: SparkSession, location: str) -> None:
    files = HadoopDirectory(spark, location)
    files.make_directory("logs")
    assert files.create_whole("logs/0", b"first")
    assert not files.create_whole("logs/0", b"second")
    assert files.read("logs/0") == b"first"
    for data in (b"third", b"fourth"):
        files.replace_whole("logs/0", data)
        assert files.read("logs/0") == data
    files.replace_whole("logs/1", b"new")
    assert sorted(name for name in files.list_names("logs") if not name.startswith(".")) == ["0", "1"]


def test_the_path_of_a_local_directory_alone_is_known(spark: SparkSession, plain_location: str, tmp_path: Path) -> None:
    for directory in (tmp_path / "a b", tmp_path / "50%20"):
        for url in (str(directory), f"file://{directory}", f"file:{directory}"):
            assert HadoopDirectory(spark, url).local_path == directory
    assert HadoopDirectory(spark, plain_location).local_path is None


def test_a_job_keeps_its_location_there(spark: SparkSession, plain_location: str, tmp_path: Path) -> None:
    """Each start makes the location from the checkpoints."""
    job = RateJob(spark, tmp_path)
    for _ in range(3):
        job.run(2, checkpointLocation=f"{plain_location}/checkpoint")
    assert job.batches == list(range(len(job.batches)))
    assert job.rows == expected_rows(len(job.batches))
    assert (tmp_path / "data" / "checkpoint" / NOTE).is_file()
