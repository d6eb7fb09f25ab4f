"""Jobs for tests of the whole path: small keyed functions, an input to add to, and what must come out."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from tests.spark.conftest import FileStream
from tests.workers.probe import homes, probe
from varvite import (
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from varvite.spark_integration.api.query import VarviteStreamingQuery

INPUT = "k string, v long"
OUTPUT = "k string, n long, total long, seen string"
UID = "sums"


class Sums(KeyedProcessFunction[str, Row, tuple[Any, ...]]):
    """All kinds of state at once: how many rows, their sum, all values in order, how often each value came."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.n = runtime_context.get_reducing_state(ReducingStateDescriptor("n", lambda a, b: a + b, Types.LONG()))
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
        self.values = runtime_context.get_list_state(ListStateDescriptor("values", Types.LONG()))
        self.counts = runtime_context.get_map_state(MapStateDescriptor("counts", Types.LONG(), Types.LONG()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[Any, ...]]:
        self.n.add(1)
        self.total.update((self.total.value() or 0) + value.v)
        self.values.add(value.v)
        self.counts.put(value.v, (self.counts.get(value.v) or 0) + 1)
        counts = sorted(self.counts.items())
        yield value.k, self.n.get(), self.total.value(), json.dumps([list(self.values.get()), counts])


class SumsModel:
    """Expected output of `Sums`, by plain Python."""

    def __init__(self) -> None:
        self.values: dict[Any, list[int]] = {}

    def add(self, k: Any, v: int) -> tuple[Any, ...]:
        """One row in, one row out."""
        values = self.values.setdefault(k, [])
        values.append(v)
        counts = sorted((x, values.count(x)) for x in set(values))
        return k, len(values), sum(values), json.dumps([values, [list(c) for c in counts]])


@dataclass
class KeyedJob:
    """A job over a growing input; every `run` is a new start of the same query."""

    spark: SparkSession
    directory: Path
    name: str = "job"
    backend: Any = field(default_factory=HashMapStateBackend)
    changelog: bool | None = None
    """None: the test does not care."""
    parallelism: int = 2
    function: Any = field(default_factory=Sums)
    output: str = OUTPUT
    conf: dict[str, str] = field(default_factory=dict[str, str])
    checkpoint: str = "checkpoint"
    source: str = "input"

    def __post_init__(self) -> None:
        self.model = SumsModel()
        self.expected: list[tuple[Any, ...]] = []
        self.stream = FileStream(self.spark, self.directory / self.source, INPUT)
        self.received: list[tuple[int, list[tuple[Any, ...]]]] = []
        """(batch, rows) of every call of the sink."""

    def add(self, *rows: tuple[Any, int]) -> None:
        """One more file, which is one more micro-batch."""
        self.stream.add(*[json.dumps({"k": k, "v": v}) for k, v in rows])
        self.expected += [self.model.add(k, v) for k, v in rows]

    def environment(self) -> StreamExecutionEnvironment:
        """The job's environment."""
        env = StreamExecutionEnvironment.get_execution_environment(self.spark)
        env.set_state_backend(self.backend)
        if self.changelog is not None:
            env.enable_changelog_state_backend(self.changelog)
        env.configure("execution.checkpointing.dir", str(self.directory / "state")).set_parallelism(self.parallelism)
        env.configure("materializer.mode", "off")
        for key, value in self.conf.items():
            env.configure(key, value)
        return env

    def start(self, sink: Callable[[DataFrame, int], None] | None = None) -> VarviteStreamingQuery:
        """Start the query; it ends by itself when the input is processed."""
        stream = self.environment().from_dataframe(self.stream.read())
        processed = stream.key_by("k").process(self.function, self.output, uid=UID)
        writer = processed.foreach_batch(sink or self.collect).query_name(self.name).trigger(availableNow=True)
        return writer.option("checkpointLocation", str(self.directory / self.checkpoint)).start()

    def run(self, sink: Callable[[DataFrame, int], None] | None = None) -> VarviteStreamingQuery:
        """Start, and wait for the end; raises what the query raised."""
        query = self.start(sink)
        query.awaitTermination()
        return query

    def collect(self, rows: DataFrame, batch: int) -> None:
        """The sink: keeps the rows."""
        self.received.append((batch, [tuple(r) for r in rows.collect()]))

    def rows(self) -> list[tuple[Any, ...]]:
        """Rows that were received, the last call for a batch counting, sorted."""
        by_batch = dict(self.received)
        return in_order(r for rows in by_batch.values() for r in rows)

    def lose_commits(self, count: int) -> None:
        """The storage loses its newest entries, which are commits."""
        for path in sorted((self.directory / "state" / self.name / "chain").iterdir())[-count:]:
            path.unlink()

    def restored(self, query: VarviteStreamingQuery) -> dict[str, int]:
        """Ways of the workers to the base of the run's first batch."""
        return query.checkpoint_statistics.history()[0].restored


IN_MEMORY = {"confirmed", "current"}
"""Ways of a worker to a base that it has: it folds the batch now, or has done so when it heard that it is over."""


def in_order(rows: Any) -> list[tuple[Any, ...]]:
    """Rows in an order that does not depend on partitions."""
    return sorted(rows, key=lambda r: (r[0] is None, r[0] or "", *r[1:]))


def forget_batches(location: Path, first: int) -> None:
    """Set a checkpoint location back, as restoring an older copy of it would."""
    for directory in ("offsets", "commits"):
        for path in (location / directory).iterdir():
            if path.name.lstrip(".").split(".")[0].isdecimal() and int(path.name.lstrip(".").split(".")[0]) >= first:
                path.unlink()


def state_workers(spark: SparkSession) -> list[int]:
    """The process ids of all state workers of this session."""
    reports = [probe(home) for home in homes(Path(spark.conf.get("spark.local.dir") or ""))]
    return [worker.pid for report in reports if report for worker in report.workers]


def kill_state_workers(spark: SparkSession) -> int:
    """SIGKILL to every state worker of this session; answers how many there were."""
    workers = state_workers(spark)
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    return len(workers)


def kill_parents(spark: SparkSession) -> None:
    """SIGKILL to the parents of the state workers, which go along; the next ones read the environment anew."""
    for home in homes(Path(spark.conf.get("spark.local.dir") or "")):
        while (report := probe(home)) is not None:
            os.kill(report.pid, signal.SIGKILL)
            time.sleep(0.01)


BACKENDS = {"hashmap": HashMapStateBackend(), "rocksdb": EmbeddedRocksDBStateBackend()}
