"""An attempt of a vectorised function: input is gathered and processed as few large batches (I10: bounded by bytes)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from varve.spark_integration.worker.attempt import Attempt

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from varve.changelog.keyed.backend import KeyedStateBackend
    from varve.spark_integration.messages.protocol import TaskRequest
    from varve.spark_integration.worker.runners.vectorized import VectorizedRunner
    from varve.spark_integration.worker.state_worker import OperatorState


class VectorizedAttempt(Attempt):
    """See the module and `Attempt`."""

    def __init__(
        self, owner: OperatorState, task: TaskRequest, runner: VectorizedRunner, backend: KeyedStateBackend, how: str
    ) -> None:
        super().__init__(owner, task, runner, backend, how)
        self._vectorized = runner

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Gather the rows; execute the function when they are many."""
        self._note_input(batch)
        if batch.num_rows and self._vectorized.gather(batch):
            yield from self._run(is_end=False)
        self._upload_early(batch.nbytes)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Execute the function on the rest of the input, then as `Attempt.finish`."""
        yield from self._run(is_end=True)
        yield from super().finish()

    def _run(self, *, is_end: bool) -> Iterator[pa.RecordBatch]:
        answers = self._vectorized.run_gathered(self.task.tag, is_end=is_end)
        end: Any = object()
        while True:
            started_s = self._owner.clock.monotonic_s()
            answer: Any = next(answers, end)
            self._spent("process", started_s)
            if answer is end:
                return
            self._rows_out += answer.num_rows
            yield answer
