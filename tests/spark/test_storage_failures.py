"""A storage that refuses, before the first batch and in the middle of a run, as the user of Spark sees it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.lossy_proxy import EXPIRED, SKEWED, LossyProxy
from tests.s3_servers import S3Server
from tests.small_disk import small_disk
from tests.spark.keyed_jobs import BACKENDS, KeyedJob, in_order
from varve.storage.errors import InvalidRequestError, RetryableError

pytestmark = pytest.mark.spark


def s3_conf(server: S3Server, proxy: LossyProxy, location: str) -> dict[str, str]:
    return {
        "execution.checkpointing.dir": location,
        "storage.option.key": server.key,
        "storage.option.secret": server.secret,
        "storage.option.endpoint_url": proxy.url,
    }


def failing_after(job: KeyedJob, batch: int, action: Any) -> Any:
    def sink(rows: DataFrame, number: int) -> None:
        job.collect(rows, number)
        if number == batch:
            action()

    return sink


@pytest.mark.s3
@pytest.mark.fixed_storage  # what is asked of the storage, and when, depends on the changelog
def test_a_storage_that_refuses_is_told_before_the_first_batch_and_in_the_middle_of_a_run(
    spark: SparkSession, tmp_path: Path, moto_server: S3Server
) -> None:
    with LossyProxy(moto_server.endpoint_url) as proxy:
        job = KeyedJob(spark, tmp_path, conf=s3_conf(moto_server, proxy, "s3://no-such-bucket-here/x"))
        job.add(("a", 1), ("b", 2))
        with pytest.raises(InvalidRequestError, match="bucket does not exist"):
            job.start()
        job.conf = s3_conf(moto_server, proxy, moto_server.new_location())
        proxy.always = EXPIRED
        with pytest.raises(InvalidRequestError, match="correct key, secret or token"):
            job.start()
        assert not spark.streams.active
        proxy.always = None
        job.add(("a", 3))

        def skew() -> None:
            proxy.always = SKEWED

        with pytest.raises(InvalidRequestError, match="clock of this machine differs") as raised:
            job.run(failing_after(job, 0, skew))
        assert raised.value.context["batch"] == 1
        assert raised.value.context["job"] == "job"
        assert moto_server.secret not in str(raised.value)
        proxy.always = None
        job.add(("a", 4), ("b", 5))
        job.run()
        assert job.rows() == in_order(job.expected)
        assert [batch for batch, _ in job.received] == [0, 1, 2]


@pytest.mark.fixed_storage
def test_a_storage_that_fills_up_ends_the_query_and_it_goes_on_when_there_is_room(
    spark: SparkSession, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "state") as disk:
        job = KeyedJob(spark, tmp_path, backend=BACKENDS["rocksdb"])
        job.add(("a", 1), ("b", 2))
        job.add(("a", 3))
        with pytest.raises(RetryableError, match="disk is full: free space"):
            job.run(failing_after(job, 0, disk.fill))
        disk.free()
        job.add(("a", 4), ("b", 5))
        job.run()
        assert job.rows() == in_order(job.expected)
