"""Spark's `StatefulProcessorHandle` over varvite's keyed state: states, and the timers of one time mode.

Timers are kept twice, as on Spark: in varvite's timer state, by time, and in a map state, by key (`listTimers`).

Invariants: I5 (a timer that is set, while timers fire, for a time that is already due fires in the next batch, as on
Spark).
"""

from __future__ import annotations

import operator
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

from varvite.changelog.api.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from varvite.changelog.api.time_spans import Time
from varvite.changelog.api.ttl_config import StateTtlConfig
from varvite.changelog.types.factory import Types
from varvite.spark_integration.elements.row_values import ColumnValues
from varvite.spark_integration.functions.timers import USER_TIMERS, TimeDomain
from varvite.spark_integration.operators.processors.states import (
    ProcessorListState,
    ProcessorMapState,
    ProcessorValueState,
)
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varvite.changelog.keyed.backend import KeyedStateBackend

D = TypeVar("D", bound=StateDescriptor)
LISTED_TIMERS: Final = "$timers"
"""Name of the map state with the timers of a key; a user's state cannot begin with a dollar sign."""


class TimeMode(Enum):
    """The clock that timers follow."""

    NONE = "none"
    PROCESSING_TIME = "processingtime"
    EVENT_TIME = "eventtime"

    @staticmethod
    def of(name: Any) -> TimeMode:
        """The mode of that name; case is ignored, as on Spark. Raises `InvalidRequestError`."""
        try:
            return TimeMode(name.lower())
        except (AttributeError, ValueError):
            raise InvalidRequestError(
                f"{name!r} is no time mode; give 'None', 'ProcessingTime' or 'EventTime'"
            ) from None


class ProcessorTimers:
    """The timers of a processor.

    Args:
        backend: The processor's state.
        mode: Not `NONE`.
    """

    def __init__(self, backend: KeyedStateBackend, mode: TimeMode) -> None:
        domain = TimeDomain.EVENT_TIME if mode is TimeMode.EVENT_TIME else TimeDomain.PROCESSING_TIME
        self._backend = backend
        self._timers = backend.get_timers(USER_TIMERS, domain)
        self._listed = backend.get_map_state(MapStateDescriptor(LISTED_TIMERS, Types.LONG(), Types.BOOLEAN()))
        self._due_ms: int | None = None
        """While timers fire: the time up to which they are due."""
        self._key: tuple[int, Any] = (0, None)
        self._deferred: dict[tuple[int, Any, int], None] = {}
        self.were_set = False
        """Timers were set by this instance."""

    def register(self, time_ms: int) -> None:
        """Set a timer of the current key. Raises `InvalidRequestError` if that is no time."""
        time_ms = _milliseconds(time_ms)
        self.were_set = True
        self._listed.put(time_ms, True)
        if self._due_ms is not None and time_ms <= self._due_ms:
            self._deferred[(*self._key, time_ms)] = None
        else:
            self._timers.register(time_ms)

    def delete(self, time_ms: int) -> None:
        """Remove a timer of the current key. While timers fire, one that is already due still fires."""
        time_ms = _milliseconds(time_ms)
        self._listed.remove(time_ms)
        if self._due_ms is not None and time_ms <= self._due_ms:
            self._deferred.pop((*self._key, time_ms), None)
        else:
            self._timers.delete(time_ms)

    def times(self) -> Iterator[int]:
        """The timers of the current key, ascending."""
        return iter(sorted(self._listed.keys()))

    def due(self, until_ms: int) -> Iterator[tuple[int, Any, int]]:
        """Fire the timers up to `until_ms`: yield each as (key group, stored key, time) with its key current."""
        self._due_ms = until_ms
        while (due := self._timers.pop_due(until_ms)) is not None:
            key_group, (time_ms, key, _) = due
            self._key = (key_group, key)
            self._backend.set_current_key(key_group, key)
            yield key_group, key, time_ms
            self._backend.set_current_key(key_group, key)
            self.delete(time_ms)

    def end(self) -> None:
        """Set the deferred timers for the next batch; called after the last timer."""
        deferred, self._deferred, self._due_ms = self._deferred, {}, None
        for key_group, key, time_ms in deferred:
            self._backend.set_current_key(key_group, key)
            self._timers.register(time_ms)

    def begin(self) -> None:
        """Begin a batch."""
        self._deferred, self._due_ms = {}, None


class ProcessorHandle(StatefulProcessorHandle):
    """The argument of a processor's `init`.

    Args:
        backend: The processor's state.
        timers: None in time mode None.
        mode: The time mode.
    """

    def __init__(self, backend: KeyedStateBackend, timers: ProcessorTimers | None, mode: TimeMode) -> None:
        self._backend = backend
        self._timers = timers
        self._mode = mode
        self._initializing = True

    def initialized(self) -> None:
        """Refuse further states, as `init` has returned."""
        self._initializing = False

    def getValueState(  # pyright: ignore[reportIncompatibleMethodOverride]  Spark's class is final in all but name
        self, stateName: str, schema: Any, ttlDurationMs: int | None = None
    ) -> ProcessorValueState:
        self._check_name(stateName)
        values = ColumnValues(schema, f"value state {stateName!r}")
        described = self._with_ttl(ValueStateDescriptor(stateName, values.type), ttlDurationMs)
        return ProcessorValueState(self._backend.get_state(described), values)

    def getListState(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, stateName: str, schema: Any, ttlDurationMs: int | None = None
    ) -> ProcessorListState:
        self._check_name(stateName)
        values = ColumnValues(schema, f"list state {stateName!r}")
        described = self._with_ttl(ListStateDescriptor(stateName, values.type), ttlDurationMs)
        return ProcessorListState(self._backend.get_list_state(described), values)

    def getMapState(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, stateName: str, userKeySchema: Any, valueSchema: Any, ttlDurationMs: int | None = None
    ) -> ProcessorMapState:
        self._check_name(stateName)
        keys = ColumnValues(userKeySchema, f"a key of map state {stateName!r}")
        values = ColumnValues(valueSchema, f"map state {stateName!r}")
        described = self._with_ttl(MapStateDescriptor(stateName, keys.type, values.type), ttlDurationMs)
        return ProcessorMapState(self._backend.get_map_state(described), keys, values)

    def registerTimer(self, expiryTimestampMs: int) -> None:
        self._timers_of("registerTimer").register(expiryTimestampMs)

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        self._timers_of("deleteTimer").delete(expiryTimestampMs)

    def listTimers(self) -> Iterator[int]:
        return self._timers_of("listTimers").times()

    def deleteIfExists(self, stateName: str) -> None:
        self._check_name(stateName)
        self._backend.remove_state(stateName)

    def _check_name(self, name: str) -> None:
        if not self._initializing:
            raise InvalidRequestError(
                f"state {name!r} is asked for after init(); states are made and deleted in init()"
            )
        if isinstance(name, str) and name.startswith("$"):
            raise InvalidRequestError(f"state {name!r}: names that begin with $ are reserved; take another")

    def _with_ttl(self, descriptor: D, ttl_ms: int | None) -> D:
        """The descriptor with Spark's time to live of a value, an element or an entry, counted from its last write."""
        if ttl_ms is None or ttl_ms == 0:  # 0 means no time to live on Spark
            return descriptor
        name = descriptor.name
        if not isinstance(ttl_ms, int) or ttl_ms < 0:
            raise InvalidRequestError(f"state {name!r}: ttlDurationMs is {ttl_ms!r}; give milliseconds above 0, an int")
        if self._mode is not TimeMode.PROCESSING_TIME:
            raise InvalidRequestError(
                f"state {name!r}: ttlDurationMs needs the time mode 'ProcessingTime', and it is {self._mode.value!r}"
            )
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(ttl_ms)).build())
        return descriptor

    def _timers_of(self, method: str) -> ProcessorTimers:
        if self._timers is None:
            raise InvalidRequestError(f"{method} needs the time mode ProcessingTime or EventTime, and it is None")
        return self._timers


def _milliseconds(time_ms: Any) -> int:
    try:
        return operator.index(time_ms)
    except TypeError:
        raise InvalidRequestError(f"{time_ms!r} is no time; give whole milliseconds since 1970, an int") from None
