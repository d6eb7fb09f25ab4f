"""The job: what every aircraft did, in keyed state of all kinds, row by row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import Row, SparkSession

from examples.flights.data import SCHEMA
from examples.flights.storage import Storage
from varvite import (
    EmbeddedRocksDBStateBackend,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)

JOB = "flights"
OPERATOR = "aircraft"
OUTPUT = "id long, tailnum string, flights long, air_minutes long, delay_balance long, last_airport string"
TOP = 10


class Aircraft(KeyedProcessFunction):
    """Flights, minutes in the air, delay balance, last airport and the most frequent destinations of an aircraft."""

    def open(self, runtime_context: RuntimeContext) -> None:
        add = lambda a, b: a + b  # noqa: E731  the shortest reduce function there is
        self.flights = runtime_context.get_reducing_state(ReducingStateDescriptor("flights", add, Types.LONG()))
        self.air_minutes = runtime_context.get_reducing_state(ReducingStateDescriptor("air_minutes", add, "bigint"))
        self.delay_balance = runtime_context.get_state(ValueStateDescriptor("delay_balance", Types.LONG()))
        self.last_airport = runtime_context.get_state(ValueStateDescriptor("last_airport", "string"))
        self.visits = runtime_context.get_map_state(MapStateDescriptor("visits", Types.STRING(), Types.LONG()))
        self.top = runtime_context.get_list_state(ListStateDescriptor("top_destinations", Types.STRING()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[Any, ...]]:
        self.flights.add(1)
        self.air_minutes.add(value.air_minutes)
        balance = (self.delay_balance.value() or 0) + value.delay_minutes
        self.delay_balance.update(balance)
        self.last_airport.update(value.dest)
        visits = (self.visits.get(value.dest) or 0) + 1
        self.visits.put(value.dest, visits)
        self._rank(value.dest)
        yield value.id, ctx.get_current_key(), self.flights.get(), self.air_minutes.get(), balance, value.dest

    def _rank(self, dest: str) -> None:
        """Keep the ten most frequent destinations, ties by name; only `dest` has become more frequent."""
        before = list(self.top.get())
        candidates = before if dest in before else [*before, dest]
        after = sorted(candidates, key=lambda d: (-(self.visits.get(d) or 0), d))[:TOP]
        if after != before:
            self.top.update(after)


def start(
    spark: SparkSession, work: Path, storage: Storage, materializer: str = "off", interval_ms: int = 5_000
) -> Any:
    """Start the job on the files below `work/input`; answers the query."""
    env = StreamExecutionEnvironment.get_execution_environment(spark)
    env.set_state_backend(EmbeddedRocksDBStateBackend()).enable_changelog_state_backend(True)
    env.configure("execution.checkpointing.dir", storage.url).set_parallelism(2)
    env.configure({f"storage.option.{name}": text for name, text in storage.texts().items()})
    env.configure("materializer.mode", materializer).configure("execution.checkpointing.num-retained", 3)
    env.configure("state.changelog.periodic-materialize.interval", f"{interval_ms} ms")
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(work / "input"))
    aircraft = env.from_dataframe(stream).key_by("tailnum").process(Aircraft(), OUTPUT, uid=OPERATOR)
    writer = aircraft.format("parquet").query_name(JOB).trigger(availableNow=True)
    return writer.option("checkpointLocation", str(work / "checkpoint")).start(str(work / "output"))
