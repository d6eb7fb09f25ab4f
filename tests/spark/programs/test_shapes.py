"""Shapes of PyFlink's programs: outputs of several streams, side outputs and connected streams without keys."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from varvite.common import Types
from varvite.datastream import StreamExecutionEnvironment

pytestmark = pytest.mark.spark


@pytest.fixture
def env(spark: SparkSession) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment(spark).set_parallelism(1)


def collected(stream: Any, name: str) -> list[Any]:
    with stream.execute_and_collect(name) as elements:
        return list(elements)


@pytest.mark.parametrize("kind", [None, Types.LONG(), Types.ROW_NAMED(["a"], [Types.STRING()])], ids=str)
def test_a_collection_without_elements_is_a_stream_that_ends(env: StreamExecutionEnvironment, kind: Any) -> None:
    empty = env.from_collection([], kind)
    assert collected(empty.map(str), "empty") == []
    assert collected(empty.key_by(lambda value: 0, Types.LONG()).map(str), "keyed") == []
    if kind == Types.LONG():
        assert collected(empty.union(env.from_collection([1], kind)), "united") == [1]
