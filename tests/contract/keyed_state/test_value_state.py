"""Conformance of `ValueState` (see conftest.py for the ways of life)."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from tests.jobs.living_job import VALUE, LivingJob
from varvite.changelog.api.descriptors import ValueStateDescriptor
from varvite.changelog.row import Row
from varvite.changelog.types.factory import Types
from varvite.storage.errors import InvalidRequestError


def test_value_state(job: LivingJob) -> None:
    assert job.at("a", VALUE).value() is None
    job.at("a", VALUE).update("1")
    job.at("b", VALUE).update("2")
    job.step()
    assert [job.at(key, VALUE).value() for key in "abc"] == ["1", "2", None]
    job.at("a", VALUE).update("u1")
    job.at("a", VALUE).update("u2")
    job.at("c", VALUE).update("")
    job.step()
    assert [job.at(key, VALUE).value() for key in "abc"] == ["u2", "2", ""]
    job.at("b", VALUE).clear()
    job.at("never", VALUE).clear()
    job.step()
    assert [job.at(key, VALUE).value() for key in ("a", "b", "never")] == ["u2", None, None]


def test_updating_a_value_to_none_removes_it(job: LivingJob) -> None:
    job.at("a", VALUE).update("1")
    job.step()
    job.at("a", VALUE).update(None)
    assert job.at("a", VALUE).value() is None
    job.step()
    assert job.at("a", VALUE).value() is None
    job.at("a", VALUE).update("again")
    job.step()
    assert job.at("a", VALUE).value() == "again"


def test_falsy_values_are_values(job: LivingJob) -> None:
    for name, kind, value in (("n", "int", 0), ("s", "string", ""), ("f", "double", 0.0), ("b", "boolean", False),
                              ("l", "array<int>", []), ("m", "map<int,int>", {}), ("y", "binary", b"")):  # fmt: skip
        job.at("k", ValueStateDescriptor(name, kind)).update(value)
    job.step()
    assert job.at("k", ValueStateDescriptor("n", "int")).value() == 0
    assert job.at("k", ValueStateDescriptor("l", "array<int>")).value() == []
    assert job.at("k", ValueStateDescriptor("m", "map<int,int>")).value() == {}
    assert job.at("k", ValueStateDescriptor("b", "boolean")).value() is False
    assert job.at("k", ValueStateDescriptor("y", "binary")).value() == b""


def test_a_value_put_and_removed_in_one_batch_is_gone(job: LivingJob) -> None:
    job.at("a", VALUE).update("old")
    job.step()
    job.at("a", VALUE).update("new")
    job.at("a", VALUE).clear()
    job.at("b", VALUE).clear()
    job.at("b", VALUE).update("kept")
    job.step()
    assert [job.at(key, VALUE).value() for key in "ab"] == [None, "kept"]


VALUES: list[tuple[str, Any, Any]] = [
    ("row", Types.ROW_NAMED(["id", "tag"], ["bigint", "string"]), Row(id=5, tag=None)),
    ("tuple", Types.TUPLE([Types.LONG(), Types.DOUBLE()]), (1, -0.5)),
    ("nested", Types.LIST(Types.ROW(["int", Types.MAP("string", "int")])), [Row(f0=1, f1={"a": None}), None]),
    ("instant", Types.INSTANT(), datetime(2024, 3, 31, 1, 30, tzinfo=timezone(timedelta(hours=1)))),
    ("big", Types.BIG_INT(), -(2**200)),
    ("pickled", Types.PICKLED_BYTE_ARRAY(), {"any": {1, 2}}),
    ("nan", Types.DOUBLE(), math.inf),
]


@pytest.mark.parametrize(("name", "kind_of_value", "value"), VALUES)
def test_values_of_many_types(job: LivingJob, name: str, kind_of_value: Any, value: Any) -> None:
    descriptor = ValueStateDescriptor(name, kind_of_value)
    job.at("k", descriptor).update(value)
    job.step()
    assert job.at("k", descriptor).value() == value
    assert type(job.at("k", descriptor).value()) is type(value) or isinstance(value, Row)


def test_instants_come_back_in_utc(job: LivingJob) -> None:
    descriptor = ValueStateDescriptor("at", "timestamp")
    job.at("k", descriptor).update(datetime(2024, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))))
    job.step()
    assert job.at("k", descriptor).value().tzinfo is UTC
    assert job.at("k", descriptor).value().hour == 0


def test_changing_a_returned_object_changes_no_state(job: LivingJob) -> None:
    descriptor = ValueStateDescriptor("list", Types.LIST("int"))
    given = [1, 2]
    job.at("k", descriptor).update(given)
    given.append(3)
    job.at("k", descriptor).value().append(4)
    job.step()
    assert job.at("k", descriptor).value() == [1, 2]
    job.at("k", descriptor).value().append(5)
    job.step()
    assert job.at("k", descriptor).value() == [1, 2]


def test_a_value_that_does_not_fit_is_refused_by_name(job: LivingJob) -> None:
    descriptor = ValueStateDescriptor("count", Types.LONG())
    job.at("k", descriptor).update(2**63 - 1)
    for wrong in (2**63, -(2**63) - 1, "1", 1.0, True):
        with pytest.raises(InvalidRequestError, match="state 'count'"):
            job.at("k", descriptor).update(wrong)
    job.step()
    assert job.at("k", descriptor).value() == 2**63 - 1
