"""Changes of a state's TTL, and expiry: pure decisions."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from varvite.changelog.api.time_spans import Time
from varvite.changelog.api.ttl_config import StateTtlConfig
from varvite.changelog.schema.history import change
from varvite.changelog.schema.ttl import (
    NOTHING,
    SWEEP,
    CleanupSettings,
    IncrementalSettings,
    SweepSettings,
    TtlRecord,
    TtlSettings,
    enabled_settings,
    merged,
    record_of,
    with_ttl,
)
from varvite.changelog.segments.batch import BatchTime
from varvite.changelog.segments.changes import empty_changes
from varvite.changelog.types.stamped import STAMP_MIN
from varvite.storage.errors import CorruptDataError, IncompatibleError
from varvite.storage.format.records import StateSchema

PLAIN = StateSchema(name="s", kind="value", value_type="1:long")
TEN = TtlSettings(ttl_ms=10, time="processing")
HUNDRED = TtlSettings(ttl_ms=100, time="processing")
EVENT = TtlSettings(ttl_ms=10, time="event")


def record(schema: StateSchema) -> TtlRecord:
    found = record_of(schema)
    assert found is not None
    return found


def expired(schema: StateSchema, time_ms: int, watermark_ms: int | None = None) -> int:
    return record(schema).expired_up_to(BatchTime(time_ms, watermark_ms))


def test_a_state_without_ttl_stays_what_it_is() -> None:
    assert with_ttl(PLAIN, None, None, BatchTime(5)) is PLAIN
    assert with_ttl(PLAIN, PLAIN, None, BatchTime(5)) is PLAIN
    assert record_of(msgspec.structs.replace(PLAIN, ttl={"ms": 5})) is None


def test_a_new_state_has_ttl_from_its_first_value_on() -> None:
    schema = with_ttl(PLAIN, None, TEN, BatchTime(50))
    assert schema.value_type == "1:stamped<long>"
    assert record(schema) == TtlRecord(ttl_ms=10, time="processing", as_of_ms=50)
    assert [expired(schema, time_ms) for time_ms in (50, 60)] == [40, 50]


def test_the_same_settings_change_nothing() -> None:
    first = with_ttl(PLAIN, None, TEN, BatchTime(50))
    assert with_ttl(PLAIN, first, TEN, BatchTime(80)) == first


def test_what_is_there_when_ttl_is_switched_on_counts_as_used_then() -> None:
    schema = with_ttl(PLAIN, PLAIN, TEN, BatchTime(50))
    assert record(schema).enabled_at_ms == 50
    assert expired(schema, 59) == NOTHING < STAMP_MIN
    assert expired(schema, 60) == 50 > STAMP_MIN


def test_a_shorter_ttl_counts_from_the_stamps() -> None:
    first = with_ttl(PLAIN, None, HUNDRED, BatchTime(0))
    assert expired(with_ttl(PLAIN, first, TEN, BatchTime(50)), 50) == 40


def test_a_longer_ttl_brings_nothing_back() -> None:
    first = with_ttl(PLAIN, None, TEN, BatchTime(0))
    longer = with_ttl(PLAIN, first, HUNDRED, BatchTime(50))
    assert [expired(longer, time_ms) for time_ms in (50, 140, 141)] == [40, 40, 41]


def test_ttl_that_is_off_expires_nothing_more_and_brings_nothing_back() -> None:
    first = with_ttl(PLAIN, None, TEN, BatchTime(0))
    off = with_ttl(PLAIN, first, None, BatchTime(50))
    assert off.value_type == "1:stamped<long>", "a state that had stamps keeps them"
    assert record(off).ttl_ms is None
    assert [expired(off, time_ms) for time_ms in (50, 10**15)] == [40, 40]
    assert with_ttl(PLAIN, off, None, BatchTime(70)) == off


def test_ttl_that_is_switched_on_again_begins_anew() -> None:
    first = with_ttl(PLAIN, None, TEN, BatchTime(0))
    off = with_ttl(PLAIN, first, None, BatchTime(50))
    on = with_ttl(PLAIN, off, TEN, BatchTime(200))
    assert [expired(on, time_ms) for time_ms in (200, 209, 210)] == [40, 40, 200]


def test_event_time_expires_by_the_watermark_alone() -> None:
    schema = with_ttl(PLAIN, None, EVENT, BatchTime(10**12))
    assert expired(schema, 10**13) == NOTHING, "there is no watermark yet"
    assert expired(schema, 10**13, 100) == 90


def test_event_time_that_is_switched_on_begins_at_the_watermark() -> None:
    schema = with_ttl(PLAIN, PLAIN, EVENT, BatchTime(10**12, 100))
    assert [expired(schema, 10**12, watermark) for watermark in (109, 110)] == [NOTHING, 100]
    before = with_ttl(PLAIN, PLAIN, EVENT, BatchTime(1000))
    assert [expired(before, 0, watermark) for watermark in (1009, 1010)] == [NOTHING, 1000]


def test_another_time_characteristic_begins_anew_while_nothing_can_have_expired() -> None:
    first = with_ttl(PLAIN, PLAIN, TEN, BatchTime(1000))
    event = with_ttl(PLAIN, first, EVENT, BatchTime(1009, 300))
    assert [expired(event, 2000, watermark) for watermark in (309, 310)] == [NOTHING, 300]
    back = with_ttl(PLAIN, event, TEN, BatchTime(3000, 309))
    assert [expired(back, time_ms) for time_ms in (3009, 3010)] == [NOTHING, 3000]
    without_watermark = with_ttl(PLAIN, None, EVENT, BatchTime(1000))
    assert record(with_ttl(PLAIN, without_watermark, TEN, BatchTime(2000))).enabled_at_ms == 2000
    off = with_ttl(PLAIN, first, None, BatchTime(1009))
    assert record(with_ttl(PLAIN, off, EVENT, BatchTime(2000, 300))).enabled_at_ms == 300


@pytest.mark.parametrize(
    ("known", "wanted", "now"),
    [
        (with_ttl(PLAIN, None, TEN, BatchTime(1000)), EVENT, BatchTime(2000, 300)),
        (with_ttl(PLAIN, PLAIN, TEN, BatchTime(1000)), EVENT, BatchTime(1010, 300)),
        (with_ttl(PLAIN, None, EVENT, BatchTime(1000)), TEN, BatchTime(2000, 300)),
        (with_ttl(PLAIN, with_ttl(PLAIN, None, TEN, BatchTime(0)), None, BatchTime(50)), EVENT, BatchTime(60, 300)),
    ],
)
def test_another_time_characteristic_is_refused_where_something_may_have_expired(
    known: StateSchema, wanted: TtlSettings, now: BatchTime
) -> None:
    """Expired values lived again, unless a sweep or a fold had removed it."""
    with pytest.raises(IncompatibleError, match="declare the state under another name") as caught:
        with_ttl(PLAIN, known, wanted, now, "sums")
    assert caught.value.context == {"operator": "sums"}


def with_version_of(known: StateSchema, schema: StateSchema) -> StateSchema:
    return change(known, schema, {}, "op", migrates=False).schema


def test_merging_is_the_same_in_every_order() -> None:
    first = with_version_of(PLAIN, with_ttl(PLAIN, PLAIN, TEN, BatchTime(50)))
    longer = with_version_of(first, with_ttl(PLAIN, first, HUNDRED, BatchTime(90)))
    off = with_version_of(first, with_ttl(PLAIN, longer, None, BatchTime(400)))
    on = with_version_of(first, with_ttl(PLAIN, off, TEN, BatchTime(500)))
    new = with_version_of(first, with_ttl(PLAIN, None, TEN, BatchTime(500)))
    versions = [PLAIN, first, longer, off, on, new]
    for order in itertools.permutations(versions):
        known = order[0]
        for schema in order[1:]:
            known = merged(known, schema)
        assert (record(known).ttl_ms, record(known).enabled_at_ms, record(known).expired_up_to_ms) == (10, 500, 300)
    assert merged(first, first) == first
    assert merged(PLAIN, PLAIN) == PLAIN


def test_changes_without_rows_fit_the_kind_of_the_state() -> None:
    by_name = msgspec.structs.replace(PLAIN, kind="map", map_key_type="1:string")
    assert empty_changes(by_name).map_keys == []
    assert empty_changes(PLAIN).map_keys is None


def config(build: Any) -> CleanupSettings:
    settings = enabled_settings(build(StateTtlConfig.new_builder(Time.seconds(1))).build())
    assert settings is not None
    return settings.cleanup


def test_settings_of_a_config() -> None:
    every = StateTtlConfig.new_builder(Time.seconds(1)).use_event_time().build()
    settings = enabled_settings(every)
    assert settings is not None
    assert (settings.ttl_ms, settings.time) == (1000, "event")
    assert settings.cleanup == CleanupSettings(incremental=IncrementalSettings(size_entries=5), sweep=SWEEP)
    assert enabled_settings(None) is None
    off = StateTtlConfig.new_builder(Time(1)).set_update_type(StateTtlConfig.UpdateType.Disabled).build()
    assert enabled_settings(off) is None


def test_the_materializer_sweeps_if_any_cleanup_is_on() -> None:
    assert config(lambda b: b.disable_cleanup_in_background()).when_materialized is None
    assert config(lambda b: b.disable_cleanup_in_background().cleanup_full_snapshot()).when_materialized == SWEEP
    assert config(lambda b: b.disable_cleanup_in_background().cleanup_incrementally(1, True)).when_materialized == SWEEP
    own = config(lambda b: b.disable_cleanup_in_background().cleanup_in_rocksdb_compact_filter(9, Time.seconds(7)))
    assert own.when_materialized == SweepSettings(slice_entries=9, period_ms=7000)


def test_a_record_goes_through_json_and_newer_fields_are_skipped() -> None:
    schema = with_ttl(PLAIN, PLAIN, TEN, BatchTime(50))
    again = msgspec.json.decode(msgspec.json.encode(schema), type=StateSchema)
    assert again == schema
    newer = msgspec.structs.replace(schema, ttl={**(schema.ttl or {}), "later": 1})
    assert record(newer) == record(schema)
    for damaged in (None, {}, {"ttl_ms": "x"}):
        with pytest.raises(CorruptDataError, match="state 's'"):
            record_of(msgspec.structs.replace(schema, ttl=damaged))
