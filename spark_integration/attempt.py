"""One attempt of one (operator, partition) in a batch: rows in, rows and one summary out, then pending (I2, I4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from varve.changelog.segment import SegmentHeader, encode_segment
from varve.spark_integration.checkpoint_snapshot import CheckpointSnapshot
from varve.spark_integration.operator_runner import ANSWER_ROWS, OperatorRunner, upstream_tags
from varve.spark_integration.protocol import Summary, encode_message
from varve.storage import layout
from varve.storage.fail_point import fail_point
from varve.storage.records import Link, Tile

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from varve.changelog.changes import StateChanges
    from varve.changelog.keyed_backend import KeyedStateBackend
    from varve.spark_integration.protocol import TaskRequest
    from varve.spark_integration.state_worker import OperatorState


class Attempt:
    """See the module. Used by one thread; `finish` is called at most once, after the last `process`."""

    def __init__(
        self, owner: OperatorState, task: TaskRequest, runner: OperatorRunner, backend: KeyedStateBackend, how: str
    ) -> None:
        self.task = task
        self.finished = False
        """The summary was made: from now on the attempt may be confirmed."""
        self.folded = False
        """Changelog off: the store already holds the attempt's changes."""
        self.timings_ms: dict[str, float] = {}
        self._owner = owner
        self._runner = runner
        self._backend = backend
        self._how = how
        self._out: list[Any] = []
        self._rows_in = 0
        self._rows_out = 0
        self._upstream: set[int] = set()
        self._tile: Tile | None = None

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Execute the function on a batch of rows; yields answer batches as they fill."""
        started_s = self._owner.clock.monotonic_s()
        self._rows_in += batch.num_rows
        self._upstream.update(upstream_tags(batch))
        if batch.num_rows:
            self._out.extend(self._runner.run(batch))
        self._spent("process", started_s)
        yield from self._full_answers()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """What due timers yield, the rest of the output, then the summary."""
        started_s = self._owner.clock.monotonic_s()
        for rows in self._runner.fire_timers():
            self._out.extend(rows)
            self._spent("timers", started_s)
            yield from self._full_answers()
            started_s = self._owner.clock.monotonic_s()
        self._spent("timers", started_s)
        if self._out:
            rows, self._out = self._out, []
            yield from self._answer(rows)
        fail_point("worker.before_summary")
        summary = self._summary()
        yield self._runner.summary_batch(encode_message(summary), self.task.tag)

    def abort(self) -> None:
        """The task went away: nothing of this attempt will be confirmed."""
        self._owner.aborted(self)

    def confirm(self, at: Link) -> None:
        """The attempt won: its changes become the confirmed state, at version `at`."""
        if self.folded:
            self._owner.tile = self._tile
        else:
            self._backend.fold(at)

    def _full_answers(self) -> Iterator[pa.RecordBatch]:
        while len(self._out) >= ANSWER_ROWS:
            rows, self._out = self._out[:ANSWER_ROWS], self._out[ANSWER_ROWS:]
            yield from self._answer(rows)

    def _answer(self, rows: list[Any]) -> Iterator[pa.RecordBatch]:
        started_s = self._owner.clock.monotonic_s()
        answer = self._runner.answer(rows, self.task.tag)
        self._spent("answer", started_s)
        if answer is not None:
            self._rows_out += len(rows)
            yield answer

    def _summary(self) -> Summary:
        owner, batch = self._owner, self.task.batch
        parts: dict[str, Any] = {}
        if self._runner.error is not None:
            parts["error"] = self._runner.error
            owner.aborted(self)
        else:
            started_s = owner.clock.monotonic_s()
            changes = self._backend.changes()
            parts["mutations"] = sum(len(c) for c in changes)
            parts["states"] = self._backend.schemas
            if batch.operator.changelog:
                parts.update(self._log(changes))
            else:
                parts["files"] = self._snapshot().files
            self.finished = True
            self._spent("checkpoint", started_s)
        return Summary(
            operator=batch.operator.operator,
            partition=self.task.partition,
            low=owner.low,
            high=owner.high,
            tag=self.task.tag,
            slot=batch.slot,
            rows_in=self._rows_in,
            rows_out=self._rows_out,
            event_time_max_ms=self._runner.event_time_max_ms,
            consumed_tags=tuple(sorted(self._upstream)),
            timings_ms=self.timings_ms,
            restored=self._how,
            **parts,
        )

    def _log(self, changes: list[StateChanges]) -> dict[str, Any]:
        """The changes as a segment: inline if small, else uploaded under this attempt's own name."""
        if not changes:
            return {}
        owner, batch = self._owner, self.task.batch
        header = SegmentHeader(
            job_id=batch.operator.job_id,
            operator=batch.operator.operator,
            partition=self.task.partition,
            low=owner.low,
            high=owner.high,
            seq=batch.slot,
            tag=self.task.tag,
            part=0,
            key_type=batch.operator.key_type,
        )
        segment = encode_segment(header, changes)
        if len(segment) <= batch.operator.inline_bytes_max:
            return {"inline": segment}
        name = layout.segment(batch.slot, batch.operator.operator, self.task.partition, self.task.tag, 0)
        return {"uploaded": (owner.upload(name, segment),)}

    def _snapshot(self) -> Tile:
        """Changelog off: fold first, then write and upload the whole state (design 9)."""
        batch = self.task.batch
        self.folded = True
        owner, at = self._owner, Link(batch.slot, batch.commit_token)
        self._backend.fold(at)
        snapshot = CheckpointSnapshot(owner.uploader, owner.checksums)
        files = snapshot.write(self._backend.store, owner.directory, self.task, owner.tile)
        self._tile = Tile(operator=batch.operator.operator, low=owner.low, high=owner.high, at=at, files=files)
        return self._tile

    def _spent(self, what: str, started_s: float) -> None:
        self.timings_ms[what] = self.timings_ms.get(what, 0.0) + (self._owner.clock.monotonic_s() - started_s) * 1000
