"""A storage that refuses, before the first batch and in the middle of a run, as the user of Spark sees it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.functions.small import Limited
from tests.spark.keyed_jobs import UID, KeyedJob, Sums, in_order, kill_state_workers
from tests.stores.lossy_proxy import EXPIRED, SKEWED, LossyProxy
from tests.stores.s3_servers import S3Server
from varvite.storage.errors import InvalidRequestError, RetryableError

pytestmark = pytest.mark.spark


@pytest.mark.s3
@pytest.mark.fixed_storage  # what is asked of the storage, and when, depends on the changelog
def test_a_storage_that_refuses_is_told_before_the_first_batch_and_in_the_middle_of_a_run(
    spark: SparkSession, tmp_path: Path, moto_server: S3Server
) -> None:
    with LossyProxy(moto_server.endpoint_url) as proxy:
        server = replace(moto_server, endpoint_url=proxy.url)
        job = KeyedJob(spark, tmp_path, conf=server.job_conf("s3://no-such-bucket-here/x"))
        job.add(("a", 1), ("b", 2))
        with pytest.raises(InvalidRequestError, match="bucket does not exist"):
            job.start()
        job.conf = server.job_conf(server.new_location())
        proxy.always = EXPIRED
        with pytest.raises(InvalidRequestError, match="correct key, secret or token"):
            job.start()
        assert not spark.streams.active
        proxy.always = None
        job.add(("a", 3))

        def skewing(rows: DataFrame, batch: int) -> None:
            job.collect(rows, batch)
            proxy.always = SKEWED

        with pytest.raises(InvalidRequestError, match="clock of this machine differs") as raised:
            job.run(skewing)
        assert raised.value.context["job"] == "job"
        assert moto_server.secret not in str(raised.value)
        proxy.always = None
        job.add(("a", 4), ("b", 5))
        job.run()
        assert job.rows() == in_order(job.expected)


@pytest.mark.long
@pytest.mark.fixed_storage  # the log must be uploaded
def test_what_a_state_worker_cannot_do_is_the_error_that_the_user_gets(spark: SparkSession, tmp_path: Path) -> None:
    """Spark keeps only the text of what a task raised."""
    conf = {"checkpoint.inline-size-max": "0 b", "state.changelog.dstl.dfs.batch.persist-size-threshold": "0 b"}
    job = KeyedJob(spark, tmp_path, changelog=True, function=Limited(), conf=conf)
    job.add(("a", 1), ("b", 2))
    job.add(("a", 13))
    with pytest.raises(RetryableError, match="raise the limit, then try again") as raised:
        job.run()
    assert {k: raised.value.context[k] for k in ("job", "operator", "batch")} == {
        "job": "job",
        "operator": UID,
        "batch": 1,
    }
    kill_state_workers(spark)
    job.function = Sums()
    job.add(("a", 4), ("b", 5))
    job.run()
    assert job.rows() == in_order(job.expected)
