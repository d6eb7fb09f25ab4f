"""TTL and the types of states change, one after the other and both at once (see conftest.py for the ways of life)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.keyed_state.ttl.states import TTL_MS, ttl, with_config
from tests.jobs.living_job import CUT, CUT_LOG, FOLDED, LIVES, PENDING, Average, LivingJob
from varvite.changelog.api.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from varvite.changelog.api.ttl_config import StateTtlConfig
from varvite.changelog.row import Row
from varvite.changelog.types.factory import Types
from varvite.storage.errors import IncompatibleError, InvalidRequestError

ON = ttl().build()
SHORTER = ttl(TTL_MS // 10).build()
V0, V1, V2 = "a int, b string", "b string, a bigint, c string", "a bigint"
OLD = Row(a=1, b="x")
DEFAULTS = {"c": "CH"}

pytestmark = pytest.mark.parametrize("life", [life for life in LIVES if life not in (PENDING, CUT, CUT_LOG)])


def states(ddl: str, number: str, config: StateTtlConfig | None, **more: Any) -> list[StateDescriptor]:
    """One of each kind."""
    descriptors: list[StateDescriptor] = [
        ValueStateDescriptor("value", ddl, **more),
        ListStateDescriptor("list", ddl, **more),
        MapStateDescriptor("map", "string", ddl, **more),
        ReducingStateDescriptor("sum", lambda _, b: b, ddl, **more),
        AggregatingStateDescriptor("average", Average(), Types.TUPLE(["long", number])),
    ]
    return [with_config(descriptor, config) for descriptor in descriptors]


def redeploy(job: LivingJob, time_ms: int, *descriptors: StateDescriptor) -> list[Any]:
    """Deploy code that asks for these states in open(), in a batch of this time; what was not committed is lost."""
    if job.life == FOLDED:
        job.redeploy()
    else:
        job.crash()
    job.move_time(time_ms)
    return [job.handle(descriptor) for descriptor in descriptors]


def restart(job: LivingJob, time_ms: int, *descriptors: StateDescriptor) -> list[Any]:
    job.step()
    return redeploy(job, time_ms, *descriptors)


def fill(job: LivingJob, handles: list[Any], row: Any) -> None:
    value, elements, entries, total, average = handles
    job.set_key("k")
    value.update(row)
    elements.add(row)
    entries.put_all({"a": row, "null": None})
    total.add(row)
    average.add(3)


def seen(job: LivingJob, handles: list[Any]) -> list[Any]:
    value, elements, entries, total, average = handles
    job.set_key("k")
    return [value.value(), elements.get(), dict(entries.items()), total.get(), average.get()]


def full(row: Any) -> list[Any]:
    return [row, [row], {"a": row, "null": None}, row, 3.0]


EMPTY = [None, [], {}, None, None]


def test_ttl_is_switched_on_while_the_type_changes_and_types_change_under_ttl(job: LivingJob) -> None:
    job.move_time(1000)
    fill(job, [job.handle(descriptor) for descriptor in states(V0, "int", None)], OLD)
    wide = Row(b="x", a=1, c="CH")
    both = states(V1, "long", ON, defaults=DEFAULTS)
    assert seen(job, restart(job, 5000, *both)) == full(wide), "used at the moment when TTL was switched on"
    assert seen(job, restart(job, 5000 + TTL_MS - 1, *both)) == full(wide)
    narrow = states(V2, "long", ON)
    assert seen(job, restart(job, 5000 + TTL_MS - 1, *narrow)) == full(Row(a=1)), "stamps stay as they were"
    assert seen(job, restart(job, 5000 + TTL_MS, *narrow)) == EMPTY
    assert {schema.version for schema in job.backend.schemas} == {1, 2}, "the type of the average changed once"


def test_stamps_stay_when_the_type_changes(job: LivingJob) -> None:
    job.move_time(1000)
    fill(job, [job.handle(descriptor) for descriptor in states(V0, "int", ON)], OLD)
    later = states(V1, "long", ON, defaults=DEFAULTS)
    wide = Row(b="x", a=1, c="CH")
    assert seen(job, restart(job, 1000 + TTL_MS - 1, *later)) == full(wide)
    assert seen(job, restart(job, 1000 + TTL_MS, *later)) == EMPTY


def test_a_type_changes_after_ttl_was_switched_off(job: LivingJob) -> None:
    job.move_time(1000)
    fill(job, [job.handle(descriptor) for descriptor in states(V0, "int", ON)], OLD)
    wide = Row(b="x", a=1, c="CH")
    for time_ms in (1000 + TTL_MS // 2, 1000 + 10 * TTL_MS):
        handles = restart(job, time_ms, *states(V1, "long", None, defaults=DEFAULTS))
        assert seen(job, handles) == full(wide)


def test_values_are_migrated_with_their_stamps(job: LivingJob) -> None:
    def migrated(**more: Any) -> StateDescriptor:
        return with_config(MapStateDescriptor("m", "string", "string", **more), ON)

    old = with_config(MapStateDescriptor("m", "string", "int"), ON)
    job.move_time(1000)
    job.at("k", old).put_all({"first": 1, "null": None})
    (state,) = restart(job, 1050, old)
    job.set_key("k")
    state.put("second", 2)
    (state,) = restart(job, 1060, migrated(migrate=lambda n: f"#{n}"))
    job.set_key("k")
    assert dict(state.items()) == {"first": "#1", "null": None, "second": "#2"}
    (state,) = restart(job, 1000 + TTL_MS, migrated())
    job.set_key("k")
    assert dict(state.items()) == {"second": "#2"}


def test_ttl_is_switched_on_by_the_batch_that_migrates(job: LivingJob) -> None:
    job.at("k", ValueStateDescriptor("v", "int")).update(7)
    wanted = with_config(ValueStateDescriptor("v", "string", migrate=str), ON)
    (state,) = restart(job, 1000, wanted)
    job.set_key("k")
    assert state.value() == "7"
    (state,) = restart(job, 1000 + TTL_MS - 1, wanted)
    job.set_key("k")
    assert state.value() == "7"
    (state,) = restart(job, 1000 + TTL_MS, wanted)
    job.set_key("k")
    assert state.value() is None


def test_a_migration_for_any_type_is_not_called_because_of_ttl(job: LivingJob) -> None:
    def fail(value: Any) -> Any:
        raise AssertionError(value)

    job.at("k", ValueStateDescriptor("v", "int")).update(7)
    (state,) = restart(job, 1000, with_config(ValueStateDescriptor("v", "int", migrate=fail), ON))
    job.set_key("k")
    assert state.value() == 7


def test_what_was_tried_and_rolled_back_never_was(job: LivingJob) -> None:
    old, new = ValueStateDescriptor("v", V0), with_config(ValueStateDescriptor("v", V1), SHORTER)
    job.at("k", old).update(OLD)
    job.step()
    for i in range(2):
        (state,) = redeploy(job, 1000 * (i + 1), new)
        job.set_key("k")
        assert state.value() == Row(b="x", a=1, c=None)
        state.update(Row(b="y", a=2, c=None))
        (state,) = redeploy(job, 1000 * (i + 1), old)
        job.set_key("k")
        assert state.value() == OLD
    job.at("l", old).update(OLD)
    job.step()
    assert [(schema.version, schema.ttl) for schema in job.backend.schemas] == [(0, None)]


def test_ttl_may_be_switched_on_while_a_key_is_current_but_the_type_not_changed(job: LivingJob) -> None:
    """No value must be migrated for a stamp; so states need not be asked for in open() for TTL alone."""
    job.at("k", ValueStateDescriptor("v", "int")).update(7)
    restart(job, 1000)
    with pytest.raises(InvalidRequestError, match=r"ask for it in open\(\)"):
        job.at("k", with_config(ValueStateDescriptor("v", "bigint"), ON))
    assert job.at("k", with_config(ValueStateDescriptor("v", "int"), ON)).value() == 7
    restart(job, 1000 + TTL_MS)
    assert job.at("k", with_config(ValueStateDescriptor("v", "int"), ON)).value() is None


def test_an_incompatible_type_is_refused_with_ttl_as_without(job: LivingJob) -> None:
    job.at("k", with_config(ValueStateDescriptor("v", "int"), ON)).update(7)
    job.step()
    with pytest.raises(IncompatibleError, match="'v' is stored as value of"):
        redeploy(job, 10, with_config(ValueStateDescriptor("v", "string"), ON))
    (state,) = redeploy(job, 10, with_config(ValueStateDescriptor("v", "int"), ON))
    job.set_key("k")
    assert state.value() == 7


def test_a_ttl_that_is_not_confirmed_cleans_nothing_up(job: LivingJob) -> None:
    """The batch that made it shorter may never have been (I4)."""
    longer, shorter = (with_config(ValueStateDescriptor("v", "int"), config) for config in (ON, SHORTER))
    for i in range(20):
        job.at(f"k{i}", longer).update(i)
    restart(job, TTL_MS // 2)
    job.backend.fold(job.backend.store.version)
    for i in range(20):
        assert job.at(f"k{i}", shorter).value() is None
    job.backend.clean_up()
    (state,) = redeploy(job, TTL_MS // 2, longer)
    for i in range(20):
        job.set_key(f"k{i}")
        assert state.value() == i
