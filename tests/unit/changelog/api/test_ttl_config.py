"""`StateTtlConfig` and its parts: every getter, every builder method, every check."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pytest

from varvite import ListStateDescriptor, StateTtlConfig, Time, ValueStateDescriptor
from varvite.common import Duration
from varvite.storage.errors import InvalidRequestError

Update = StateTtlConfig.UpdateType
Visibility = StateTtlConfig.StateVisibility
Characteristic = StateTtlConfig.TtlTimeCharacteristic
Cleanup = StateTtlConfig.CleanupStrategies


def builder() -> Any:
    return StateTtlConfig.new_builder(Time.hours(1))


def test_the_numbers_of_the_enums_are_flinks() -> None:
    assert [(u.name, u.value) for u in Update] == [("Disabled", 0), ("OnCreateAndWrite", 1), ("OnReadAndWrite", 2)]
    assert [v.value for v in (Visibility.ReturnExpiredIfNotCleanedUp, Visibility.NeverReturnExpired)] == [0, 1]
    assert [c.value for c in (Characteristic.ProcessingTime, Characteristic.EventTime)] == [0, 1]
    assert [(s.name, s.value) for s in Cleanup.Strategies] == [
        ("FULL_STATE_SCAN_SNAPSHOT", 0), ("INCREMENTAL_CLEANUP", 1), ("ROCKSDB_COMPACTION_FILTER", 2),
    ]  # fmt: skip


def test_time_in_every_unit() -> None:
    spans = (Time(5), Time.milliseconds(5), Time.seconds(2), Time.minutes(2), Time.hours(2), Time.days(2))
    assert [t.to_milliseconds() for t in spans] == [5, 5, 2_000, 120_000, 7_200_000, 172_800_000]
    assert (Time.minutes(60), hash(Time.minutes(60))) == (Time.hours(1), hash(Time.hours(1)))
    assert Time(1) != Time(2)
    assert repr(Time(7)) == "Time(7)"
    for wrong in (1.5, "1", True, None):
        with pytest.raises(InvalidRequestError):
            Time.seconds(wrong)  # type: ignore[arg-type]


def test_the_defaults_of_the_builder() -> None:
    config = builder().build()
    assert config.get_update_type() is Update.OnCreateAndWrite
    assert config.get_state_visibility() is Visibility.NeverReturnExpired
    assert config.get_ttl_time_characteristic() is Characteristic.ProcessingTime
    assert config.get_ttl() == Time.hours(1)
    assert config.is_enabled()
    assert repr(config) == "StateTtlConfig(OnCreateAndWrite, NeverReturnExpired, ProcessingTime, Time(3600000))"
    cleanup = config.get_cleanup_strategies()
    assert (cleanup.is_cleanup_in_background(), cleanup.in_full_snapshot()) == (True, False)
    incremental = cleanup.get_incremental_cleanup_strategy()
    assert (incremental.get_cleanup_size(), incremental.run_cleanup_for_every_record()) == (5, False)
    compaction = cleanup.get_rocksdb_compact_filter_cleanup_strategy()
    assert compaction.get_query_time_after_num_entries() == 1000
    assert compaction.get_periodic_compaction_time() == Duration.of_days(30)


def test_every_setter() -> None:
    made = builder()
    assert made.set_update_type(Update.Disabled) is made
    assert not made.build().is_enabled()
    assert made.update_ttl_on_read_and_write().build().get_update_type() is Update.OnReadAndWrite
    assert made.update_ttl_on_create_and_write().build().get_update_type() is Update.OnCreateAndWrite
    shown = Visibility.ReturnExpiredIfNotCleanedUp
    assert made.return_expired_if_not_cleaned_up().build().get_state_visibility() is shown
    assert made.never_return_expired().build().get_state_visibility() is Visibility.NeverReturnExpired
    assert made.set_state_visibility(shown).build().get_state_visibility() is shown
    assert made.use_event_time().build().get_ttl_time_characteristic() is Characteristic.EventTime
    assert made.use_processing_time().build().get_ttl_time_characteristic() is Characteristic.ProcessingTime
    event = made.set_ttl_time_characteristic(Characteristic.EventTime).build()
    assert event.get_ttl_time_characteristic() is Characteristic.EventTime
    assert made.set_ttl(timedelta(seconds=3)).build().get_ttl() == Time.seconds(3)


def test_cleanup_is_what_was_set() -> None:
    cleanup = (
        builder().disable_cleanup_in_background().cleanup_full_snapshot().cleanup_incrementally(7, True)
        .cleanup_in_rocksdb_compact_filter(50, Time.hours(2)).build().get_cleanup_strategies()
    )  # fmt: skip
    assert (cleanup.is_cleanup_in_background(), cleanup.in_full_snapshot()) == (False, True)
    incremental = cleanup.get_incremental_cleanup_strategy()
    assert isinstance(incremental, Cleanup.IncrementalCleanupStrategy)
    assert (incremental.get_cleanup_size(), incremental.run_cleanup_for_every_record()) == (7, True)
    compaction = cleanup.get_rocksdb_compact_filter_cleanup_strategy()
    assert isinstance(compaction, Cleanup.RocksdbCompactFilterCleanupStrategy)
    assert compaction.get_query_time_after_num_entries() == 50
    assert compaction.get_periodic_compaction_time() == Duration.of_hours(2)


def test_a_duration_is_a_span_wherever_a_time_is() -> None:
    """PyFlink's compact filter takes a Duration only, and its getter gives one; a TTL is a Time there."""
    made = builder().cleanup_in_rocksdb_compact_filter(1000, Duration.of_hours(1)).set_ttl(Duration.of_minutes(5))
    config = made.build()
    period = config.get_cleanup_strategies().get_rocksdb_compact_filter_cleanup_strategy()
    assert period.get_periodic_compaction_time() == Duration.of_hours(1)
    assert period.get_periodic_compaction_time().to_millis() == 3_600_000
    assert config.get_ttl() == Time.minutes(5) == StateTtlConfig.new_builder(Duration.of_minutes(5)).build().get_ttl()
    for wrong in (1.5, "1", True, None):
        with pytest.raises(InvalidRequestError):
            Duration(wrong)  # type: ignore[arg-type]


def test_without_cleanup_in_background_only_what_was_set_is_on() -> None:
    cleanup = builder().disable_cleanup_in_background().build().get_cleanup_strategies()
    assert not cleanup.in_full_snapshot()
    assert cleanup.get_incremental_cleanup_strategy() is None
    assert cleanup.get_rocksdb_compact_filter_cleanup_strategy() is None


def test_cleanup_strategies_by_hand() -> None:
    assert isinstance(Cleanup.EMPTY_STRATEGY, Cleanup.EmptyCleanupStrategy)
    assert isinstance(Cleanup.EMPTY_STRATEGY, Cleanup.CleanupStrategy)
    made = Cleanup({Cleanup.Strategies.FULL_STATE_SCAN_SNAPSHOT: Cleanup.EMPTY_STRATEGY}, False)
    assert made.in_full_snapshot()
    never = StateTtlConfig(
        Update.OnReadAndWrite, Visibility.NeverReturnExpired, Characteristic.EventTime, Time(1), made
    )
    assert never.get_cleanup_strategies() is made


@pytest.mark.parametrize("falsy", [None, 0, False, ""])
def test_a_falsy_period_means_the_default(falsy: Any) -> None:
    strategy = Cleanup.RocksdbCompactFilterCleanupStrategy(1, falsy)
    assert strategy.get_periodic_compaction_time() == Duration.of_days(30)


def test_a_period_of_zero_is_one() -> None:
    for zero in (Time(0), Duration(0), timedelta(0)):
        strategy = Cleanup.RocksdbCompactFilterCleanupStrategy(1, zero)
        assert strategy.get_periodic_compaction_time() == Duration(0)


WRONG: list[Any] = [
    lambda: StateTtlConfig.new_builder(Time(0)),
    lambda: StateTtlConfig.new_builder(Time(-1)),
    lambda: StateTtlConfig.new_builder(timedelta(microseconds=1)),
    lambda: StateTtlConfig.new_builder(60),  # type: ignore[arg-type]
    lambda: StateTtlConfig.new_builder(Time.days(10**9)),
    lambda: builder().set_ttl(Time(0)),
    lambda: builder().set_update_type(1),
    lambda: builder().set_state_visibility(None),
    lambda: builder().set_ttl_time_characteristic("EventTime"),
    lambda: builder().cleanup_incrementally(0, False),
    lambda: builder().cleanup_incrementally(-1, False),
    lambda: builder().cleanup_incrementally(1.0, False),
    lambda: builder().cleanup_incrementally(1, 1),
    lambda: builder().cleanup_in_rocksdb_compact_filter(0),
    lambda: builder().cleanup_in_rocksdb_compact_filter(1000, Time(-1)),
    lambda: builder().cleanup_in_rocksdb_compact_filter(1000, Duration(-1)),
    lambda: builder().cleanup_in_rocksdb_compact_filter(1000, 30),
    lambda: Cleanup({}, None),  # type: ignore[arg-type]
    lambda: StateTtlConfig(
        Update.Disabled,
        Visibility.NeverReturnExpired,
        Characteristic.EventTime,
        Time(1),
        {},  # type: ignore[arg-type]
    ),
]


@pytest.mark.parametrize("place", range(len(WRONG)))
def test_what_is_wrong_is_refused_at_once(place: int) -> None:
    with pytest.raises(InvalidRequestError):
        WRONG[place]()


def test_a_config_can_be_sent_to_workers() -> None:
    config = builder().cleanup_incrementally(3, True).use_event_time().build()
    again = pickle.loads(pickle.dumps(config))
    assert again.get_ttl() == config.get_ttl()
    assert again.get_ttl_time_characteristic() is Characteristic.EventTime
    assert again.get_cleanup_strategies().get_incremental_cleanup_strategy().get_cleanup_size() == 3


def test_a_descriptor_keeps_its_config() -> None:
    descriptor = ValueStateDescriptor("v", "bigint")
    assert descriptor.get_ttl_config() is None
    config = builder().build()
    descriptor.enable_time_to_live(config)
    assert descriptor.get_ttl_config() is config
    assert descriptor.stored_type.type_string() == "1:long", "TTL does not change what the user sees"
    with pytest.raises(InvalidRequestError, match="state 'items'"):
        ListStateDescriptor("items", "bigint").enable_time_to_live(Time.hours(1))  # type: ignore[arg-type]
