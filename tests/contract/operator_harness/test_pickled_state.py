"""Pickled state is unpickled when the user's function reads it, and at no other time."""

from __future__ import annotations

import os
from typing import Any

import pytest
from pyspark.sql import Row

from tests.jobs.counting_harness import BACKENDS
from varvite import ListStateDescriptor, Types, ValueStateDescriptor
from varvite.datastream import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedProcessFunction,
    RuntimeContext,
)
from varvite.storage.errors import IncompatibleError, InvalidRequestError, UserFunctionError
from varvite.testing import OperatorHarness

VARIABLE = "VARVITE_TEST_UNPICKLED"


def note() -> str:
    """Something was unpickled."""
    os.environ[VARIABLE] = "yes"
    return "harmless"


class Bomb:
    """Goes off when it is unpickled."""

    def __reduce__(self) -> Any:
        return note, ()


class Keep(KeyedProcessFunction[str, Row, Any]):
    """Keeps something dangerous, and looks at it when it is told to."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.kept = runtime_context.get_state(ValueStateDescriptor("kept", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Any:
        if value.v:
            self.kept.value()
        else:
            self.kept.update(Bomb())
        yield value.v


@pytest.mark.parametrize("backend", sorted(BACKENDS))
def test_only_a_read_unpickles(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "no")
    harness = OperatorHarness.of_function(Keep(), "k", "k string, v bigint", "v bigint", backend=BACKENDS[backend])
    with harness:
        for round_number in range(3):
            harness.process_batch([(f"{key}", 0) for key in range(round_number, round_number + 8)])
            harness.materialize()
            harness.crash()  # the next batch restores
        assert os.environ[VARIABLE] == "no"
        harness.process_element(("1", 1))
    assert os.environ[VARIABLE] == "yes"


class KeepInList(KeyedProcessFunction[str, Row, Any], CheckpointedFunction):
    """The same in a list of the instance."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.kept = store.get_list_state(ListStateDescriptor("kept", Types.PICKLED_BYTE_ARRAY()))

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """It is there."""

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Any:
        self.kept.add(Bomb())
        yield value.v


NONE: dict[str, Any] = {"options": {"pipeline.generic-types": "false"}}


@pytest.mark.parametrize("function", [Keep, KeepInList])
def test_a_declared_state_is_refused_before_any_element(function: Any) -> None:
    with (
        OperatorHarness.of_function(function(), "k", "k string, v bigint", "v bigint", **NONE) as harness,
        pytest.raises(UserFunctionError) as caught,
    ):
        harness.process_element(("a", 0))
    assert isinstance(caught.value.__cause__, InvalidRequestError)
    assert "'kept' is declared as" in str(caught.value.__cause__)


@pytest.mark.parametrize("function", [Keep, KeepInList])
@pytest.mark.parametrize("backend", sorted(BACKENDS))
def test_a_stored_state_is_refused_and_nothing_unpickled(
    function: Any, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "no")
    with OperatorHarness.of_function(
        function(), "k", "k string, v bigint", "v bigint", backend=BACKENDS[backend]
    ) as harness:
        harness.process_batch([("a", 0), ("b", 0)])
        harness.materialize()
        snapshot = harness.snapshot()
    with (
        OperatorHarness.restore(snapshot, **NONE) as harness,
        pytest.raises(IncompatibleError, match="'kept' is stored"),
    ):
        harness.process_element(("a", 1))
    assert os.environ[VARIABLE] == "no"
