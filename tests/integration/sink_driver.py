"""A process that does with a sink what a driver does, without Spark: a `sink_trial` kills it.

`python -m tests.integration.sink_driver <directory> <seed> <sink> <arguments>`. Files there stand for the chain
(`chain`), for what Spark has planned (`offsets`) and for what it has acknowledged (`commits`).
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from tests.integration.tables.iceberg_warehouse import catalog_properties
from varvite.changelog.commit.base_decision import SinkCommit
from varvite.spark_integration.connectors.kafka.sink import KafkaSink
from varvite.spark_integration.connectors.sink import Sink
from varvite.spark_integration.connectors.tables.delta_sink import DeltaSink
from varvite.spark_integration.connectors.tables.iceberg_sink import IcebergSink
from varvite.spark_integration.connectors.tables.postgres_sink import PostgresSink
from varvite.storage.errors import DidNotHappenError, VarviteError

SCHEMA = StructType([StructField("value", StringType())])
SINKS: dict[str, Callable[..., Sink]] = {
    "kafka": lambda servers, topic, delivery: KafkaSink(servers, topic, delivery=delivery),
    "delta": lambda path, keys: DeltaSink(path, keys=keys.split()),
    "iceberg": lambda home, keys: IcebergSink(
        "d.t", catalog="c", properties=catalog_properties(Path(home)), keys=keys.split()
    ),
    "postgres": lambda conninfo, keys: PostgresSink(conninfo, "output", keys=keys.split()),
}
"""Sink → the call that makes it of the arguments."""


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def put_if_absent(path: Path, data: dict[str, Any]) -> bool:
    temporary = path.with_name(f".{os.getpid()}.{path.name}")
    temporary.write_text(json.dumps(data))
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    else:
        return True
    finally:
        temporary.unlink()


def numbers(directory: Path) -> list[int]:
    return sorted(int(path.name) for path in directory.iterdir() if path.name.isdigit())


def content(directory: Path, number: int) -> dict[str, Any]:
    return json.loads((directory / str(number)).read_text())


class Driver:
    """One run."""

    def __init__(self, home: Path, sink: Sink, chance: random.Random) -> None:
        self.chain, self.offsets, self.commits = (home / name for name in ("chain", "offsets", "commits"))
        self.sink, self.chance = sink, chance
        sink.check_columns(SCHEMA)
        sink.prepare(self.job_id(home))
        self.slot = (numbers(self.chain) or [0])[-1] + 1
        while not put_if_absent(self.chain / str(self.slot), {"fence": os.getpid()}):
            self.slot += 1
        sink.take_over()

    @staticmethod
    def job_id(home: Path) -> str:
        """As of a job: 128 bits, for the life of its storage."""
        return hashlib.md5(bytes(home)).hexdigest()

    def first_batch(self) -> int:
        """The batch that Spark plans first; the one before it may have been adopted.

        A batch of which the chain has nothing is not adopted, though the sink has the newest entry: of the one before.
        """
        newest = None
        for seq in numbers(self.chain):
            entry = content(self.chain, seq)
            newest = SinkCommit(entry["batch"], seq, entry["token"]) if "batch" in entry else newest
        planned, done = numbers(self.offsets), numbers(self.commits)
        is_open = bool(planned) and (not done or planned[-1] > done[-1])
        batch = planned[-1] if is_open else (done[-1] + 1 if done else 0)
        if is_open and newest is not None and newest.batch == batch and newest == self.sink.last_committed():
            put_if_absent(self.commits / str(batch), {})
            say("ADOPTED")
            return batch + 1
        say("REDONE" if is_open else "NEXT")
        return batch

    def execute(self, batch: int) -> bool:
        """Plan, commit, write, acknowledge; False: this run is fenced."""
        begin = content(self.offsets, batch - 1)["end"] if batch else 0
        put_if_absent(self.offsets / str(batch), {"end": begin + self.chance.randrange(1, 60)})
        end = content(self.offsets, batch)["end"]
        self.slot += 1
        commit = SinkCommit(batch, self.slot, f"{self.chance.getrandbits(128):032x}")
        if not put_if_absent(self.chain / str(self.slot), {"batch": batch, "token": commit.token}):
            return False
        time.sleep(self.chance.choice([0, 0, 0.001, 0.02]))
        self.sink.write_table(pa.table({"value": [str(i) for i in range(begin, end)]}), commit)
        time.sleep(self.chance.choice([0, 0.005]))
        self.sink.complete(commit)
        time.sleep(self.chance.choice([0, 0.01, 0.1]))  # the time that `last_committed` is for
        return put_if_absent(self.commits / str(batch), {})


def main(home: Path, seed: int, sink: str, *arguments: str) -> None:
    """Run until somebody kills or fences the process."""
    chance = random.Random(seed)
    try:
        driver = Driver(home, SINKS[sink](*arguments), chance)
    except DidNotHappenError as error:
        say(f"REFUSED {error}")
        return
    batch = driver.first_batch()
    say("READY")
    try:
        while driver.execute(batch):
            batch += 1
    except VarviteError as error:
        say(f"ENDED {type(error).__name__}")
        return
    say("FENCED")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
