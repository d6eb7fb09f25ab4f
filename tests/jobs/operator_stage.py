"""An operator of a job without Spark: a runner over a job's keyed state, batch by batch, as a state worker runs it."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import cloudpickle

from tests.jobs.keyed_job import MAX_PARALLELISM, KeyedJob
from tests.workers.state_worker_setup import task_request
from varvite.spark_integration.messages.protocol import EVENT_TIME_COLUMN, KEY_GROUP_COLUMN
from varvite.spark_integration.worker.runners.operator import OperatorRunner

if TYPE_CHECKING:
    from pathlib import Path

    from tests.jobs.window_job import Element


class Stage:
    """One operator; its input has the columns k, the key, and v.

    Args:
        kind: hashmap or rocksdb.
        directory: Of its state; it is made.
        function: Process function or window operator.
        follows: It is behind another operator.
    """

    def __init__(self, kind: str, directory: Path, function: Any, *, follows: bool) -> None:
        directory.mkdir()
        self.job = KeyedJob(kind, "on", directory)
        self._function = cloudpickle.dumps(function)
        self._request = task_request(
            key_type="1:string", key_columns=("k",), timestamp_column=EVENT_TIME_COLUMN, follows=follows
        ).batch.operator
        self._open()

    def batch(self, elements: list[Element], watermark_ms: int | None, late_watermark_ms: int | None) -> list[Any]:
        """Run a batch, and leave its changes pending; what came out, in order."""
        self.runner.start(0, watermark_ms, late_watermark_ms)
        out: list[Any] = []
        if elements:
            if self.runner.fires_first:
                out += self._fire()
            out += self.runner.run(_rows(elements))
        self.runner.end_rows()
        out += self._fire()
        assert self.runner.error is None, self.runner.error
        return out

    def end(self, event: str) -> None:
        """The batch is over: it was committed, and the process may have crashed then; or it is dropped."""
        if event == "drop":
            self.job.drop()
        else:
            self.job.commit()
        if event:
            if event == "crash":
                self.job.crash()
            self.runner.close()
            self._open()

    def _fire(self) -> list[Any]:
        return [row for rows in self.runner.fire_timers() for row in rows]

    def _open(self) -> None:
        self.runner = OperatorRunner(self._request, 0, self._function, self.job.backend)


def _rows(elements: list[Element]) -> pa.RecordBatch:
    keys, values, times = (list(column) for column in zip(*elements, strict=True))
    groups = [zlib.crc32(key.encode()) % MAX_PARALLELISM for key in keys]
    columns = {
        "k": pa.array(keys),
        "v": pa.array(values, pa.int64()),
        KEY_GROUP_COLUMN: pa.array(groups, pa.int32()),
        EVENT_TIME_COLUMN: pa.array(times, pa.int64()),
    }
    return pa.RecordBatch.from_pydict(columns)
