"""The TTL of a state's schema (`StateSchema.ttl`), and its changes from batch to batch. Pure.

A state that ever had TTL is stored with time stamps for good: its type becomes `stamped<T>`, in a new version of its
schema. A value of an earlier version carries no stamp and reads as stamped `STAMP_MIN`. Nothing is rewritten when TTL
is switched on, changed or switched off. Expiry follows from the stamp and from three numbers of the record:

* `ttl_ms`: the life; None while TTL is off.
* `enabled_at_ms`: the time at which TTL was last switched on. Every value counts as used at that moment.
* `expired_up_to_ms`: expired values stay expired. When the TTL changes or is switched off, every value with a stamp up
  to this one had expired, removed or not; so a read never depends on the progress of cleanup.
  It is a stamp of one time characteristic: another one is refused unless nothing can have expired yet.

The record changes only in a batch, with that batch's time. It is in the log with the batch's rows, or as a state
without rows (`empty_changes`). So replay and every restore come to the same record (I5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

from varvite.changelog.api.ttl_config import TtlTimeCharacteristic
from varvite.changelog.types.stamped import STAMP_MAX, STAMP_MIN, is_stamped
from varvite.storage.errors import CorruptDataError, IncompatibleError
from varvite.storage.format.inspection import inspected
from varvite.storage.format.records import Record, StateSchema

if TYPE_CHECKING:
    from varvite.changelog.api.ttl_config import StateTtlConfig
    from varvite.changelog.segments.batch import BatchTime

NOTHING: Final = STAMP_MIN - 1
"""As the stamp up to which values have expired: below every stamp."""


class SweepSettings(Record, frozen=True, kw_only=True):
    """Settings of the sweep of RocksDB state."""

    slice_entries: int
    """Entries of one step [query_time_after_num_entries]."""
    period_ms: int
    """Every entry is checked within this time; 0: no such promise [periodic_compaction_time]."""


class IncrementalSettings(Record, frozen=True, kw_only=True):
    """Settings of the cleanup of state in memory."""

    size_entries: int
    """Entries per access."""
    every_record: bool = False


class CleanupSettings(Record, frozen=True, kw_only=True):
    """The ways of cleaning up that are on."""

    full_snapshot: bool = False
    incremental: IncrementalSettings | None = None
    sweep: SweepSettings | None = None

    @property
    def when_materialized(self) -> SweepSettings | None:
        """The materializer's sweep. It sweeps if any way is on, because its snapshot is every backend's full one."""
        is_on = self.full_snapshot or self.incremental is not None
        return self.sweep or (SWEEP if is_on else None)


SWEEP: Final = SweepSettings(slice_entries=1000, period_ms=30 * 86_400_000)


class TtlSettings(Record, frozen=True, kw_only=True):
    """The user's settings, as far as values on disk are concerned."""

    ttl_ms: int | None
    time: Literal["processing", "event"]
    cleanup: CleanupSettings = CleanupSettings()


class TtlRecord(TtlSettings, frozen=True, kw_only=True):
    """The content of `StateSchema.ttl`."""

    as_of_ms: int
    """Time of the batch that made the record."""
    enabled_at_ms: int | None = None
    """None: the state had TTL from its first value on."""
    expired_up_to_ms: int | None = None

    @property
    def settings(self) -> TtlSettings:
        """The user's part."""
        return TtlSettings(ttl_ms=self.ttl_ms, time=self.time, cleanup=self.cleanup)

    def now_ms(self, now: BatchTime) -> int | None:
        """The time by the record's clock; None before there is a watermark."""
        return now.time_ms if self.time == "processing" else now.watermark_ms

    def expired_up_to(self, now: BatchTime) -> int:
        """Values with a stamp up to this one, inclusive, have expired; `NOTHING` if none has."""
        earlier = NOTHING if self.expired_up_to_ms is None else self.expired_up_to_ms
        clock = self.now_ms(now)
        if self.ttl_ms is None or clock is None:
            return earlier
        limit = clock - self.ttl_ms
        if self.enabled_at_ms is not None and limit < self.enabled_at_ms:
            return earlier
        return max(earlier, limit)


def settings_of(config: StateTtlConfig) -> TtlSettings:
    """The record's part of a config that is enabled."""
    cleanup = config.get_cleanup_strategies()
    incremental = cleanup.get_incremental_cleanup_strategy()
    sweep = cleanup.get_rocksdb_compact_filter_cleanup_strategy()
    is_event_time = config.get_ttl_time_characteristic() is TtlTimeCharacteristic.EventTime
    return TtlSettings(
        ttl_ms=config.get_ttl().to_milliseconds(),
        time="event" if is_event_time else "processing",
        cleanup=CleanupSettings(
            full_snapshot=cleanup.in_full_snapshot(),
            incremental=None
            if incremental is None
            else IncrementalSettings(
                size_entries=incremental.get_cleanup_size(), every_record=incremental.run_cleanup_for_every_record()
            ),
            sweep=None
            if sweep is None
            else SweepSettings(
                slice_entries=sweep.get_query_time_after_num_entries(),
                period_ms=sweep.get_periodic_compaction_time().to_millis(),
            ),
        ),
    )


def record_of(schema: StateSchema) -> TtlRecord | None:
    """The record of a state that is stored with stamps; None for any other. Raises `CorruptDataError`."""
    if not is_stamped(schema.value_type):
        return None
    try:
        return msgspec.convert(schema.ttl, inspected(TtlRecord))
    except msgspec.ValidationError as error:
        raise CorruptDataError(f"the TTL of state {schema.name!r} does not parse: {error}") from error


def with_ttl(
    schema: StateSchema,
    stored: StateSchema | None,
    settings: TtlSettings | None,
    now: BatchTime,
    operator: str | None = None,
) -> StateSchema:
    """The schema of a state from this batch on.

    Args:
        schema: The descriptor's, without TTL.
        stored: The stored schema; None for a new state.
        settings: The descriptor's TTL; None for none.
        now: The time of the batch.
        operator: The operator's uid, for errors.

    Raises `IncompatibleError` for another time characteristic where something may have expired.
    """
    before = None if stored is None else record_of(stored)
    if stored is None or before is None:
        if settings is None:
            return schema
        record = _new(settings, now, is_new_state=stored is None)
    else:
        settings = settings or msgspec.structs.replace(before.settings, ttl_ms=None)
        if settings.time != before.time:
            _check_nothing_expired(schema.name, before, settings, now, operator)
        record = _changed(before, settings, now)
    return msgspec.structs.replace(schema, value_type=_stamped(schema.value_type), ttl=msgspec.to_builtins(record))


def merged(a: StateSchema, b: StateSchema) -> StateSchema:
    """The schema of a state that two sources describe differently, in any order: its newest version, with one TTL.

    The later record holds; nothing expires before it does in both, and values that have expired in one stay expired.
    """
    newest = a if a.version > b.version else b
    first, second = record_of(a), record_of(b)
    if first is None or second is None:
        return newest
    earlier, later = (first, second) if first.as_of_ms <= second.as_of_ms else (second, first)
    if earlier.time == later.time:
        later = msgspec.structs.replace(
            later,
            enabled_at_ms=_latest(earlier.enabled_at_ms, later.enabled_at_ms),
            expired_up_to_ms=_latest(earlier.expired_up_to_ms, later.expired_up_to_ms),
        )
    return msgspec.structs.replace(newest, ttl=msgspec.to_builtins(later))


def _new(settings: TtlSettings, now: BatchTime, *, is_new_state: bool) -> TtlRecord:
    record = TtlRecord(ttl_ms=settings.ttl_ms, time=settings.time, cleanup=settings.cleanup, as_of_ms=now.time_ms)
    return record if is_new_state else msgspec.structs.replace(record, enabled_at_ms=_moment(record, now))


def _changed(before: TtlRecord, settings: TtlSettings, now: BatchTime) -> TtlRecord:
    if before.settings == settings:
        return before
    record = TtlRecord(
        ttl_ms=settings.ttl_ms,
        time=settings.time,
        cleanup=settings.cleanup,
        as_of_ms=now.time_ms,
        enabled_at_ms=before.enabled_at_ms,
    )
    is_switched_on = before.ttl_ms is None and settings.ttl_ms is not None
    if settings.time != before.time:
        # Stamps of one time mean nothing in the other: every value counts as used now. Nothing had expired.
        return msgspec.structs.replace(record, enabled_at_ms=_moment(record, now))
    expired = before.expired_up_to(now)
    return msgspec.structs.replace(
        record,
        enabled_at_ms=_moment(record, now) if is_switched_on else before.enabled_at_ms,
        expired_up_to_ms=None if expired == NOTHING else max(STAMP_MIN, expired),
    )


def _check_nothing_expired(
    name: str, before: TtlRecord, settings: TtlSettings, now: BatchTime, operator: str | None
) -> None:
    """Refuse another clock if values have expired: by the other clock they would live again, unless swept (I5)."""
    if before.expired_up_to(now) != NOTHING:
        raise IncompatibleError(
            f"the TTL of state {name!r} counts {before.time} time, by which values may have expired, and cannot change "
            f"to {settings.time} time: go on with {before.time} time, or declare the state under another name, with "
            f"{settings.time} time, and fill it from this one",
            operator=operator,
        )


def _moment(record: TtlRecord, now: BatchTime) -> int:
    """Now; processing time stands in for event time until there is a watermark."""
    clock = record.now_ms(now)
    return min(STAMP_MAX, now.time_ms if clock is None else clock)


def _latest(a: int | None, b: int | None) -> int | None:
    return max((stamp for stamp in (a, b) if stamp is not None), default=None)


def _stamped(type_string: str) -> str:
    version, _, notation = type_string.partition(":")
    return f"{version}:stamped<{notation}>"


def enabled_settings(config: StateTtlConfig | None) -> TtlSettings | None:
    """The settings of a config; None if TTL is off."""
    return settings_of(config) if config is not None and config.is_enabled() else None
