"""`StateTtlConfig`: the life of a state's values, with PyFlink's names and signatures.

Unlike PyFlink's, it is plain Python and needs no JVM, wrong values are refused at once, and there is event-time TTL
(docs/guide/ttl.md).
"""

from __future__ import annotations

from abc import ABC
from datetime import timedelta
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from varvite.changelog.api.time_spans import Duration, Time, TimeLike, integer, milliseconds_of
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping


PERIODIC_COMPACTION_TIME: Final = Duration.of_days(30)
"""The default, as in Flink."""
_YEARS_MAX: Final = Time.days(365 * 10_000)


class UpdateType(Enum):
    """The accesses that renew a value's life."""

    Disabled = 0
    """TTL is off."""
    OnCreateAndWrite = 1
    """Writing it."""
    OnReadAndWrite = 2
    """Writing and reading it."""


class StateVisibility(Enum):
    """Visibility of a value after its life."""

    ReturnExpiredIfNotCleanedUp = 0
    """As long as it has not been removed; a read that sees it removes it."""
    NeverReturnExpired = 1
    """Never."""


class TtlTimeCharacteristic(Enum):
    """The clock of a value's life."""

    ProcessingTime = 0
    """The time of the batches."""
    EventTime = 1
    """Values are stamped with the event time of the row that wrote them, and expire by the watermark. Flink has
    nothing like it."""


class CleanupStrategy(ABC):  # noqa: B024 - PyFlink's base; nothing in it must be implemented
    """Base of the strategies' settings."""


class EmptyCleanupStrategy(CleanupStrategy):
    """Settings of a strategy without settings."""


class IncrementalCleanupStrategy(CleanupStrategy):
    """Settings of `cleanup_incrementally`."""

    def __init__(self, cleanup_size: int, run_cleanup_for_every_record: bool) -> None:
        self._cleanup_size = _positive(cleanup_size, "cleanup_size")
        self._run_cleanup_for_every_record = _boolean(run_cleanup_for_every_record, "run_cleanup_for_every_record")

    def get_cleanup_size(self) -> int:
        """Entries that are checked per access."""
        return self._cleanup_size

    def run_cleanup_for_every_record(self) -> bool:
        """Does every row count as an access?"""
        return self._run_cleanup_for_every_record


class RocksdbCompactFilterCleanupStrategy(CleanupStrategy):
    """Settings of `cleanup_in_rocksdb_compact_filter`."""

    def __init__(self, query_time_after_num_entries: int, periodic_compaction_time: TimeLike | None = None) -> None:
        self._query_time_after_num_entries = _positive(query_time_after_num_entries, "query_time_after_num_entries")
        # As in PyFlink, what is falsy means the default; a span of zero is a span.
        is_set = bool(periodic_compaction_time) or isinstance(periodic_compaction_time, timedelta)
        period = periodic_compaction_time if is_set else PERIODIC_COMPACTION_TIME
        self._periodic_compaction_time = Duration(_milliseconds(period, "periodic_compaction_time"))

    def get_query_time_after_num_entries(self) -> int:
        """Entries of one step of a sweep; after each step it is decided if the sweep goes on."""
        return self._query_time_after_num_entries

    def get_periodic_compaction_time(self) -> Duration:
        """Within this time every entry is checked once; zero: no such promise."""
        return self._periodic_compaction_time


class Strategies(Enum):
    """The ways of cleaning up."""

    FULL_STATE_SCAN_SNAPSHOT = 0
    INCREMENTAL_CLEANUP = 1
    ROCKSDB_COMPACTION_FILTER = 2


class CleanupStrategies:
    """The ways of cleaning up that are on, besides the removal of expired values by reads."""

    Strategies = Strategies
    CleanupStrategy = CleanupStrategy
    EmptyCleanupStrategy = EmptyCleanupStrategy
    IncrementalCleanupStrategy = IncrementalCleanupStrategy
    RocksdbCompactFilterCleanupStrategy = RocksdbCompactFilterCleanupStrategy
    EMPTY_STRATEGY: Final = EmptyCleanupStrategy()

    def __init__(self, strategies: Mapping[Strategies, CleanupStrategy], is_cleanup_in_background: bool) -> None:
        self._strategies = MappingProxyType(dict(strategies))
        self._is_cleanup_in_background = _boolean(is_cleanup_in_background, "is_cleanup_in_background")

    def is_cleanup_in_background(self) -> bool:
        """Are incremental and compaction cleanup on with defaults unless they were set?"""
        return self._is_cleanup_in_background

    def in_full_snapshot(self) -> bool:
        """Do full snapshots leave out expired values?"""
        return Strategies.FULL_STATE_SCAN_SNAPSHOT in self._strategies

    def get_incremental_cleanup_strategy(self) -> IncrementalCleanupStrategy | None:
        """Its settings; None if it is off."""
        default = IncrementalCleanupStrategy(5, False) if self._is_cleanup_in_background else None
        strategy: Any = self._strategies.get(Strategies.INCREMENTAL_CLEANUP, default)
        return strategy

    def get_rocksdb_compact_filter_cleanup_strategy(self) -> RocksdbCompactFilterCleanupStrategy | None:
        """Its settings; None if it is off."""
        default = RocksdbCompactFilterCleanupStrategy(1000) if self._is_cleanup_in_background else None
        strategy: Any = self._strategies.get(Strategies.ROCKSDB_COMPACTION_FILTER, default)
        return strategy

    def __reduce__(self) -> tuple[Any, ...]:
        return CleanupStrategies, (dict(self._strategies), self._is_cleanup_in_background)


class StateTtlConfig:
    """The life of a state's values; made by `StateTtlConfig.new_builder(Time.hours(1)).build()`. Immutable.

    Args:
        update_type: The accesses that renew a value's life.
        state_visibility: Visibility of expired values.
        ttl_time_characteristic: The clock of a value's life.
        ttl: The life; positive.
        cleanup_strategies: The ways of removing expired values.

    Raises:
        InvalidRequestError: one of them is not such a value.
    """

    UpdateType = UpdateType
    StateVisibility = StateVisibility
    TtlTimeCharacteristic = TtlTimeCharacteristic
    CleanupStrategies = CleanupStrategies
    Builder: type[Builder]

    def __init__(
        self,
        update_type: UpdateType,
        state_visibility: StateVisibility,
        ttl_time_characteristic: TtlTimeCharacteristic,
        ttl: TimeLike,
        cleanup_strategies: CleanupStrategies,
    ) -> None:
        self._update_type = _member(update_type, UpdateType, "update_type")
        self._state_visibility = _member(state_visibility, StateVisibility, "state_visibility")
        self._characteristic = _member(ttl_time_characteristic, TtlTimeCharacteristic, "ttl_time_characteristic")
        self._ttl = _life(ttl)
        self._cleanup_strategies = _member(cleanup_strategies, CleanupStrategies, "cleanup_strategies")

    @staticmethod
    def new_builder(ttl: TimeLike) -> Builder:
        """A builder with this life."""
        return Builder(ttl)

    def get_update_type(self) -> UpdateType:
        """The accesses that renew a value's life."""
        return self._update_type

    def get_state_visibility(self) -> StateVisibility:
        """Visibility of expired values."""
        return self._state_visibility

    def get_ttl(self) -> Time:
        """The life."""
        return self._ttl

    def get_ttl_time_characteristic(self) -> TtlTimeCharacteristic:
        """The clock of a value's life."""
        return self._characteristic

    def is_enabled(self) -> bool:
        """False: the update type is Disabled, which is the same as no config."""
        return self._update_type is not UpdateType.Disabled

    def get_cleanup_strategies(self) -> CleanupStrategies:
        """The ways of removing expired values."""
        return self._cleanup_strategies

    def __repr__(self) -> str:
        parts = (self._update_type.name, self._state_visibility.name, self._characteristic.name, self._ttl)
        return f"StateTtlConfig({', '.join(map(str, parts))})"


class Builder:
    """Makes a `StateTtlConfig`; every method returns the builder itself.

    Defaults: OnCreateAndWrite, NeverReturnExpired, ProcessingTime, cleanup in the background.
    """

    def __init__(self, ttl: TimeLike) -> None:
        self._ttl = _life(ttl)
        self._update_type = UpdateType.OnCreateAndWrite
        self._state_visibility = StateVisibility.NeverReturnExpired
        self._characteristic = TtlTimeCharacteristic.ProcessingTime
        self._is_cleanup_in_background = True
        self._strategies: dict[Strategies, CleanupStrategy] = {}

    def set_update_type(self, update_type: UpdateType) -> Builder:
        """Set the accesses that renew a value's life."""
        self._update_type = _member(update_type, UpdateType, "update_type")
        return self

    def update_ttl_on_create_and_write(self) -> Builder:
        """Let writing a value renew its life."""
        return self.set_update_type(UpdateType.OnCreateAndWrite)

    def update_ttl_on_read_and_write(self) -> Builder:
        """Let reading and writing a value renew its life."""
        return self.set_update_type(UpdateType.OnReadAndWrite)

    def set_state_visibility(self, state_visibility: StateVisibility) -> Builder:
        """Set the visibility of expired values."""
        self._state_visibility = _member(state_visibility, StateVisibility, "state_visibility")
        return self

    def return_expired_if_not_cleaned_up(self) -> Builder:
        """Show an expired value until it is removed."""
        return self.set_state_visibility(StateVisibility.ReturnExpiredIfNotCleanedUp)

    def never_return_expired(self) -> Builder:
        """Never show an expired value."""
        return self.set_state_visibility(StateVisibility.NeverReturnExpired)

    def set_ttl_time_characteristic(self, ttl_time_characteristic: TtlTimeCharacteristic) -> Builder:
        """Set the clock of a value's life."""
        self._characteristic = _member(ttl_time_characteristic, TtlTimeCharacteristic, "ttl_time_characteristic")
        return self

    def use_processing_time(self) -> Builder:
        """Count by the time of the batches."""
        return self.set_ttl_time_characteristic(TtlTimeCharacteristic.ProcessingTime)

    def use_event_time(self) -> Builder:
        """Count by the event time of the rows and the watermark."""
        return self.set_ttl_time_characteristic(TtlTimeCharacteristic.EventTime)

    def cleanup_full_snapshot(self) -> Builder:
        """Leave expired values out of full snapshots."""
        self._strategies[Strategies.FULL_STATE_SCAN_SNAPSHOT] = CleanupStrategies.EMPTY_STRATEGY
        return self

    def cleanup_incrementally(self, cleanup_size: int, run_cleanup_for_every_record: bool) -> Builder:
        """Check a few entries per access; for state in memory.

        Args:
            cleanup_size: Entries per access; positive.
            run_cleanup_for_every_record: Every row counts as an access as well.
        """
        strategy = IncrementalCleanupStrategy(cleanup_size, run_cleanup_for_every_record)
        self._strategies[Strategies.INCREMENTAL_CLEANUP] = strategy
        return self

    def cleanup_in_rocksdb_compact_filter(
        self, query_time_after_num_entries: int, periodic_compaction_time: TimeLike | None = None
    ) -> Builder:
        """Sweep state in RocksDB and in the materializer's folds (docs/guide/ttl.md).

        Args:
            query_time_after_num_entries: Entries of one step of a sweep; positive.
            periodic_compaction_time: Within this time every entry is checked once; 30 days by default. A time of
                zero makes no such promise.
        """
        strategy = RocksdbCompactFilterCleanupStrategy(query_time_after_num_entries, periodic_compaction_time)
        self._strategies[Strategies.ROCKSDB_COMPACTION_FILTER] = strategy
        return self

    def disable_cleanup_in_background(self) -> Builder:
        """Clean up only in the ways that were set."""
        self._is_cleanup_in_background = False
        return self

    def set_ttl(self, ttl: TimeLike) -> Builder:
        """Set the life; positive."""
        self._ttl = _life(ttl)
        return self

    def build(self) -> StateTtlConfig:
        """The config."""
        cleanup = CleanupStrategies(self._strategies, self._is_cleanup_in_background)
        return StateTtlConfig(self._update_type, self._state_visibility, self._characteristic, self._ttl, cleanup)


StateTtlConfig.Builder = Builder


def _milliseconds(value: Any, what: str) -> int:
    """Milliseconds of a span of time, not negative. Raises `InvalidRequestError`."""
    span_ms = milliseconds_of(value)
    if span_ms is None or not 0 <= span_ms <= _YEARS_MAX.to_milliseconds():
        raise InvalidRequestError(
            f"{what} is {value!r}; give a Time such as Time.hours(1), a Duration such as Duration.of_hours(1), or a "
            "timedelta"
        )
    return span_ms


def _life(value: Any) -> Time:
    life_ms = _milliseconds(value, "the TTL")
    if not life_ms:
        raise InvalidRequestError(f"the TTL is {value!r}; it must be positive: give at least one millisecond")
    return Time(life_ms)


def _positive(value: Any, what: str) -> int:
    if integer(value, what) <= 0:
        raise InvalidRequestError(f"{what} is {value}; give at least 1")
    return value


def _boolean(value: Any, what: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidRequestError(f"{what} is {value!r}; give True or False")
    return value


def _member(value: Any, kind: type[Any], what: str) -> Any:
    if not isinstance(value, kind):
        raise InvalidRequestError(f"{what} is {value!r}; give a {kind.__name__}")
    return value
