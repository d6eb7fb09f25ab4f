"""The pump in a real Spark: partitions keep their processes, whatever becomes of Spark's Python workers."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812  as everybody writes it

from tests.workers.echo_state_worker import FACTORY, facts_of
from tests.workers.state_worker_setup import alive, batch_request, eventually
from varvite.changelog.working_stores.options import BackendSettings
from varvite.spark_integration.elements.arrow_task import DESCRIPTORS_MAX, connection_over_tcp
from varvite.spark_integration.functions.pickling import pickle_with_broadcasts, ship
from varvite.spark_integration.messages.protocol import (
    KEY_GROUP_COLUMN,
    PARTITION_COLUMN,
    SUMMARY_COLUMN,
    TAG_COLUMN,
    encode_message,
    row_tag,
)
from varvite.spark_integration.messages.summary import Summary, decode_summary
from varvite.spark_integration.transport.connection import WorkerLaunch
from varvite.spark_integration.transport.executor_jvm import ancestors
from varvite.spark_integration.transport.home import WorkerHome, executor_home
from varvite.spark_integration.transport.pump import ExecutionNotes, Pump
from varvite.storage.clock import SystemTokens

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
PARTITIONS = 3
SCHEMA = f"value bigint, {TAG_COLUMN} bigint, {SUMMARY_COLUMN} binary"


@dataclass
class Batches:
    """Runs batches with echoing state workers."""

    spark: SparkSession
    job_id: str
    slot: int = 1

    def run(
        self, rows: int, function: Any = None, notes: Accumulator[Any] | None = None, **operator: Any
    ) -> tuple[list[int], list[Summary]]:
        """One batch: the output values and the summaries in the order of partitions."""
        self.slot += 1
        context = self.spark.sparkContext
        shipped = ship(context, pickle_with_broadcasts(context, function or (lambda: 0)))
        fields = {
            "job_id": self.job_id,
            "parallelism": PARTITIONS,
            "max_parallelism": 12,
            "function_hash": shipped.function_hash,
            **operator,
        }
        request = batch_request(slot=self.slot, **fields)
        pump = Pump(encode_message(request), shipped, notes, WorkerLaunch(factory=FACTORY))
        key_group = F.pmod(F.xxhash64("value"), F.lit(12)).cast("int")
        frame = self.spark.range(rows).select(F.col("id").alias("value"), key_group.alias(KEY_GROUP_COLUMN))
        partition = F.floor(F.col(KEY_GROUP_COLUMN) * PARTITIONS / 12).cast("int")
        frame = frame.withColumn(PARTITION_COLUMN, partition).repartitionById(PARTITIONS, PARTITION_COLUMN)
        answer = frame.mapInArrow(finding_tests(pump), SCHEMA).collect()
        shipped.destroy()
        summaries = [decode_summary(bytes(r[SUMMARY_COLUMN])) for r in answer if r[SUMMARY_COLUMN] is not None]
        tags = {row_tag(s.tag) for s in summaries}
        assert all(r[TAG_COLUMN] in tags for r in answer)
        values = [r["value"] for r in answer if r[SUMMARY_COLUMN] is None]
        return sorted(values), sorted(summaries, key=lambda s: s.partition)

    def home(self) -> WorkerHome:
        """Directory of the state workers of the session's executor."""
        task = self.spark.sparkContext.parallelize([0], 1)
        return WorkerHome(Path(task.map(lambda _: str(executor_home(os.environ).path)).first()))


def finding_tests(pump: Any) -> Any:
    """The pump, in a Python worker that finds `tests` as well; Spark's workers get only what is installed."""
    root = str(Path(__file__).parents[3])

    def stream(batches: Any) -> Any:
        if root not in sys.path:
            sys.path.append(root)
        yield from pump(batches)

    return stream


@pytest.fixture
def batches(spark: SparkSession) -> Batches:
    """Each test has a job, and so state workers, of its own."""
    return Batches(spark, SystemTokens().token())


def python_workers(parent: int) -> list[int]:
    """PySpark's worker processes below a JVM: the children of its daemon."""
    found: list[int] = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            lineage = [p.pid for p in ancestors(int(process.name))][:2]
            command = (process / "cmdline").read_bytes() if process.exists() else b""
            if len(lineage) == 2 and lineage[1] == parent and b"pyspark" in command:
                found.append(int(process.name))
    return found


def test_partitions_keep_their_processes_when_sparks_python_workers_are_killed(batches: Batches) -> None:
    notes = batches.spark.sparkContext.accumulator([], ExecutionNotes())
    values, first = batches.run(1000, notes=notes)
    assert values == list(range(1000))
    assert sorted(notes.value) == sorted(("count", s.partition, s.tag) for s in first)
    pids = [facts_of(s)["pid"] for s in first]
    assert len(set(pids)) == PARTITIONS
    assert [facts_of(s)["pid"] for s in batches.run(50_000)[1]] == pids
    jvm: Any = batches.spark.sparkContext._jvm
    workers = python_workers(jvm.java.lang.ProcessHandle.current().pid())
    assert workers
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    assert eventually(lambda: not any(alive(w) for w in workers), 30)
    values, after = batches.run(1000)
    assert values == list(range(1000))
    assert [facts_of(s)["pid"] for s in after] == pids


def test_sparks_python_workers_do_not_search_their_modules_for_garbage_after_every_task(batches: Batches) -> None:
    batches.run(20)

    def counted(rows: Any) -> Any:
        for _ in rows:
            yield pa.RecordBatch.from_pydict({"frozen": [gc.get_freeze_count()], "modules": [len(sys.modules)]})

    found = batches.spark.range(PARTITIONS).repartition(PARTITIONS).mapInArrow(counted, "frozen long, modules long")
    assert any(row["frozen"] > row["modules"] > 0 for row in found.collect())


def test_sparks_python_workers_send_without_waiting_for_acknowledgements(batches: Batches) -> None:
    batches.run(20)

    def counted(rows: Any) -> Any:
        for _ in rows:
            found = [connection_over_tcp(descriptor) for descriptor in range(DESCRIPTORS_MAX)]
            options = [c.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for c in found if c is not None]
            yield pa.RecordBatch.from_pydict({"waiting": [options.count(0)], "prompt": [len(options)]})

    frame = batches.spark.range(PARTITIONS).repartition(PARTITIONS).mapInArrow(counted, "waiting long, prompt long")
    assert any(row["waiting"] == 0 < row["prompt"] for row in frame.collect())


def test_an_empty_batch_gives_one_summary_per_partition(batches: Batches) -> None:
    values, summaries = batches.run(0)
    assert (values, [(s.partition, s.attempt_figures().rows_in) for s in summaries]) == ([], [(0, 0), (1, 0), (2, 0)])


def test_a_function_finds_its_broadcasts_and_files_in_every_batch(batches: Batches, tmp_path: Path) -> None:
    """Its pickled bytes are loaded in a process that Spark does not know, and long after they were pickled."""
    from pyspark import SparkFiles

    context = batches.spark.sparkContext
    (tmp_path / "weight.txt").write_text("30")
    context.addFile(str(tmp_path / "weight.txt"))
    broadcast = context.broadcast({"a": 12})

    def function() -> int:
        return broadcast.value["a"] + int(Path(SparkFiles.get("weight.txt")).read_text())

    for _ in range(2):
        _, summaries = batches.run(10, function, backend_options=BackendSettings(factory={"call": True}))
        assert [facts_of(s)["called"] for s in summaries] == [42, 42, 42]


@pytest.mark.long
def test_a_workers_error_fails_the_job_with_its_text(batches: Batches) -> None:
    with pytest.raises(Exception, match="the base is damaged") as caught:
        batches.run(10, backend_options=BackendSettings(factory={"fail": "begin"}))
    assert "CorruptDataError" in str(caught.value)
    assert "echo_state_worker.py" in str(caught.value)
    assert batches.run(10)[0] == list(range(10))


def test_cancelled_tasks_abort_their_attempts_and_the_next_batch_runs(batches: Batches) -> None:
    # Spark waits for two seconds before it ends the Python worker of a cancelled task: the attempt must last longer.
    context = batches.spark.sparkContext
    before = [facts_of(s)["aborted"] for s in batches.run(10)[1]]

    def slow() -> None:
        context.setJobGroup("slow", "to be cancelled", interruptOnCancel=True)
        with pytest.raises(Exception, match="cancel"):
            batches.run(200_000, backend_options=BackendSettings(factory={"sleep_s": 2.0}))

    home, begun = batches.home(), f"begun-{batches.job_id}-{batches.slot + 1}-*"
    thread = threading.Thread(target=slow)
    thread.start()
    assert eventually(lambda: bool(list(home.path.glob(begun))), 30)
    context.cancelJobGroup("slow")
    thread.join(30)

    def has_aborted() -> bool:
        """A worker may notice only after the next batch that its peer has gone."""
        values, summaries = batches.run(10)
        assert values == list(range(10))
        return sum(facts_of(s)["aborted"] for s in summaries) > sum(before)

    assert eventually(has_aborted, 20)


STOPPING = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from tests.spark.cluster.test_pump import Batches
from tests.workers.state_worker_setup import alive, eventually
from tests.workers.probe import probe
session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
batches = Batches(session, "job")
batches.run(10)
home = batches.home()
report = probe(home)
pids = [report.pid, *(w.pid for w in report.workers)]
assert len(pids) == 4 and all(map(alive, pids)), pids
jvm = session.sparkContext._gateway.proc
session.stop()
assert eventually(lambda: not any(map(alive, pids)), 30), "a state worker outlived spark.stop()"
assert jvm.poll() is None, "the JVM ended too, so this shows nothing"
assert not home.path.exists()
"""


@pytest.mark.long
def test_stopping_spark_ends_the_state_workers_while_the_jvm_lives(tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(__file__).parents[3]), *(p for p in sys.path if p)])
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "SPARK_LOCAL_DIRS": str(tmp_path),
        "PYSPARK_PYTHON": sys.executable,
    }
    done = subprocess.run(
        [sys.executable, "-c", STOPPING], env=environment, timeout=200, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
