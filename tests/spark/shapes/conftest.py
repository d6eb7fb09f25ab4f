"""Streams that tests of the shapes of PyFlink's programs share."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.spark.functions.shapes import PAIR, Seconds
from varvite.common import WatermarkStrategy
from varvite.datastream import (
    DataStream,
    StreamExecutionEnvironment,
)


@pytest.fixture
def env(spark: SparkSession) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment(spark).set_parallelism(1)


@pytest.fixture
def timed_pairs(env: StreamExecutionEnvironment) -> DataStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Seconds())
    pairs = [("a", 1), ("b", 2), ("a", 4), ("a", 7), ("b", 13)]
    return env.from_collection(pairs, PAIR).assign_timestamps_and_watermarks(strategy)
