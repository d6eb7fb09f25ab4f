"""`get_many`, `put_many` and `remove_many` of states with TTL (see conftest.py for the ways of life)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.contract.keyed_state.ttl.states import TTL_MS, ttl, with_config
from tests.jobs.batch_keys import by_key, in_order_of, keys_of
from tests.jobs.living_job import LivingJob
from varvite.changelog.api.descriptors import MapStateDescriptor, ValueStateDescriptor
from varvite.changelog.types.factory import Types
from varvite.storage.errors import InvalidRequestError

CONFIG = ttl().build()
PAIR = with_config(ValueStateDescriptor("pair", Types.ROW_NAMED(["n", "total"], ["bigint", "double"])), CONFIG)
VALUE = with_config(ValueStateDescriptor("value", "string"), CONFIG)
MAP = with_config(MapStateDescriptor("map", "bigint", "string"), CONFIG)


def read(job: LivingJob, keys: list[Any], descriptor: Any = VALUE) -> dict[Any, Any]:
    many = keys_of(keys)
    return by_key(many, job.handle(descriptor).get_many(many))


def put(job: LivingJob, values: dict[Any, Any]) -> None:
    many = keys_of(list(values))
    job.handle(VALUE).put_many(many, pa.array(in_order_of(many, values), pa.string()))


def test_values_of_many_keys_expire(job: LivingJob) -> None:
    keys = [f"k{i}" for i in range(50)]
    put(job, {key: f"v {key}" for key in keys})
    job.step()
    job.move_time(TTL_MS // 2)
    put(job, {key: f"w {key}" for key in keys[:10]} | {keys[20]: None})
    job.handle(VALUE).remove_many(keys_of([keys[30], "none"]))
    job.step()
    job.move_time(TTL_MS - 1)
    expected = {key: ("w " if i < 10 else "v ") + key for i, key in enumerate(keys)} | {keys[20]: None, keys[30]: None}
    assert read(job, keys) == expected
    assert job.at(keys[3], VALUE).value() == f"w {keys[3]}"
    job.step()
    job.move_time(TTL_MS)
    assert read(job, [*keys, "other"]) == dict.fromkeys([*keys, "other"]) | {key: f"w {key}" for key in keys[:10]}


def test_the_current_key_stays_current(job: LivingJob) -> None:
    state = job.at("a", VALUE)
    put(job, {"b": "x", None: "of null"})
    state.update("own")
    assert read(job, ["a", "b", None]) == {"a": "own", "b": "x", None: "of null"}
    assert state.value() == "own"


def test_rows_as_values(job: LivingJob) -> None:
    many = keys_of(["a", "b"])
    kind = PAIR.stored_type
    column = kind.to_arrow([kind.freeze((1, 0.5)), None])
    job.handle(PAIR).put_many(many, column)
    job.step()
    assert job.handle(PAIR).get_many(many).to_pylist() == column.to_pylist()
    job.move_time(TTL_MS)
    assert job.handle(PAIR).get_many(many).null_count == 2


def test_entries_of_many_keys_expire(job: LivingJob) -> None:
    two = keys_of(["a", "b"])
    at = {key: i for i, key in enumerate(two.stored)}
    many, map_keys = two.take([at["a"], at["a"], at["b"]]), pa.array([1, 2, 1])
    job.handle(MAP).put_many(many, map_keys, pa.array(["x", None, "z"]))
    job.step()
    job.move_time(TTL_MS // 2)
    state = job.at("b", MAP)
    assert job.handle(MAP).get_many(many, map_keys).to_pylist() == ["x", None, "z"]
    assert dict(job.at("a", MAP).items()) == {1: "x", 2: None}
    job.set_key("b")
    state.put(1, "later")
    job.step()
    job.move_time(TTL_MS)
    assert job.handle(MAP).get_many(many, map_keys).to_pylist() == [None, None, "later"]
    job.handle(MAP).remove_many(many, map_keys)
    assert job.handle(MAP).get_many(many, map_keys).null_count == 3


def test_what_does_not_fit_is_refused(job: LivingJob) -> None:
    many = keys_of(["a", "b"])
    with pytest.raises(InvalidRequestError, match="'value'"):
        job.handle(VALUE).put_many(many, pa.array(["only one"]))
    for call in (job.handle(VALUE).get_many, job.handle(VALUE).remove_many):
        with pytest.raises(InvalidRequestError, match="'value'"):
            call(["a", "b"])
    with pytest.raises(InvalidRequestError, match="'map'"):
        job.handle(MAP).get_many(many, pa.array([1, None]))
