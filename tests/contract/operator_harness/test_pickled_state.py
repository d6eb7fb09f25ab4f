"""Pickled state is unpickled when the user's function reads it, and at no other time."""

from __future__ import annotations

import os
from typing import Any

import pytest
from pyspark.sql import Row

from tests.counting_harness import BACKENDS
from varve import Types, ValueStateDescriptor
from varve.datastream import KeyedProcessFunction, RuntimeContext
from varve.testing import OperatorHarness

VARIABLE = "VARVE_TEST_UNPICKLED"


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
