"""Runs Spark's `StatefulProcessor` as a keyed function of varvite, on Rows or on pandas DataFrames.

Rows, keys and values are the same as on Spark: a row's values are those of pyarrow (an aware datetime for a timestamp,
a dict for a struct); a pandas row goes through Spark's own conversion; a key is a tuple (`keys`).

Invariants: I4 and I5 as `grouped_function`; the processor's time is the batch's.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, StatefulProcessor, TimerValues

from varvite.spark_integration.elements.arrow_rows import row_class
from varvite.spark_integration.elements.arrow_values import zone_in, zone_info
from varvite.spark_integration.elements.row_values import value_writer
from varvite.spark_integration.functions.returned import returned
from varvite.spark_integration.operators.processors.grouped_function import GroupedFunction
from varvite.spark_integration.operators.processors.handle import ProcessorHandle, ProcessorTimers, TimeMode
from varvite.spark_integration.operators.processors.keys import KeyTuples
from varvite.spark_integration.operators.processors.pandas_rows import PandasRows
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from varvite.changelog.keyed.backend import KeyedStateBackend
    from varvite.spark_integration.functions.keyed import RuntimeContext

UNKNOWN_MS: Final = -1
"""Spark's value of an unknown time."""


class ProcessorFunction(GroupedFunction):
    """A `StatefulProcessor` on rows. A naive datetime that it yields is one of UTC, as on Spark.

    Args:
        processor: The user's.
        mode: The clock of its timers.
        output: The output columns.
        key_columns: Names of the columns that make the key.
    """

    in_pandas: ClassVar = False
    """The processor gets DataFrames."""

    def __init__(
        self, processor: StatefulProcessor, mode: TimeMode, output: StructType, key_columns: Sequence[str]
    ) -> None:
        self.processor = processor
        self._mode = mode
        self._output = output
        self._key_columns = key_columns
        handles = type(processor).handleExpiredTimer is not StatefulProcessor.handleExpiredTimer
        self.warnings: set[str] = set()
        """Sentences for the user."""
        self._hears_timers = handles
        self.wants_heartbeats = handles and mode is not TimeMode.NONE
        self.drops_late_rows = mode is TimeMode.EVENT_TIME

    def attach(self, backend: KeyedStateBackend) -> None:
        self._keys = KeyTuples(backend, self._key_columns, in_pandas=self.in_pandas)
        self._zone: str | None = None
        self._write = value_writer(self._output, _of_utc)
        self._timers = None if self._mode is TimeMode.NONE else ProcessorTimers(backend, self._mode)
        self._handle = ProcessorHandle(backend, self._timers, self._mode)
        self._times = TimerValues()
        self._until_ms = UNKNOWN_MS

    def open(self, runtime_context: RuntimeContext) -> None:
        del runtime_context
        self.processor.init(self._handle)
        self._handle.initialized()

    def close(self) -> None:
        self.processor.close()

    def begin(self, time_ms: int, watermark_ms: int | None) -> None:
        if self._timers is None:
            return
        self._timers.begin()
        watermark_ms = watermark_ms or 0
        self._times = TimerValues(time_ms, watermark_ms)
        self._until_ms = watermark_ms if self._mode is TimeMode.EVENT_TIME else time_ms

    def read(self, batch: pa.RecordBatch) -> list[Any]:
        zone = next(filter(None, (zone_in(field.type) for field in batch.schema)), None)
        if zone != self._zone:
            self._zone = zone
            self._keys.set_zone(None if zone is None else zone_info(zone))
        make = partial(tuple.__new__, row_class(batch.schema.names))
        return list(map(make, zip(*(column.to_pylist() for column in batch.columns), strict=True)))

    def process_group(self, key: Any, rows: list[Any], initial: list[Any]) -> Iterable[Any] | None:
        named = self._keys.of(key)
        for row in self._initial(initial):
            self.processor.handleInitialState(named, row, self._times)
        if not rows:
            return None
        return self._outward(self.processor.handleInputRows(named, self._inward(rows), self._times))

    def expire(self) -> Iterator[tuple[tuple[int, Any], Iterable[Any] | None]]:
        if self._timers is None:
            return
        handle = self.processor.handleExpiredTimer
        for key_group, key, time_ms in self._timers.due(self._until_ms):
            info = ExpiredTimerInfo(time_ms)
            # By keyword, as Spark calls it; the other methods by position, as Spark does.
            result = handle(key=self._keys.row_of(key), timerValues=self._times, expiredTimerInfo=info)
            yield (key_group, key), self._outward(result)

    def end(self) -> None:
        if self._timers is not None:
            self._timers.end()
            if self._timers.were_set and not self._hears_timers:
                self.warnings.add("it registers timers, but has no handleExpiredTimer: they pass without effect")

    def _inward(self, rows: list[Any]) -> Iterator[Any]:
        return iter(rows)

    def _initial(self, rows: list[Any]) -> Iterable[Any]:
        return rows

    def _outward(self, result: Any) -> Iterable[Any] | None:
        """The output rows; Spark reads a Row's values by name."""
        if result is None:
            return None
        rows, write = map(_by_name, returned(result)), self._write
        return rows if write is None else map(write, rows)


class PandasProcessorFunction(ProcessorFunction):
    """A `StatefulProcessor` on pandas DataFrames."""

    in_pandas = True
    zone: str | None = None
    """The session's time zone when the program was built; that of the input's columns counts more."""

    def attach(self, backend: KeyedStateBackend) -> None:
        super().attach(backend)
        self._frames = PandasRows(self._output, self.zone)

    def read(self, batch: pa.RecordBatch) -> list[Any]:
        rows = self._frames.rows(batch)
        self._keys.set_zone(self._frames.zone)
        return rows

    def _inward(self, rows: list[Any]) -> Iterator[Any]:
        return self._frames.frames(rows)

    def _initial(self, rows: list[Any]) -> Iterable[Any]:
        return self._frames.frames(rows) if rows else ()

    def _outward(self, result: Any) -> Iterable[Any] | None:
        if result is None:
            return None
        return (row for frame in result for row in self._frames.output_rows(frame))


def _of_utc(naive: datetime) -> datetime:
    return naive.replace(tzinfo=UTC)


def _by_name(row: Any) -> Any:
    if isinstance(row, Row) and hasattr(row, "__fields__"):
        return row.asDict(True)
    return row


def check_processor(processor: Any, method: str) -> StatefulProcessor:
    """Check that it is an instance of a processor. Raises `InvalidRequestError`."""
    if not isinstance(processor, StatefulProcessor):
        what = processor.__name__ + " itself" if isinstance(processor, type) else type(processor).__name__
        raise InvalidRequestError(f"{method} takes an instance of a StatefulProcessor, not {what}")
    return processor
