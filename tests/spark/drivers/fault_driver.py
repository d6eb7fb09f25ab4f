"""A driver process on a cluster whose tasks are copied and whose executors come and go: one run of a job of tokens.

It has two chained operators, `UID` and `FOLLOWING`; what pauses them is in directories of these names.

`python -m tests.spark.drivers.fault_driver <directory> <master> <scenario> [key=value ...]`. The input lies in
`<directory>/input`; the rows of each batch that the sink has got are written to `<directory>/sink`. The scenario says
what happens between and in batches; pauses of the function and settings of Spark come from the test. If FAULT_SINK is
`driver`, the rows of the second operator come to the driver with the summaries.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.conftest import SETTINGS
from tests.spark.functions.tokens import FOLLOWED_OUTPUT, TOKEN_OUTPUT, FollowingTokens, Tokens, note, wait_for
from tests.spark.keyed_jobs import INPUT, UID
from varvite import EmbeddedRocksDBStateBackend, StreamExecutionEnvironment
from varvite.spark_integration.connectors.sink import ForeachBatchSink
from varvite.spark_integration.messages.protocol import LOST_BLOCK

FOLLOWING = "following"
EXECUTOR = "CoarseGrainedExecutorBackend"
RUN_S = 900.0
"""Longer than any run: the row may come late on a slow machine."""
RUNS_MAX = 5
LOST_OUTPUT = (f"{LOST_BLOCK} after the commit", f"{LOST_BLOCK}; the batch is executed again, or redone by a restart")
"""Either ends the query, if the executors with a batch's output, or with what it was made of, go between its commit and
the sink; who runs it starts it again (I2)."""
IDLE_AFTER = (1, 2)
"""Batches after which the scenario `executors` waits until one has gone because it had nothing to do."""


def executors() -> list[psutil.Process]:
    """The JVMs of executors below this process (`local-cluster`)."""
    found: list[psutil.Process] = []
    for process in psutil.Process().children(recursive=True):
        try:
            if any(EXECUTOR in word for word in process.cmdline()):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait; ends the process if it takes two minutes."""
    deadline = time.monotonic() + 120
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"it did not happen: {what}")
        time.sleep(0.1)


def after_batch(scenario: str, batch: int) -> None:
    """Events between two batches."""
    if scenario == "executors" and batch in IDLE_AFTER:
        before = len(executors())
        wait_until(lambda: len(executors()) < max(2, before), "an idle executor goes")


def kill_in_pause(notes: Path, v: int) -> None:
    """SIGKILL the executor that runs the row's first execution; the other executions go on without it."""
    wait_for(note(notes, "first", v), timeout_s=RUN_S)
    directories = note(notes, "first", v).read_text()
    for process in executors():
        if any(own in directories for own in process.environ().get("SPARK_EXECUTOR_DIRS", "-").split(os.pathsep)):
            process.kill()
            note(notes, "killed", v).touch()


def run_to_the_end(run: Callable[[], None]) -> None:
    """Run the query until it ends by itself."""
    for _ in range(RUNS_MAX):
        try:
            run()
        except StreamingQueryException as error:
            if not any(lost in str(error) for lost in LOST_OUTPUT):
                raise
        else:
            return
    sys.exit(f"output was lost in each of {RUNS_MAX} runs")


def main(directory: Path, master: str, scenario: str, conf: dict[str, str]) -> None:
    """Process everything in `directory/input`, a file per batch."""
    builder = SparkSession.builder.master(master).appName("varvite-faults")
    events = directory / "events"
    events.mkdir(exist_ok=True)
    log = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri(), "spark.eventLog.compress": "false"}
    for key, value in {**SETTINGS, **log, **conf}.items():
        builder = builder.config(key, value)
    spark = builder.config("spark.local.dir", str(directory / "local")).getOrCreate()
    env = StreamExecutionEnvironment.get_execution_environment(spark)
    env.set_state_backend(EmbeddedRocksDBStateBackend()).enable_changelog_state_backend(True).set_parallelism(2)
    env.configure("execution.checkpointing.dir", str(directory / "state")).configure("materializer.mode", "off")
    notes = {uid: directory / "notes" / uid for uid in (UID, FOLLOWING)}
    sunk = directory / "sink"
    for path in (*notes.values(), sunk):
        path.mkdir(parents=True, exist_ok=True)
    told: dict[str, dict[str, str]] = json.loads(os.environ["FAULT_PAUSES"])
    pauses = {uid: {int(v): kind for v, kind in found.items()} for uid, found in told.items()}

    def sink(rows: DataFrame, batch: int) -> None:
        found: list[tuple[Any, ...]] = [tuple(row) for row in rows.collect()]
        again = [tuple(row) for row in rows.collect()]
        if sorted(found) != sorted(again):
            sys.exit(f"batch {batch}: two reads gave {found} and {again}")
        (sunk / f"{batch}.json").write_text(json.dumps(found))
        for row, path in itertools.product(found, notes.values()):
            note(path, "sunk", row[1]).touch()
        after_batch(scenario, batch)

    if scenario == "executors":
        for uid, found in pauses.items():
            for v in found:
                threading.Thread(target=kill_in_pause, args=(notes[uid], v), daemon=True).start()
    stream = spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1).json(str(directory / "input"))
    first, second = Tokens(notes[UID], pauses[UID]), FollowingTokens(notes[FOLLOWING], pauses[FOLLOWING])
    tokens = env.from_dataframe(stream).key_by("k").process(first, TOKEN_OUTPUT, uid=UID)
    followed = tokens.key_by("k").process(second, FOLLOWED_OUTPUT, uid=FOLLOWING)

    def run() -> None:
        writes = ForeachBatchSink(sink)
        writes.brings_rows_to_driver = os.environ["FAULT_SINK"] == "driver"
        writer = followed.foreach_batch(writes).query_name("job").trigger(availableNow=True)
        writer.option("checkpointLocation", str(directory / "checkpoint")).start().awaitTermination()

    run_to_the_end(run)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], dict(word.split("=", 1) for word in sys.argv[4:]))
