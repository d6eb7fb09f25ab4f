"""Conformance of the methods for many keys at once, alone and mixed with those for one key (see conftest.py)."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.jobs.batch_keys import by_key, in_order_of, keys_of
from tests.jobs.living_job import MAP, VALUE, LivingJob
from varvite.changelog.api.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from varvite.changelog.types.factory import Types
from varvite.storage.errors import InvalidRequestError

PAIR = ValueStateDescriptor("pair", Types.ROW_NAMED(["n", "total"], ["bigint", "double"]))


def read(job: LivingJob, keys: list[Any], descriptor: Any = VALUE) -> dict[Any, Any]:
    """Answer of `get_many` for these keys."""
    many = keys_of(keys)
    return by_key(many, job.handle(descriptor).get_many(many))


def put(job: LivingJob, values: dict[Any, Any], descriptor: Any = VALUE) -> None:
    many = keys_of(list(values))
    kind = descriptor.stored_type
    stored = [None if value is None else kind.freeze(value) for value in in_order_of(many, values)]
    job.handle(descriptor).put_many(many, kind.to_arrow(stored))


def test_many_values(job: LivingJob) -> None:
    keys = [f"k{i}" for i in range(200)]
    assert set(read(job, keys).values()) == {None}
    put(job, {key: f"v {key}" for key in keys})
    job.step()
    assert read(job, [*keys, "other"]) == {**{key: f"v {key}" for key in keys}, "other": None}
    put(job, {key: f"w {key}" for key in keys[::3]})
    job.step()
    expected = {key: ("w " if i % 3 == 0 else "v ") + key for i, key in enumerate(keys)}
    assert read(job, keys) == expected
    assert read(job, ["k3", "none", "k4"]) == {"k3": "w k3", "none": None, "k4": "v k4"}
    many = keys_of(keys[:50])
    job.handle(VALUE).remove_many(many)
    job.step()
    assert read(job, keys) == {key: None if i < 50 else expected[key] for i, key in enumerate(keys)}
    assert sorted(job.backend.get_keys("value")) == sorted(keys[50:])


def test_null_is_a_key_and_a_null_value_removes(job: LivingJob) -> None:
    put(job, {None: "of null", "a": "1", "b": "2"})
    job.step()
    put(job, {None: "again", "a": None})
    job.step()
    assert read(job, [None, "a", "b"]) == {None: "again", "a": None, "b": "2"}
    assert job.at(None, VALUE).value() == "again"


def test_the_methods_for_one_key_see_what_those_for_many_wrote(job: LivingJob) -> None:
    put(job, {"a": "1", "b": "2", "c": "3"})
    assert job.at("a", VALUE).value() == "1"
    job.at("b", VALUE).update("two")
    job.at("c", VALUE).clear()
    assert read(job, ["a", "b", "c"]) == {"a": "1", "b": "two", "c": None}
    job.step()
    assert [job.at(key, VALUE).value() for key in "abc"] == ["1", "two", None]
    job.at("a", VALUE).update("one")
    put(job, {"b": "II", "c": "III"})
    job.at("c", VALUE).update("drei")
    job.step()
    assert read(job, ["a", "b", "c"]) == {"a": "one", "b": "II", "c": "drei"}


def test_what_was_set_between_two_batches_of_many_keys_is_seen(job: LivingJob) -> None:
    put(job, {"a": "1", "b": "2", "c": "3"})
    job.step()
    job.at("a", VALUE).update("one")
    job.at("b", VALUE).clear()
    job.step()
    assert read(job, ["a", "b", "c"]) == {"a": "one", "b": None, "c": "3"}
    put(job, {"a": "I", "c": None})
    job.step()
    assert read(job, ["a", "b", "c", "d"]) == {"a": "I", "b": None, "c": None, "d": None}


def test_a_second_put_of_a_batch_wins(job: LivingJob) -> None:
    many = keys_of(["a", "b", "a"])
    state = job.handle(VALUE)
    assert len(many) == 2
    state.put_many(many, pa.array(["1", "1"]))
    state.put_many(many, pa.array(["2", "2"]))
    others = keys_of(["b", "c", "d"])
    state.put_many(others.filter(pa.array([key in "bc" for key in others.stored])), pa.array(["3", "3"]))
    job.step()
    assert read(job, ["a", "b", "c", "d"]) == {"a": "2", "b": "3", "c": "3", "d": None}
    repeated = keys_of(["a"]).take([0, 0])
    job.handle(VALUE).put_many(repeated, pa.array(["x", "y"]))
    job.step()
    assert read(job, ["a"]) == {"a": "y"}


def test_columns_of_rows(job: LivingJob) -> None:
    put(job, {"a": (1, -0.0), "b": (2, math.nan), "c": (None, None)}, PAIR)
    job.step()
    found = read(job, ["a", "b", "c", "d"], PAIR)
    assert math.copysign(1, found["a"]["total"]) == 1
    assert math.isnan(found["b"]["total"])
    assert (found["c"], found["d"]) == ({"n": None, "total": None}, None)
    assert tuple(job.at("a", PAIR).value()) == (1, 0.0)


VALUES: list[tuple[str, Any, list[Any]]] = [
    ("boolean", "boolean", [True, False]),
    ("byte", "tinyint", [-128, 127]),
    ("decimal", "decimal(38,4)", [Decimal("-1.5000"), Decimal(10**33)]),
    ("binary", "binary", [b"", b"\x00\xff"]),
    ("date", "date", [date(1, 1, 1), date(9999, 12, 31)]),
    ("instant", "timestamp", [datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)]),
    ("wall clock", "timestamp_ntz", [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)]),  # noqa: DTZ001
    ("float", "float", [0.5, -math.inf]),
    ("tuple", Types.TUPLE(["string", Types.TUPLE(["int", "double"])]), [("a", (1, 0.5)), (None, None)]),
]


@pytest.mark.parametrize(("name", "kind_of_value", "values"), VALUES)
def test_values_of_many_types(job: LivingJob, name: str, kind_of_value: Any, values: list[Any]) -> None:
    descriptor = ValueStateDescriptor(name, kind_of_value)
    put(job, {"a": values[0], "b": values[1]}, descriptor)
    job.step()
    assert [job.at(key, descriptor).value() for key in "ab"] == values
    many = keys_of(["a", "b"])
    column = job.handle(descriptor).get_many(many)
    assert column.type == descriptor.stored_type.arrow_type
    assert sorted(descriptor.stored_type.from_arrow(column), key=repr) == sorted(values, key=repr)


def test_many_entries(job: LivingJob) -> None:
    job.at("a", MAP).put_all({1: "1", 2: "2"})
    job.step()
    job.at("a", MAP).remove(2)
    pairs = keys_of(["a", "b"])
    at = {key: position for position, key in enumerate(pairs.stored)}
    keys = pairs.take([at["a"], at["a"], at["a"], at["b"]])
    numbers = pa.array([1, 2, 3, 1])
    state = job.handle(MAP)
    assert state.get_many(keys, numbers).to_pylist() == ["1", None, None, None]
    state.put_many(keys, numbers, pa.array(["one", "two", None, "b one"]))
    assert state.get_many(keys, numbers).to_pylist() == ["one", "two", None, "b one"]
    job.step()
    assert job.at("a", MAP).contains(3)
    assert sorted(job.at("a", MAP).items()) == [(1, "one"), (2, "two"), (3, None)]
    state = job.handle(MAP)
    state.remove_many(keys, numbers)
    job.at("b", MAP).put(9, "9")
    assert state.get_many(keys, numbers).null_count == 4
    job.step()
    assert (job.at("a", MAP).is_empty(), job.at("b", MAP).items()) == (True, [(9, "9")])
    job.at("b", MAP).clear()
    assert job.handle(MAP).get_many(pairs.take([at["b"]]), pa.array([9])).null_count == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda job: job.handle(VALUE).get_many(["a"]), "ctx.keys"),
        (lambda job: job.handle(VALUE).put_many(keys_of(["a"]), ["x"]), "Arrow array"),
        (lambda job: job.handle(VALUE).put_many(keys_of(["a"]), pa.array(["x", "y"])), "2 values for 1 keys"),
        (lambda job: job.handle(PAIR).put_many(keys_of(["a"]), pa.array(["x"])), "struct array"),
        (lambda job: job.handle(MAP).put_many(keys_of(["a"]), pa.array([None], pa.int64()), pa.array(["x"])), "null"),
        (lambda job: job.handle(MAP).get_many(keys_of(["a"]), pa.array(["x"])), "map keys of state 'map'"),
        (lambda job: job.handle(ValueStateDescriptor("l", "array<int>")).get_many(keys_of(["a"])), "opaque bytes"),
        (lambda job: put_column(job, "int", pa.array([2**40])), "state 'v'"),
        (lambda job: put_column(job, "date", pa.array([2**31 - 1], pa.int32()).cast(pa.date32())), "years 1 to 9999"),
        (lambda job: put_column(job, "timestamp", pa.array([2**62], pa.timestamp("us", "UTC"))), "of the years"),
        (lambda job: put_column(job, Types.CHAR(), pa.array(["ab"])), "one character"),
        (lambda job: keys_of(["a"]).take([1]), "positions"),
        (lambda job: keys_of(["a"]).filter([True, False]), "mask"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_and_changes_nothing(job: LivingJob, call: Any, message: str) -> None:
    put(job, {"a": "1"})
    job.step()
    with pytest.raises(InvalidRequestError, match=message):
        call(job)
    job.step()
    assert read(job, ["a"]) == {"a": "1"}


def test_map_keys_of_one_day_do_not_become_one_entry(job: LivingJob) -> None:
    days = MapStateDescriptor("days", Types.SQL_DATE(), "bigint")
    column = pa.array([datetime(2020, 1, 1, hour) for hour in (5, 6)])  # noqa: DTZ001 - what has no zone
    with pytest.raises(InvalidRequestError, match="the map keys of state 'days' takes values of type sql_date"):
        job.handle(days).put_many(keys_of(["a"]).take([0, 0]), column, pa.array([1, 2]))
    assert job.at("a", days).is_empty()


def put_column(job: LivingJob, kind: Any, column: Any) -> None:
    job.handle(ValueStateDescriptor("v", kind)).put_many(keys_of(["a"]), column)


def test_other_states_go_on_beside_columns(job: LivingJob) -> None:
    """A batch may write one state by column and another by row."""
    items = ListStateDescriptor("items", "string")
    counts = MapStateDescriptor("counts", "string", "bigint")
    for round_ in range(3):
        put(job, {"a": f"{round_}", "b": None if round_ == 1 else "b"})
        job.at("a", items).add(f"{round_}")
        job.at("b", counts).put("n", round_)
        job.step()
    assert read(job, ["a", "b"]) == {"a": "2", "b": "b"}
    assert (job.at("a", items).get(), job.at("b", counts).items()) == (["0", "1", "2"], [("n", 2)])
