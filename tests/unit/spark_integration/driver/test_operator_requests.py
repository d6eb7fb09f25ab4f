"""Schemas that partitions report become one layout, and comes back to them at the next start."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.workers.state_worker_setup import batch_request
from tests.workers.summaries import summary
from varvite.changelog.schema.history import change
from varvite.spark_integration.driver.operator_requests import operator_layout, with_states
from varvite.spark_integration.messages.operator_summaries import OperatorSummaries
from varvite.storage.errors import IncompatibleError
from varvite.storage.format.records import Commit, Link, StateSchema

REQUEST = batch_request().operator
OLD = StateSchema(name="orders", kind="value", value_type="1:row<a:int>")
OTHER = StateSchema(name="a list", kind="list", value_type="1:long")


def changed(stored: StateSchema, value_type: str, *, migrates: bool = False) -> StateSchema:
    wanted = msgspec.structs.replace(stored, value_type=value_type, version=0, earlier=())
    return change(stored, wanted, {}, "count", migrates=migrates).schema


def layout_of(*partitions: tuple[StateSchema, ...]) -> Any:
    summaries = [summary(operator="count", partition=i, states=states) for i, states in enumerate(partitions)]
    return operator_layout(REQUEST, OperatorSummaries.of("count", summaries))


def test_a_layout_has_every_state_of_any_partition_at_its_newest_version() -> None:
    wide = changed(OLD, "1:row<a:long>")
    assert layout_of((OLD, OTHER), (wide,), ()).states == (OTHER, wide)
    assert layout_of((wide,), (OLD,)).states == (wide,)


def test_partitions_that_do_not_agree_are_not_committed() -> None:
    with pytest.raises(IncompatibleError, match="version 1") as caught:
        layout_of((changed(OLD, "1:row<a:long>"),), (changed(OLD, "1:row<a:int,b:int>"),))
    assert caught.value.context["operator"] == "count"
    migrated = changed(OLD, "1:string", migrates=True)
    assert layout_of((migrated,), (migrated,), (OTHER,)).states == (OTHER, migrated)
    with pytest.raises(IncompatibleError, match="some partitions only"):
        layout_of((migrated,), (OLD,))


def test_a_run_begins_with_the_states_of_its_base() -> None:
    layout = layout_of((OLD, OTHER))
    base = Commit(
        seq=2, token="t", job_id="j", epoch=1, parent=Link(0, ""), keep_from=1, batch=0, query_id="q", source_hash="",
        time_ms=0, max_parallelism=8, operators=(layout,), needs_from=1, parts=(), full=Link(2, "t"),
    )  # fmt: skip
    assert with_states(REQUEST, base).states == (OTHER, OLD)
    assert with_states(msgspec.structs.replace(REQUEST, operator="new"), base).states == ()
    assert with_states(with_states(REQUEST, base), None).states == ()
