"""A driver process for tests on several executors: a job over files, of two chained operators, that says where it ran.

`python -m tests.spark.drivers.cluster_driver <directory> <master> <executors> [<Spark's key>=<value> ...]`

It begins when there are so many executors.

Files in `<directory>`: `application` gets the application's id; `input/*.json` is read, one file per batch;
`out/<batch>.json` gets the rows of a batch. Where `pause-<batch>` exists, the driver does after that batch what it says
(`ORDERS`), makes `paused-<batch>` and waits until the former is gone; meanwhile it keeps the ids of the executors that
it can use in `executors.json`. `copies.json` gets what the driver knows of standbys: by partition of the operators, the
seq of the copies by host. `statistics.json` comes at the end.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from tests.spark.conftest import SETTINGS
from tests.spark.keyed_jobs import INPUT, OUTPUT, Sums
from varvite import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment, Types, ValueStateDescriptor
from varvite.spark_integration.driver import services
from varvite.spark_integration.driver.placement.spark_internals import LiveExecutors
from varvite.spark_integration.driver.placement.standbys import StandbyWatch

PLACED = f"{OUTPUT}, partition int, executor string"
TWICE = f"{PLACED}, times long"
WAIT_MAX_S = 600


class PlacedSums(Sums):
    """`Sums`, and where it runs."""

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self.partition = runtime_context.get_index_of_this_subtask()

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[Any, ...]]:
        for row in super().process_element(value, ctx):
            yield (*row, self.partition, os.environ["SPARK_LOCAL_DIRS"])


class Counted(KeyedProcessFunction[str, Row, tuple[Any, ...]]):
    """Every row with how often its key has come."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.times = runtime_context.get_state(ValueStateDescriptor("times", Types.LONG()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[Any, ...]]:
        self.times.update((self.times.value() or 0) + 1)
        yield (*value, self.times.value())


def replace(path: Path, content: Any) -> None:
    """Write JSON so that a reader sees all of it or nothing."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(content))
    temporary.rename(path)


class ToldWatch(StandbyWatch):
    """It tells what it has read."""

    directory: Path

    def look(self) -> None:
        super().look()
        copies = self.copies()
        parallelism = {parallelism for _, parallelism in copies.operators}
        replace(self.directory / "copies.json", [list(copies.by_partition(n)) for n in parallelism])


def usable(executors: LiveExecutors) -> list[str]:
    """The ids of those that can be used, the oldest first."""
    return sorted((executor.id for executor in executors.usable()), key=int)


def decommission(spark: SparkSession, executor: str) -> None:
    """Let an executor go, and no other come for it."""
    scala, jvm = spark.sparkContext._jsc.sc(), spark.sparkContext._jvm
    assert jvm is not None
    info = jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo("the test", jvm.scala.Option.empty())
    assert scala.schedulerBackend().decommissionExecutor(executor, info, True, False)


def exclude(spark: SparkSession, executor: str) -> None:
    """Let Spark exclude an executor, as after a failure there, and ask for two that can be used."""
    scala, jvm = spark.sparkContext._jsc.sc(), spark.sparkContext._jvm
    assert jvm is not None
    scala.taskScheduler().healthTrackerOpt().get().updateExcludedForFetchFailure("", executor)
    assert scala.requestTotalExecutors(3, 0, jvm.PythonUtils.toScalaMap({}))


ORDERS: dict[str, Callable[[SparkSession, str], None]] = {"decommission": decommission, "exclude": exclude}
"""A waiting driver's treatment of the oldest executor."""


class Output:
    """The sink: rows into files, and pauses."""

    def __init__(self, directory: Path, spark: SparkSession, executors: LiveExecutors) -> None:
        self.directory = directory
        self.spark = spark
        self.executors = executors

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """Write a batch."""
        replace(self.directory / "out" / f"{batch}.json", [list(row) for row in rows.collect()])
        pause = self.directory / f"pause-{batch}"
        if not pause.exists():
            return
        for order in pause.read_text().split():
            ORDERS[order](self.spark, usable(self.executors)[0])
        self._say_executors()
        (self.directory / f"paused-{batch}").touch()
        wait_while(pause.exists, self._say_executors)

    def _say_executors(self) -> None:
        replace(self.directory / "executors.json", usable(self.executors))


def wait_while(condition: Callable[[], bool], meanwhile: Callable[[], None] = lambda: None) -> None:
    """Wait for another process."""
    deadline = time.monotonic() + WAIT_MAX_S
    while condition():
        assert time.monotonic() < deadline, f"waited for {WAIT_MAX_S} s"
        meanwhile()
        time.sleep(0.1)


def main(directory: Path, master: str, executors: str, *settings: str) -> None:
    """Process everything in `directory/input`."""
    builder = SparkSession.builder.master(master).appName("varvite-cluster")
    own = {"spark.local.dir": str(directory / "local"), "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"]}
    for key, value in (SETTINGS | own | dict(setting.split("=", 1) for setting in settings)).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    (directory / "application").write_text(spark.sparkContext.applicationId)
    live = LiveExecutors(spark.sparkContext)
    ToldWatch.directory = directory
    services.StandbyWatch = ToldWatch  # type: ignore[misc]
    wait_while(lambda: len(live.usable()) < int(executors))
    (directory / "out").mkdir(exist_ok=True)
    env = StreamExecutionEnvironment.get_execution_environment(spark).enable_changelog_state_backend(True)
    env.configure("execution.checkpointing.dir", str(directory / "state")).configure("materializer.mode", "off")
    stream = spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1).json(str(directory / "input"))
    sums = env.from_dataframe(stream).key_by("k").process(PlacedSums(), PLACED, uid="sums")
    counted = sums.key_by("k").process(Counted(), TWICE, uid="counted")
    writer = counted.foreach_batch(Output(directory, spark, live)).query_name("job").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(directory / "checkpoint")).start()
    query.awaitTermination()
    replace(directory / "statistics.json", query.checkpoint_statistics.as_rows())
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
