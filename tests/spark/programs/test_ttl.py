"""State TTL on real Spark: over restarts, switched on, off and on again, with stamps that survive all of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as everybody writes it

from tests.spark.keyed_jobs import BACKENDS, KeyedJob
from varvite import KeyedProcessFunction, RuntimeContext, StateTtlConfig, Time, ValueStateDescriptor

pytestmark = pytest.mark.spark


class CountWithin(KeyedProcessFunction[str, Row, tuple[Any, ...]]):
    """Rows per key; with a TTL in seconds of event time, forgotten so long after the last one."""

    def __init__(self, ttl_s: int | None) -> None:
        self.ttl_s = ttl_s

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor("count", "bigint")
        if self.ttl_s is not None:
            builder = StateTtlConfig.new_builder(Time.seconds(self.ttl_s)).use_event_time()
            descriptor.enable_time_to_live(builder.cleanup_full_snapshot().build())
        self.count = runtime_context.get_state(descriptor)

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[Any, ...]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value.k, count


@pytest.mark.long
def test_ttl_is_switched_on_off_and_on_again_over_restarts(spark: SparkSession, tmp_path: Path) -> None:
    job = KeyedJob(spark, tmp_path, backend=BACKENDS["hashmap"])

    def run(ttl_s: int | None) -> None:
        rows = job.stream.read().withColumn("at", F.timestamp_seconds("v")).withWatermark("at", "0 seconds")
        stream = job.environment().from_dataframe(rows)
        processed = stream.key_by("k").process(CountWithin(ttl_s), "k string, n long", uid="counts")
        writer = processed.foreach_batch(job.collect).query_name("job").trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()

    job.add(("a", 100))
    run(None)
    job.changelog, job.backend = False, BACKENDS["rocksdb"]
    job.add(("b", 150))  # the watermark is 100: what is there counts as used at 100
    job.add(("a", 159))  # 150: a lives
    run(60)
    job.changelog, job.backend = True, BACKENDS["hashmap"]
    job.add(("a", 219))  # 159: a was used at 159 and lives until 219
    run(60)
    job.add(("b", 300))  # 219: b has expired at 210, and stays so although TTL is now off
    job.add(("a", 10_000))  # 300: a was used at 219, and TTL is off
    run(None)
    job.backend = BACKENDS["rocksdb"]
    job.add(("b", 10_001))  # 10,000: everything counts as used now
    job.add(("b", 10_070))  # 10,001
    job.add(("b", 10_071), ("a", 10_071))  # 10,070: b was used at 10,070, a counts from 10,000
    run(60)
    assert [sorted(rows) for _, rows in job.received] == [
        [("a", 1)], [("b", 1)], [("a", 2)], [("a", 3)], [("b", 1)], [("a", 4)], [("b", 2)], [("b", 3)],
        [("a", 1), ("b", 4)],
    ]  # fmt: skip
