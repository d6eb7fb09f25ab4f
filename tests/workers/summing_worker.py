"""A state worker in this process, and the function it executes: it keeps what it is given, and yields the sum."""

from __future__ import annotations

import contextlib
import gc
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark import cloudpickle

from tests.workers.state_worker_setup import rows, split, task_request
from varvite.changelog.api.descriptors import ListStateDescriptor
from varvite.spark_integration.functions.keyed import KeyedProcessFunction, RuntimeContext
from varvite.spark_integration.transport.home import WorkerHome
from varvite.spark_integration.worker.state_worker import StateWorker
from varvite.storage.format.records import ORIGIN, Link

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    from varvite.spark_integration.messages.summary import Summary
    from varvite.spark_integration.worker.attempt import Attempt


class Summing(KeyedProcessFunction[int, Any, tuple[int]]):
    """Yields the sum of all values so far, which it keeps in a list; one value is an error."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.values = runtime_context.get_list_state(ListStateDescriptor("values", "bigint"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[int]]:
        if value.value == 13:
            raise ArithmeticError("13 is unlucky")
        self.values.add(value.value)
        yield (sum(self.values.get()),)


FUNCTION = cloudpickle.dumps(Summing())


class SummingWorker:
    """A state worker, and the requests to it.

    Args:
        directory: For its storage and its home.
        backend: Its state backend.
        operator: Further settings of its operator.
    """

    def __init__(self, directory: Path, backend: str, **operator: Any) -> None:
        self.storage_url = str(directory / "state")
        self._operator = {
            "storage_url": self.storage_url, "backend": backend, "changelog": True, "key_type": "1:int",
            "key_columns": ("__varvite_key_group",), "inline_bytes_max": 1 << 20, **operator,
        }  # fmt: skip
        home = WorkerHome(directory / "home")
        home.create()
        self.process = StateWorker(0, home)

    def begin(self, slot: int, base: Link = ORIGIN, confirmed: str = "") -> Attempt:
        """A new attempt."""
        task = task_request(slot=slot, **self._operator)
        batch = msgspec.structs.replace(task.batch, base=base, confirmed=(confirmed,) if confirmed else ())
        return self.process.begin(msgspec.structs.replace(task, batch=batch), lambda: FUNCTION)


@contextlib.contextmanager
def summing_worker(directory: Path, backend: str, **operator: Any) -> Iterator[SummingWorker]:
    """A worker that is closed in the end; what it has set for its process is set back."""
    thresholds = gc.get_threshold()
    worker = SummingWorker(directory, backend, **operator)
    try:
        yield worker
    finally:
        worker.process.close()
        gc.set_threshold(*thresholds)


def run(attempt: Attempt, *firsts: int) -> tuple[list[int], Summary]:
    """Feed an input batch of two rows from each of these numbers, and end; gives the output values and the summary."""
    answers: list[pa.RecordBatch] = []
    for first in firsts:
        answers += attempt.process(rows(2, first))
    return split([*answers, *attempt.finish()])
