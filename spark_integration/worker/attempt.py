"""One attempt of one (operator, partition) in a batch: rows in, rows and one summary out, then pending (I2, I4)."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from varvite.changelog.restore.options import LOCAL_DIRECTORIES
from varvite.changelog.segments.segment import SegmentHeader
from varvite.spark_integration.messages.summary import Summary, WorkerNote, encode_note, encode_summary
from varvite.spark_integration.messages.worker_figures import AttemptFigures
from varvite.spark_integration.transport.segment_inbox import hand_over
from varvite.spark_integration.worker.process.accumulators import added_to_accumulators
from varvite.spark_integration.worker.runners.operator import ANSWER_ROWS, OperatorRunner
from varvite.spark_integration.worker.state.log_parts import SegmentLimits, SegmentParts
from varvite.spark_integration.worker.state.snapshot import CheckpointSnapshot
from varvite.storage.errors import DidNotHappenError, InvalidRequestError, LocalDataError
from varvite.storage.fail_point import fail_point
from varvite.storage.format.records import Link, StateSchema, Tile

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    import pyarrow as pa

    from varvite.changelog.keyed.backend import KeyedStateBackend
    from varvite.changelog.operator_state.section import StateSection
    from varvite.changelog.restore.files import FileChecksums
    from varvite.changelog.restore.unconfirmed_mark import UnconfirmedMark
    from varvite.changelog.working_stores.contract import StoreSize
    from varvite.spark_integration.messages.protocol import TaskRequest, UserError
    from varvite.spark_integration.messages.worker_figures import LogRead, UploadRecorder
    from varvite.spark_integration.worker.runners.vectorized import VectorizedRunner
    from varvite.spark_integration.worker.state.non_keyed import NonKeyedState
    from varvite.spark_integration.worker.state.part_decision import ChangeSizes
    from varvite.storage.clock import Clock
    from varvite.storage.transfer.upload import Uploader

FIRED_ROW_BYTES: Final = 64
"""Size that a row of a timer counts as, where early upload goes by the input that was processed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptContext:
    """The operator's state and tools at the base of an attempt, which applies nothing to the confirmed state."""

    task: TaskRequest
    low: int
    high: int
    """The key groups are `[low, high)`."""
    backend: KeyedStateBackend
    non_keyed: NonKeyedState
    tile: Tile | None
    """Changelog off: the tile of the confirmed state."""
    directory: Path
    """Directory of the working store, where it has one."""
    unconfirmed: UnconfirmedMark
    """Changelog off: set while the local files hold an attempt that is not confirmed."""
    checksums: FileChecksums
    change_sizes: ChangeSizes
    """The sizes of changes, as earlier attempts have found them."""
    uploader: Callable[[], Uploader]
    uploads: UploadRecorder
    """Counts the uploads until a summary takes them along."""
    clock: Clock
    executor: str
    """Key of the executor, see `executor_key`."""
    restored: str
    """The state's way to the base: confirmed, current, caught-up, restored."""
    log_read: LogRead
    """The log that was read for the base."""
    state_size: StoreSize | None
    """About the confirmed state, as of the end of the attempt before."""
    on_abort: Callable[[Attempt], None]
    """Called when the attempt is given up."""


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    """The result of an attempt that has ended, which its owner applies if the attempt wins."""

    sections: tuple[StateSection, ...]
    """The non-keyed state at the batch's end."""
    change_sizes: ChangeSizes
    """The sizes of changes, this attempt's included."""
    tile: Tile | None = None
    """Changelog off: the tile of the state after the batch, which the working store holds already."""


class Attempt:
    """An attempt, used by one thread; `finish` is called at most once, after the last `process`."""

    def __init__(self, context: AttemptContext, runner: OperatorRunner) -> None:
        self.task = context.task
        self.outcome: AttemptOutcome | None = None
        """Set when the summary was made: from now on the attempt may be confirmed."""
        self.folded = False
        """Changelog off: the store already holds the attempt's changes."""
        self.is_state_lost = False
        """The local state is damaged, and must be restored."""
        self.timings_ms: dict[str, float] = {}
        self._context = context
        self._runner = runner
        self._backend = context.backend
        self._out: list[Any] = []
        self._has_fired = False
        """Timers have fired before the rows, for a function that wants it."""
        self._rows_in = 0
        self._rows_out = 0
        self._row_bytes_max: int | None = None
        self._tile: Tile | None = None
        self._change_sizes = context.change_sizes
        self._sections: tuple[StateSection, ...] = ()
        """The non-keyed state at the batch's end, once it has ended."""
        self._image: bytes | None = None
        """The same encoded, if it has changed."""
        self._accumulated: tuple[bytes, ...] = ()
        """The values that were added to accumulators, once the batch has ended."""
        self._parts: SegmentParts | None = self._segment_parts() if self.task.batch.operator.changelog else None

    @property
    def finished(self) -> bool:
        """Was the summary made?"""
        return self.outcome is not None

    @property
    def error(self) -> UserError | None:
        """The error of the user's function; the attempt does nothing more then."""
        return self._runner.error

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Execute the function on a batch of rows; yields answer batches as they fill."""
        with self._noticing_damage():
            yield from self._process(batch)

    def _process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        started_s = self._context.clock.monotonic_s()
        self._note_input(batch)
        if batch.num_rows:
            if self._runner.fires_first and not self._has_fired:
                self._spent("process", started_s)
                self._has_fired = True
                yield from self._fire()
                started_s = self._context.clock.monotonic_s()
            self._out.extend(self._runner.run(batch))
        self._spent("process", started_s)
        self._upload_early(batch.nbytes)
        yield from self._full_answers()

    def _note_input(self, batch: pa.RecordBatch) -> None:
        self._rows_in += batch.num_rows
        if batch.num_rows:
            self._row_bytes_max = max(self._row_bytes_max or 0, -(-batch.nbytes // batch.num_rows))

    def _upload_early(self, input_bytes: int) -> None:
        """Let a part of the changes leave if there are many; `input_bytes` came since the last call."""
        if self._parts is not None and self._runner.error is None:
            started_s = self._context.clock.monotonic_s()
            if self._parts.after_input(input_bytes):
                self._spent("early_upload", started_s)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Fire due timers; yields their output, the rest of the output, then the summary."""
        with self._noticing_damage():
            yield from self._finish()

    def _finish(self) -> Iterator[pa.RecordBatch]:
        self._runner.end_rows()
        yield from self._fire()
        if self.task.batch.input_ends:
            self._runner.end_input()
            yield from self._fire()
        yield from self.flush()
        self._encode_non_keyed()
        self._take_accumulated()
        fail_point("worker.before_summary")
        summary = self._summary()
        yield self._runner.summary_batch(encode_summary(summary), self.task.tag)

    @contextmanager
    def _noticing_damage(self) -> Generator[None]:
        """Turn damage of the local state into an error that is tried again, on state from the storage."""
        try:
            yield
        except LocalDataError as error:
            self.is_state_lost = True
            raise state_lost(error) from error

    def _fire(self) -> Iterator[pa.RecordBatch]:
        """Fire due timers; yields answer batches as they fill."""
        started_s = self._context.clock.monotonic_s()
        for rows in self._runner.fire_timers():
            self._out.extend(rows)
            self._spent("timers", started_s)
            self._upload_early(len(rows) * FIRED_ROW_BYTES)
            yield from self._full_answers()
            started_s = self._context.clock.monotonic_s()
        self._spent("timers", started_s)

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yield the output so far, although it fills no answer batch."""
        if self._out:
            rows, self._out = self._out, []
            yield from self._answer(rows)

    def abort(self) -> None:
        """Give the attempt up: nothing of it will be confirmed."""
        if self._parts is not None:
            self._parts.abandon()
        self._context.on_abort(self)

    def _full_answers(self) -> Iterator[pa.RecordBatch]:
        while len(self._out) >= ANSWER_ROWS:
            rows, self._out = self._out[:ANSWER_ROWS], self._out[ANSWER_ROWS:]
            yield from self._answer(rows)

    def _answer(self, rows: list[Any]) -> Iterator[pa.RecordBatch]:
        started_s = self._context.clock.monotonic_s()
        answer = self._runner.answer(rows, self.task.tag)
        self._spent("answer", started_s)
        if answer is not None:
            self._rows_out += answer.num_rows
            yield answer

    def _summary(self) -> Summary:
        batch = self.task.batch
        parts: dict[str, Any] = {}
        states: tuple[StateSchema, ...] = ()
        if self._runner.error is not None:
            parts["error"] = self._runner.error
            self.abort()
        else:
            started_s = self._context.clock.monotonic_s()
            if self._parts is not None:
                log = self._parts.finish()
                self._change_sizes = self._parts.sizes
                parts.update(mutations=self._parts.mutations, uploaded=log.uploaded, inline=log.inline)
            else:
                parts["mutations"] = sum(map(len, self._backend.changes()))
                parts["files"] = self._snapshot().files
            states = self._backend.schemas
            parts["accumulated"] = self._accumulated
            parts["metrics"] = self._runner.metrics()
            parts |= self._written_image(inline_bytes=len(parts.get("inline", b"")))
            self.outcome = AttemptOutcome(self._sections, self._change_sizes, self._tile)
            self._spent("checkpoint", started_s)
            self._hand_over(parts)
        return Summary(
            operator=batch.operator.operator,
            partition=self.task.partition,
            low=self._context.low,
            high=self._context.high,
            tag=self.task.tag,
            slot=batch.slot,
            figures=self._figures().packed(),
            note=encode_note(self._note(states)),
            uploads=self._context.uploads.take(),
            **parts,
        )

    def _figures(self) -> AttemptFigures:
        return AttemptFigures(
            rows_in=self._rows_in,
            rows_out=self._rows_out,
            event_time_max_ms=self._runner.event_time_max_ms,
            row_bytes_max=self._row_bytes_max,
            late_rows=self._runner.late_rows,
            state_size=self._context.state_size,
            log_read=self._context.log_read,
            timings_ms=self.timings_ms,
        )

    def _note(self, states: tuple[StateSchema, ...]) -> WorkerNote:
        return WorkerNote(
            states=states,
            restored=self._context.restored,
            executor=self._context.executor,
            broadcast_digest=self._runner.broadcast_digest,
            warnings=self._runner.warnings,
        )

    def _hand_over(self, parts: dict[str, Any]) -> None:
        """Hand the segment to a driver on this machine, past Spark."""
        segment: bytes = parts.get("inline", b"")
        started_s = self._context.clock.monotonic_s()
        if hand_over(self.task.batch.operator.inbox, self.task.tag, segment):
            parts |= {"inline": b"", "handed_over_bytes": len(segment)}
            self._spent("hand_over", started_s)

    def _encode_non_keyed(self) -> None:
        """Let the function bring its state up to date, and encode what is not keyed; too much is the user's error."""
        started_s = self._context.clock.monotonic_s()
        self._runner.snapshot(self.task.batch.slot, self.task.batch.time_ms)
        if self._runner.error is None:
            self._sections = self._runner.operator_states.sections()
            try:
                self._image = self._context.non_keyed.encoded(self._sections)
            except InvalidRequestError as error:
                self._runner.fail(error, None)
        self._spent("checkpoint", started_s)

    def _take_accumulated(self) -> None:
        """Take what was added to accumulators; a value that cannot be pickled is the user's error."""
        if self._runner.error is None:
            try:
                self._accumulated = added_to_accumulators()
            except Exception as error:  # noqa: BLE001  pickling calls code of the user
                self._runner.fail(error, None, "while the values of accumulators were pickled")

    def _written_image(self, inline_bytes: int) -> dict[str, Any]:
        """The image for the summary, which has `inline_bytes` already; nothing if the state did not change."""
        if self._image is None:
            return {}
        if inline_bytes + len(self._image) <= self.task.batch.operator.inline_bytes_max:
            return {"image": self._image}
        return {"image_uploaded": self._context.non_keyed.upload(self._image, self.task, self._context.uploader)}

    def _segment_parts(self) -> SegmentParts:
        """The segment that takes the attempt's changes."""
        context, batch = self._context, self.task.batch
        header = SegmentHeader(
            job_id=batch.operator.job_id,
            operator=batch.operator.operator,
            partition=self.task.partition,
            low=context.low,
            high=context.high,
            seq=batch.slot,
            tag=self.task.tag,
            key_type=batch.operator.key_type,
        )
        limits = SegmentLimits(batch.operator.preemptive_persist_threshold_bytes, batch.operator.inline_bytes_max)
        return SegmentParts(header, self._backend, limits, context.change_sizes, context.uploader)

    def _snapshot(self) -> Tile:
        """Changelog off: fold first, then write and upload the whole state."""
        batch = self.task.batch
        self.folded = True
        context, at = self._context, Link(batch.slot, batch.commit_token)
        context.unconfirmed.set()
        self._backend.fold(at)
        snapshot = CheckpointSnapshot(context.uploader, context.checksums)
        files = snapshot.write(self._backend.store, context.directory, self.task, context.tile)
        self._tile = Tile(operator=batch.operator.operator, low=context.low, high=context.high, at=at, files=files)
        return self._tile

    def _spent(self, what: str, started_s: float) -> None:
        self.timings_ms[what] = self.timings_ms.get(what, 0.0) + (self._context.clock.monotonic_s() - started_s) * 1000


def state_lost(error: LocalDataError) -> DidNotHappenError:
    """The error of a batch whose local state is damaged, as by a failing disk or a cleaner of files."""
    return DidNotHappenError(
        "the local state is damaged, is thrown away, and is restored when the batch is tried again. Check the disk, "
        f"and let nothing clean there, or choose another place ({LOCAL_DIRECTORIES.key}, spark.local.dir). If it ends "
        f"so again, the snapshot itself is damaged: see `varvite verify JOB --repair` ({error.message})",
        **error.context,
    )


class VectorizedAttempt(Attempt):
    """An attempt of a function that takes whole batches of columns."""

    def __init__(self, context: AttemptContext, runner: VectorizedRunner) -> None:
        super().__init__(context, runner)
        self._vectorized = runner

    def _process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Gather the rows; execute the function when they are many."""
        self._note_input(batch)
        if batch.num_rows and self._vectorized.gather(batch):
            yield from self._run(is_end=False)
        self._upload_early(batch.nbytes)

    def _finish(self) -> Iterator[pa.RecordBatch]:
        """Execute the function on the rest of the input, then as `Attempt.finish`."""
        yield from self._run(is_end=True)
        yield from super()._finish()

    def _run(self, *, is_end: bool) -> Iterator[pa.RecordBatch]:
        answers = self._vectorized.run_gathered(self.task.tag, is_end=is_end)
        end: Any = object()
        while True:
            started_s = self._context.clock.monotonic_s()
            answer: Any = next(answers, end)
            self._spent("process", started_s)
            if answer is end:
                return
            self._rows_out += answer.num_rows
            yield answer
