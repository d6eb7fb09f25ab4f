"""Conformance of keyed state: a function is deployed anew with other types for its states (see conftest.py).

A job in life PENDING or CUT never ends a batch, so nothing is stored that could be of another type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.jobs.living_job import CUT, CUT_LOG, FOLDED, LIVES, PENDING, Average, LivingJob
from tests.jobs.plain_rows import as_tuples
from varvite.changelog.api.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from varvite.changelog.row import Row
from varvite.changelog.types.factory import Types
from varvite.storage.errors import IncompatibleError, InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable

V0 = "id int, name string, address struct<street string, zip int>, tags array<struct<t string>>"
V1 = (
    "name string, id bigint, country string, address struct<zip bigint, city string>, "
    "tags array<struct<t string, n int>>"
)
OLD = Row(id=1, name="n", address=Row(street="s", zip=8000), tags=[Row(t="x"), None])
NEW = Row(
    name="n", id=1, country="CH", address=Row(zip=8000, city=None), tags=[Row(t="x", n=0), None]
)  # as `OLD` is read with DEFAULTS
DEFAULTS = {"country": "CH", "tags.n": 0}

pytestmark = pytest.mark.parametrize("life", [life for life in LIVES if life not in (PENDING, CUT, CUT_LOG)])


def restart(job: LivingJob, *descriptors: StateDescriptor) -> list[Any]:
    """End the batch, and deploy code that asks for these states in open()."""
    job.step()
    return redeploy(job, *descriptors)


def redeploy(job: LivingJob, *descriptors: StateDescriptor) -> list[Any]:
    """Deploy code that asks for these states in open(); what was not committed is lost."""
    if job.life == FOLDED:
        job.redeploy()
    else:
        job.crash()
    return [job.handle(descriptor) for descriptor in descriptors]


def values(state: ValueStateDescriptor, job: LivingJob, keys: str) -> list[Any]:
    return as_tuples([job.at(key, state).value() for key in keys])


def test_every_kind_of_state_evolves(job: LivingJob) -> None:
    def add(a: Any, b: Any) -> Any:
        return Row(**{**b.as_dict(), "id": a.id + b.id})

    def states(ddl: str, number: str, **more: Any) -> list[StateDescriptor]:
        return [
            ValueStateDescriptor("value", ddl, **more),
            ListStateDescriptor("list", ddl, **more),
            MapStateDescriptor("map", "string", ddl, **more),
            ReducingStateDescriptor("sum", add, ddl, **more),
            AggregatingStateDescriptor("average", Average(), Types.TUPLE(["long", number])),
        ]

    for descriptor in states(V0, "int"):
        state = job.at("k", descriptor)
        if isinstance(descriptor, MapStateDescriptor):
            state.put_all({"a": OLD, "null": None})
        elif isinstance(descriptor, AggregatingStateDescriptor):
            state.add(3)
        else:
            state.update(OLD) if isinstance(descriptor, ValueStateDescriptor) else state.add(OLD)
    value, elements, entries, total, average = restart(job, *states(V1, "long", defaults=DEFAULTS))
    for _ in range(2):
        job.set_key("k")
        assert value.value() == NEW
        assert elements.get() == [NEW]
        assert dict(entries.items()) == {"a": NEW, "null": None}
        assert total.get() == NEW
        assert average.get() == 3.0
        value, elements, entries, total, average = restart(job, *states(V1, "long"))
    job.set_key("k")
    elements.add(NEW.replace(id=2**40))
    entries.put("b", NEW.replace(id=2**40))
    total.add(NEW.replace(id=2**40))
    average.add(2**40)
    value, elements, entries, total, average = restart(job, *states(V1, "long"))
    job.set_key("k")
    assert [row.id for row in elements.get()] == [1, 2**40]
    assert {key: row and row.id for key, row in entries.items()} == {"a": 1, "null": None, "b": 2**40}
    assert total.get().id == 2**40 + 1
    assert average.get() == (3 + 2**40) / 2


def test_values_of_several_versions_are_read_at_once(job: LivingJob) -> None:
    """Old rows stay as they are until they are written again: in the log, in snapshots, in the store."""
    types = ["a int", "a int, b string", "b string, a bigint", "a bigint", "a bigint, b string", "a bigint, b string"]
    defaults: list[dict[str, Any]] = [{}, {"b": "first"}, {}, {}, {}, {"b": "too late"}]
    for i, (ddl, given) in enumerate(zip(types, defaults, strict=True)):
        (state,) = redeploy(job, ValueStateDescriptor("v", ddl, defaults=given))
        job.set_key("abcdef"[i])
        state.update({name.split()[0]: i if name.split()[0] == "a" else f"own {i}" for name in ddl.split(", ")})
        job.step()
    final = ValueStateDescriptor("v", types[-1])
    (state,) = redeploy(job, final)
    expected = [(0, None), (1, None), (2, None), (3, None), (4, "own 4"), (5, "own 5")]
    assert values(final, job, "abcdef") == expected, "b was dropped on the way, and is empty where it was not set since"
    assert sorted(job.backend.get_keys("v")) == list("abcdef")


def test_what_was_tried_and_rolled_back_never_was(job: LivingJob) -> None:
    """A version that no committed batch had leaves nothing behind, in memory as on disk."""
    old, new = ValueStateDescriptor("v", "a int, b int"), ValueStateDescriptor("v", "a bigint, c string")
    job.at("k", old).update((1, 2))
    job.step()
    for _ in range(2):
        (state,) = redeploy(job, new)
        job.set_key("k")
        assert as_tuples(state.value()) == (1, None)
        state.update((2**40, "x"))
        (state,) = redeploy(job, old)
        job.set_key("k")
        assert as_tuples(state.value()) == (1, 2)
    job.at("l", old).update((3, 4))
    job.step()
    assert [schema.version for schema in job.backend.schemas] == [0]
    assert values(old, job, "kl") == [(1, 2), (3, 4)]


def test_new_states_start_empty_and_removed_ones_are_kept(job: LivingJob) -> None:
    old, new = ValueStateDescriptor("old", "a int"), ValueStateDescriptor("new", "a int")
    job.at("k", old).update((1,))
    (state,) = restart(job, new)
    job.set_key("k")
    assert state.value() is None
    state.update((2,))
    job.step()
    (state,) = restart(job, new)
    job.set_key("k")
    assert as_tuples(state.value()) == (2,)
    (state,) = restart(job, ValueStateDescriptor("old", "a bigint"))
    job.set_key("k")
    assert as_tuples(state.value()) == (1,), "nobody asked for it in three deployments"


@pytest.mark.parametrize(
    "wrong",
    [
        ValueStateDescriptor("v", "a string, b int"),
        ValueStateDescriptor("v", "bigint"),
        ValueStateDescriptor("v", "other int"),
        ListStateDescriptor("v", "a int, b int"),
        MapStateDescriptor("v", "string", "a int, b int"),
    ],
    ids=lambda d: f"{d.kind} {d.stored_type}",
)
def test_an_incompatible_change_is_refused_and_the_old_code_goes_on(job: LivingJob, wrong: StateDescriptor) -> None:
    right = ValueStateDescriptor("v", "a int, b int")
    job.at("k", right).update((1, 2))
    job.step()
    with pytest.raises(IncompatibleError, match="'v' is stored as value of 1:row<a:int,b:int>") as caught:
        redeploy(job, wrong)
    assert caught.value.context["operator"] == "counter"
    (state,) = redeploy(job, right)
    job.set_key("k")
    assert as_tuples(state.value()) == (1, 2)


def test_the_type_of_map_keys_never_changes(job: LivingJob) -> None:
    job.at("k", MapStateDescriptor("m", "int", "int")).put(1, 1)
    job.step()
    with pytest.raises(IncompatibleError, match=r"the type of map keys cannot change.*another name"):
        redeploy(job, MapStateDescriptor("m", "bigint", "int", migrate=lambda value: value))


def test_a_type_changes_only_before_a_key_is_current(job: LivingJob) -> None:
    """Otherwise some partitions would have the new version and others not."""
    job.at("k", ValueStateDescriptor("v", "a int")).update((1,))
    job.step()
    redeploy(job)
    with pytest.raises(InvalidRequestError, match=r"ask for it in open\(\)"):
        job.at("k", ValueStateDescriptor("v", "a bigint"))
    assert as_tuples(job.at("k", ValueStateDescriptor("v", "a int")).value()) == (1,)


MIGRATED: list[tuple[Callable[..., StateDescriptor], Any, Any, str]] = [
    (lambda kind, **more: ValueStateDescriptor("s", kind, **more), "update", "value", "12"),
    (lambda kind, **more: ListStateDescriptor("s", kind, **more), "add", "get", ["12"]),
    (lambda kind, **more: ReducingStateDescriptor("s", max, kind, **more), "add", "get", "12"),
    (lambda kind, **more: AggregatingStateDescriptor("s", Longest(), kind, **more), "add", "get", "12"),
]


class Longest(Average):
    """Keeps the last value, whatever its type."""

    def create_accumulator(self) -> Any:
        return ""

    def add(self, value: Any, accumulator: Any) -> Any:
        return value

    def get_result(self, accumulator: Any) -> Any:
        return accumulator


@pytest.mark.parametrize(
    ("make", "write", "read", "expected"), MIGRATED, ids=["value", "list", "reducing", "aggregating"]
)
def test_a_function_migrates_what_does_not_evolve(
    job: LivingJob, make: Callable[..., StateDescriptor], write: str, read: str, expected: Any
) -> None:
    for i in range(12):
        getattr(job.at(f"other {i}", make("int")), write)(100 + i)
    getattr(job.at("k", make("int")), write)(12)
    job.step()
    (state,) = redeploy(job, make("string", migrate=str))
    job.set_key("k")
    assert as_tuples(getattr(state, read)()) == expected
    getattr(job.at("new", make("string")), write)("x")
    (state,) = restart(job, make("string"))
    job.set_key("k")
    assert as_tuples(getattr(state, read)()) == expected, "the function is not needed any more"
    assert len(list(job.backend.get_keys("s"))) == 14


def test_a_function_migrates_the_values_of_a_map(job: LivingJob) -> None:
    job.at("k", MapStateDescriptor("m", "int", "int")).put_all({1: 10, 2: None, 3: 30})
    job.at("l", MapStateDescriptor("m", "int", "int")).put(1, 11)
    job.step()
    (state,) = redeploy(job, MapStateDescriptor("m", "int", "string", migrate=lambda n: f"#{n}"))
    job.set_key("k")
    state.remove(3)
    (state,) = restart(job, MapStateDescriptor("m", "int", "string"))
    job.set_key("k")
    assert dict(state.items()) == {1: "#10", 2: None}
    job.set_key("l")
    assert dict(state.items()) == {1: "#11"}


def test_a_rename_is_a_migration_because_by_name_it_would_lose_the_field(job: LivingJob) -> None:
    job.at("k", ValueStateDescriptor("v", "id int, label string")).update((1, "x"))
    job.step()
    renamed = ValueStateDescriptor("v", "id int, name string")
    renamed.enable_migration(lambda old: Row(id=old.id, name=old.label), from_type="id int, label string")
    redeploy(job, renamed)
    assert values(renamed, job, "k") == [(1, "x")]
    grown = ValueStateDescriptor("v", "id bigint, name string")
    grown.enable_migration(lambda old: Row(id=old.id, name=old.label), from_type="id int, label string")
    restart(job, grown)
    assert values(grown, job, "k") == [(1, "x")], "the function is for another type: this change is automatic"


def test_a_migration_that_was_dropped_is_made_again(job: LivingJob) -> None:
    job.at("k", ValueStateDescriptor("v", "int")).update(1)
    job.step()
    migrated = ValueStateDescriptor("v", "string", migrate=str)
    for end in (job.drop, lambda: redeploy(job, migrated)):
        (state,) = redeploy(job, migrated)
        job.set_key("k")
        state.update("lost")
        end()
    assert values(migrated, job, "k") == ["1"]
    (state,) = redeploy(job, ValueStateDescriptor("v", "int"))
    job.set_key("k")
    assert state.value() == 1
    redeploy(job, migrated)
    job.drop()
    job.step()
    after = ValueStateDescriptor("v", "string")
    redeploy(job, after)
    assert values(after, job, "k") == ["1"]


@pytest.mark.parametrize("result", [None, 5])
def test_what_a_migration_returns_must_fit(job: LivingJob, result: Any) -> None:
    job.at("k", ValueStateDescriptor("v", "int")).update(1)
    job.step()
    with pytest.raises(InvalidRequestError, match=r"'v'.*migrate"):
        redeploy(job, ValueStateDescriptor("v", "string", migrate=lambda _: result))
    (state,) = redeploy(job, ValueStateDescriptor("v", "int"))
    job.set_key("k")
    assert state.value() == 1


def test_versions_go_on_beyond_what_a_stored_value_can_count(job: LivingJob) -> None:
    types = ["a int", "a int, b int"]
    job.at("k", ValueStateDescriptor("v", types[0])).update((7,))
    job.commit()
    for i in range(1, 127):
        job.redeploy()
        job.handle(ValueStateDescriptor("v", types[i % 2]))
        job.commit()
    with pytest.raises(IncompatibleError, match="more than 127 versions"):
        redeploy(job, ValueStateDescriptor("v", types[1]))
    redeploy(job, ValueStateDescriptor("v", types[1], migrate=lambda row: Row(a=row.a, b=1)))
    for i in range(128, 132):
        restart(job, ValueStateDescriptor("v", types[i % 2]))
    assert values(ValueStateDescriptor("v", types[1]), job, "k") == [(7, None)]
