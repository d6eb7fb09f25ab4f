"""A job on Ceph whose daemons die by SIGKILL between its batches and in the middle of one, behind a lossy proxy."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from benchmarks.harness.servers.ceph import ACCESS_KEY, SECRET_KEY, running_ceph
from tests.spark.keyed_jobs import KeyedJob, in_order, kill_state_workers
from tests.stores.lossy_proxy import CALM, LossyProxy, Weather
from tests.stores.s3_servers import BUCKET, S3Server, skip_without_ceph
from varvite.storage.errors import RetryableError

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.s3, pytest.mark.slow, pytest.mark.timeout(600)]
CRASHES = {1: ("radosgw",), 3: ("ceph-osd",), 5: ("radosgw", "ceph-osd", "ceph-mon")}
"""After the sink has had this batch, these die; they are back 3 s later."""
BATCHES = 8
AWAY_S = 3.0
RUNS_MAX = 10


@pytest.mark.fixed_storage  # it has one of its own
def test_a_job_goes_on_when_the_daemons_of_its_storage_were_killed(spark: SparkSession, tmp_path: Path) -> None:
    """A batch that waits too long for the storage ends the query, and its restart executes the batch again."""
    skip_without_ceph()
    with running_ceph(durable=True) as cluster, LossyProxy(cluster.endpoint_url, 7) as proxy:
        server = S3Server("ceph", proxy.url, ACCESS_KEY, SECRET_KEY)
        cluster.make_bucket(BUCKET)
        conf = server.job_conf(server.new_location())
        conf |= {"checkpoint.inline-size-max": "0 b", "state.changelog.dstl.dfs.batch.persist-size-threshold": "0 b"}
        job = KeyedJob(spark, tmp_path, changelog=True, conf=conf)
        for batch in range(BATCHES):
            job.add(*[(f"key-{key}", batch) for key in range(batch % 3, 20, 3)], ("a", batch))
        pending = dict(CRASHES)
        returns: list[threading.Timer] = []

        def killing(rows: DataFrame, batch: int) -> None:
            job.collect(rows, batch)
            daemons = pending.pop(batch, ())
            for daemon in daemons:
                cluster.kill(daemon)
            if daemons:
                back = threading.Timer(AWAY_S, lambda: [cluster.restart(daemon) for daemon in reversed(daemons)])
                back.start()
                returns.append(back)

        proxy.weather = Weather()
        failures = 0
        while not job.received or job.received[-1][0] < BATCHES - 1:
            try:
                job.run(killing)
            except RetryableError:
                failures += 1
                assert failures < RUNS_MAX
            for timer in returns:
                timer.join()
        assert not pending
        proxy.weather = CALM
        kill_state_workers(spark)
        job.add(("a", 1), ("key-1", 2))
        job.run()
        assert job.rows() == in_order(job.expected)
