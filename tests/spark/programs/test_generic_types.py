"""State of pickled objects in a job: PyFlink's programs have it by default, with a warning, and a job may have none."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.functions.stream import KeepBomb
from varvite.common import Types
from varvite.datastream import StreamExecutionEnvironment
from varvite.spark_integration.plan import job
from varvite.storage.errors import IncompatibleError, InvalidRequestError

pytestmark = pytest.mark.spark


def start(spark: SparkSession, directory: Path, *, generic_types: bool) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment(spark)
    env.set_checkpoint_storage(directory / "state").configure("materializer.mode", "off")
    env.configure("pipeline.generic-types", str(generic_types).lower())
    return env.set_parallelism(1)


def largest(env: StreamExecutionEnvironment, **declared: Any) -> list[Any]:
    """The largest number of each two, in PyFlink's style: nobody says what the elements are."""
    numbers = env.from_collection([1, 5, 4, 2], Types.LONG()).map(lambda n: {"n": n}, **declared)
    pairs = numbers.key_by(lambda _: "all", Types.STRING()).count_window(2)
    stream = pairs.reduce(lambda a, b: a if a["n"] > b["n"] else b)
    with stream.execute_and_collect("largest") as elements:
        return [element["n"] for element in elements]


def test_a_program_that_declares_nothing_runs_with_one_warning_or_not_at_all(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger=job.__name__)
    assert largest(start(spark, tmp_path, generic_types=True)) == [5, 4]
    (warning,) = [record.getMessage() for record in caplog.records if record.name == job.__name__]
    assert "'window-contents'" in warning
    assert "declare an output_type" in warning
    with pytest.raises(InvalidRequestError, match=r"'window-contents'.*pipeline\.generic-types=false does not allow"):
        largest(start(spark, tmp_path, generic_types=False))
    typed = Types.MAP(Types.STRING(), Types.LONG())
    assert largest(start(spark, tmp_path / "typed", generic_types=False), output_type=typed) == [5, 4]
    assert len([record for record in caplog.records if record.name == job.__name__]) == 1


def test_a_stored_state_is_refused_before_anything_of_it_is_unpickled(spark: SparkSession, tmp_path: Path) -> None:
    gone_off = tmp_path / "gone-off"

    def run(*, generic_types: bool) -> list[int]:
        env = start(spark, tmp_path, generic_types=generic_types)
        keyed = env.from_collection([1, 2], Types.LONG()).key_by(lambda n: n, Types.LONG())
        with keyed.map(KeepBomb(gone_off), Types.LONG()).uid("keeper").execute_and_collect("keeper") as elements:
            return list(elements)

    assert run(generic_types=True) == [1, 2]
    with pytest.raises(IncompatibleError, match="state 'kept' is stored as 1:pickled") as caught:
        run(generic_types=False)
    assert caught.value.context["operator"] == "keeper"
    assert not gone_off.exists()
    assert run(generic_types=True) == [1, 2]
    assert gone_off.exists(), "it does go off where the user has chosen the type"
