"""Runs a function of Spark's `applyInPandasWithState` as a keyed function of varvite.

The function gets Spark's own `GroupState`. Its changes are kept in a value state (the group's state) and in timers (its
timeout); another value state holds the timeout of each key.

Invariants: I4 and I5 as `grouped_function`; the processing time and the watermark are the batch's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Row
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from varvite.changelog.api.descriptors import ValueStateDescriptor
from varvite.changelog.types.factory import Types
from varvite.spark_integration.elements.row_values import ColumnValues
from varvite.spark_integration.functions.timers import USER_TIMERS, TimeDomain
from varvite.spark_integration.operators.processors.grouped_function import GroupedFunction
from varvite.spark_integration.operators.processors.keys import KeyTuples
from varvite.spark_integration.operators.processors.pandas_rows import FRAME_ROWS, PandasRows, to_frame
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from varvite.changelog.keyed.backend import KeyedStateBackend

GROUP_STATE: Final = "group_state"
TIMEOUT_STATE: Final = "$timeout"
_DOMAINS: Final = {
    GroupStateTimeout.ProcessingTimeTimeout: TimeDomain.PROCESSING_TIME,
    GroupStateTimeout.EventTimeTimeout: TimeDomain.EVENT_TIME,
}


class GroupStateFunction(GroupedFunction):
    """A function of (key, DataFrames, state).

    Args:
        function: The user's.
        state_schema: Columns of the group's state.
        timeout: One of `GroupStateTimeout`.
        input_columns: Names of the stream's columns.
        output_columns: Names of the output's columns.
        key_columns: Names of the columns that make the key.
        has_watermark: True if the stream has one.
    """

    zone: str | None = None
    """The session's time zone when the program was built; that of the input's columns counts more."""

    def __init__(
        self,
        function: Callable[..., Any],
        state_schema: Any,
        timeout: str,
        *,
        input_columns: list[str],
        output: StructType,
        key_columns: Sequence[str],
        has_watermark: bool,
    ) -> None:
        self._function = function
        self._schema = state_schema
        self._timeout = timeout
        self._input_columns = input_columns
        self._output = output
        self._key_columns = key_columns
        self._has_watermark = has_watermark
        self.wants_heartbeats = timeout in _DOMAINS
        self.drops_late_rows = timeout == GroupStateTimeout.EventTimeTimeout

    def attach(self, backend: KeyedStateBackend) -> None:
        self._backend = backend
        self._frames = PandasRows(self._output, self.zone)
        self._keys = KeyTuples(backend, self._key_columns, in_pandas=True)
        self._keys.set_zone(self._frames.zone)
        self._values = ColumnValues(self._schema, "the group's state")
        self._state = backend.get_state(ValueStateDescriptor(GROUP_STATE, self._values.type))
        domain = _DOMAINS.get(self._timeout)
        self._timers = None if domain is None else backend.get_timers(USER_TIMERS, domain)
        self._timeouts = backend.get_state(ValueStateDescriptor(TIMEOUT_STATE, Types.LONG())) if domain else None
        self._time_ms = self._watermark_ms = 0
        self._timed_out: tuple[int, Any] = (0, None)

    def begin(self, time_ms: int, watermark_ms: int | None) -> None:
        self._again: list[tuple[tuple[int, Any], int]] = []
        self._time_ms = time_ms
        self._watermark_ms = watermark_ms or 0 if self._has_watermark else GroupState.NO_TIMESTAMP

    def read(self, batch: pa.RecordBatch) -> list[Any]:
        self._frames.note_zone(batch.schema)
        self._keys.set_zone(self._frames.zone)
        return [(batch, i) for i in range(batch.num_rows)]

    def process_group(self, key: Any, rows: list[Any], initial: list[Any]) -> Iterable[Any] | None:
        del initial
        return self._call(key, _frames(rows), has_timed_out=False)

    def expire(self) -> Iterator[tuple[tuple[int, Any], Iterable[Any] | None]]:
        import pandas as pd

        if self._timers is None:
            return
        is_event_time = self._timeout == GroupStateTimeout.EventTimeTimeout
        # Strictly before, as on Spark.
        until_ms = (self._watermark_ms if is_event_time else self._time_ms) - 1
        while (due := self._timers.pop_due(until_ms)) is not None:
            key_group, (_, key, _) = due
            self._timed_out = key_group, key
            self._backend.set_current_key(key_group, key)
            frames: Any = iter([pd.DataFrame(columns=pd.Index(self._input_columns))])
            yield (key_group, key), self._call(key, frames, has_timed_out=True)

    def end(self) -> None:
        if self._timers is not None:
            for at, time_ms in self._again:
                self._backend.set_current_key(*at)
                self._timers.register(time_ms)

    def _call(self, key: Any, frames: Iterator[Any], *, has_timed_out: bool) -> Iterator[tuple[Any, ...]]:
        import pandas as pd

        stored = self._state.value()
        value: Any = None if stored is None else Row(*self._values.outward(stored))
        unused: Any = None
        state = GroupState(
            optionalValue=value,
            batchProcessingTimeMs=self._time_ms,
            eventTimeWatermarkMs=self._watermark_ms,
            timeoutConf=self._timeout,
            hasTimedOut=has_timed_out,
            watermarkPresent=self._has_watermark,
            defined=stored is not None,
            updated=False,
            removed=False,
            timeoutTimestamp=GroupState.NO_TIMESTAMP,
            keyAsUnsafe=b"",
            valueSchema=unused,
        )
        result = self._function(self._keys.of(key), frames, state)
        if isinstance(result, pd.DataFrame) or not hasattr(result, "__iter__"):
            raise InvalidRequestError(
                f"the function returned a {type(result).__name__}; return an iterator of pandas DataFrames"
            )
        for frame in result:
            yield from self._frames.output_rows(frame)
        self._keep(state)

    def _keep(self, state: GroupState) -> None:
        """Write the function's changes of the group's state; any change ends the previous timeout."""
        if state._removed:  # noqa: SLF001  Spark's engine reads it from the object, too
            self._state.clear()
        elif state._updated:  # noqa: SLF001
            self._state.update(self._values.inward(state.get))
        if self._timers is None or self._timeouts is None:
            return
        before, timeout_ms = self._timeouts.value(), int(state._timeout_timestamp)  # noqa: SLF001
        if not (state._removed or state._updated or timeout_ms != GroupState.NO_TIMESTAMP):  # noqa: SLF001
            # As on Spark, a call without changes leaves the timeout, and an expired one expires again.
            if state.hasTimedOut and before is not None:
                self._again.append((self._timed_out, before))
            return
        if before is not None and before != timeout_ms:
            self._timers.delete(before)
        if timeout_ms != GroupState.NO_TIMESTAMP:
            self._timers.register(timeout_ms)
            self._timeouts.update(timeout_ms)
        elif before is not None:
            self._timeouts.clear()


def check_timeout(timeout: Any) -> str:
    """Check a timeout configuration of Spark's. Raises `InvalidRequestError`."""
    if timeout not in (GroupStateTimeout.NoTimeout, *_DOMAINS):
        raise InvalidRequestError(f"{timeout!r} is no time-out; give one of GroupStateTimeout's")
    return timeout


def _frames(rows: list[Any]) -> Iterator[Any]:
    """DataFrames of (batch, index) pairs, whose batches come one after the other."""
    start = 0
    while start < len(rows):
        batch = rows[start][0]
        end = start
        while end < len(rows) and end - start < FRAME_ROWS and rows[end][0] is batch:
            end += 1
        yield to_frame(batch.take([i for _, i in rows[start:end]]))
        start = end
