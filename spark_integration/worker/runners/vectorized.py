"""Runs a user's vectorised function over the gathered rows of a partition.

Errors of user code are kept, as in `operator_runner`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute

from varvite.changelog.api.batch_keys import keys_of_batch
from varvite.spark_integration.elements.arrow_values import zone_in, zoned
from varvite.spark_integration.functions.keyed import MIN_WATERMARK
from varvite.spark_integration.functions.vectorized import EndsBatches, VectorizedContext
from varvite.spark_integration.messages.protocol import KEY_GROUP_COLUMN, row_tag
from varvite.spark_integration.messages.user_errors import user_code_raises
from varvite.spark_integration.worker.runners.operator import INTERNAL_COLUMNS, KeyReader, OperatorRunner
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varvite.changelog.api.batch_keys import BatchKeys

VECTORIZED_ANSWER_ROWS: Final = 50_000
"""Rows per answer batch, at most."""
arrow: Any = pa
_compute: Any = pyarrow.compute


class VectorizedRunner(OperatorRunner):
    """One instance of a vectorised function on one partition. Arguments are those of `OperatorRunner`."""

    METHOD: ClassVar = "process_batch"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_bytes = 0
        self._batch_time: tuple[int, int] = 0, MIN_WATERMARK
        self._zone: str | None = None
        """The session's time zone, as the input's columns say it; None: they have said none yet."""

    def start(self, time_ms: int, watermark_ms: int | None, late_watermark_ms: int | None = None) -> None:
        """A new batch begins."""
        super().start(time_ms, watermark_ms, late_watermark_ms)
        self._gathered, self._gathered_bytes = [], 0
        self._batch_time = time_ms, self._timers.current_watermark()

    def gather(self, batch: pa.RecordBatch) -> bool:
        """Keep input rows; True if they are enough for a run."""
        if self.error is not None:
            return False
        self._gathered.append(batch)
        self._gathered_bytes += batch.nbytes
        return self._gathered_bytes >= self._function.input_bytes_max

    def fire_timers(self) -> Iterator[list[Any]]:
        """A vectorised function has no timers."""
        return iter(())

    def run_gathered(self, tag: str, *, is_end: bool) -> Iterator[pa.RecordBatch]:
        """Execute the function on the gathered rows; its output as answer batches. After an error: nothing.

        Args:
            tag: Of the attempt.
            is_end: The batch has no more rows.
        """
        gathered, self._gathered, self._gathered_bytes = self._gathered, [], 0
        if self.error is not None or self._process is None:
            return
        try:
            if gathered:
                batch = arrow.concat_batches(gathered)
                gathered.clear()  # the copy is enough
                self._zone = next(filter(None, (zone_in(field.type) for field in batch.schema)), self._zone)
                self._note_event_times(batch)
                self._backend.records += batch.num_rows
                columns = [name for name in batch.schema.names if name not in INTERNAL_COLUMNS]
                context = VectorizedContext(lambda: self._keys(batch), self._backend.set_current_key, *self._batch_time)
                for output in _outputs(self._process(batch.select(columns), context)):
                    yield from self._answers(output, tag)
            if is_end and isinstance(self._function, EndsBatches):
                for output in _outputs(self._function.end_batch()):
                    yield from self._answers(output, tag)
        except user_code_raises() as error:
            self.fail(error, None)

    def _keys(self, batch: pa.RecordBatch) -> BatchKeys:
        column = KeyReader(self._request, batch.schema).column(batch)
        groups = batch.column(batch.schema.get_field_index(KEY_GROUP_COLUMN))
        return keys_of_batch(self._backend.key_type, column, groups.to_numpy())

    def _note_event_times(self, batch: pa.RecordBatch) -> None:
        column = self._event_times(batch)
        latest = None if column is None else _compute.max(column).as_py()
        if latest is not None:
            self.event_time_max_ms = max(latest, self.event_time_max_ms or latest)

    def _answers(self, output: Any, tag: str) -> Iterator[pa.RecordBatch]:
        columns = self._checked(output)
        tags = pa.repeat(pa.scalar(row_tag(tag), pa.int64()), VECTORIZED_ANSWER_ROWS)
        nulls = pa.nulls(VECTORIZED_ANSWER_ROWS, pa.binary())
        for batch in columns.to_batches(max_chunksize=VECTORIZED_ANSWER_ROWS):
            count = batch.num_rows
            arrays = [*batch.columns, tags[:count], nulls[:count]]
            if count:
                yield pa.RecordBatch.from_arrays(arrays, schema=self.answer_schema)

    def _checked(self, output: Any) -> pa.Table:
        """The output as a table of the declared schema. Raises `InvalidRequestError`."""
        names = self._output_schema.names
        if not isinstance(output, (pa.RecordBatch, pa.Table)):
            raise InvalidRequestError(
                f"process_batch gave a {type(output).__name__}, expected an Arrow table or record batch with the "
                f"columns {names}"
            )
        if sorted(output.schema.names) != sorted(names):
            raise InvalidRequestError(f"process_batch gave the columns {output.schema.names}, expected {names}")
        schema, zone = self._output_schema, self._zone
        table = pa.table({name: _cast(output.column(name), schema.field(name), zone) for name in names})
        return table.cast(self._output_schema) if table.schema != self._output_schema else table


def _cast(column: Any, field: pa.Field, zone: str | None) -> Any:
    """The column in the declared type; naive timestamps are of the zone."""
    if column.type == field.type:
        return column
    try:
        return zoned(column, field.type, zone).cast(field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidRequestError(
            f"output column {field.name!r} is declared {field.type}, but process_batch gave {column.type}: {error}"
        ) from error


def _outputs(result: Any) -> Iterator[Any]:
    """The tables and batches that a call returned or yields."""
    if result is None:
        return
    if isinstance(result, (pa.RecordBatch, pa.Table)):
        yield result
    else:
        try:
            each = iter(result)
        except TypeError:
            each = iter((result,))  # which is then refused by its type
        yield from each
