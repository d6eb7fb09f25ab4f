"""Which schema the differences of two checkpoints are shown in."""

from __future__ import annotations

from typing import Any

import pytest

from varve import Types, ValueStateDescriptor
from varve.changelog.state_diff import diff_checkpoints, shown, states_of
from varve.changelog.state_reader import StateReader
from varve.datastream import DataStream, KeyedProcessFunction, RuntimeContext
from varve.testing import OperatorHarness

FIELDS = {"a": 1, "b": 2, "c": 3}


class Rows(KeyedProcessFunction):
    """Keeps a row with these fields, which stand for themselves."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def open(self, runtime_context: RuntimeContext) -> None:
        kind = Types.ROW_NAMED(self.names, [Types.LONG()] * len(self.names))
        self.row = runtime_context.get_state(ValueStateDescriptor("row", kind))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        self.row.update({name: FIELDS[name] for name in self.names})


def rows(names: list[str]) -> Any:
    def build(stream: DataStream) -> DataStream:
        return stream.key_by("k").process(Rows(names), "k string", uid="rows")

    return build


@pytest.mark.parametrize("names", [["b", "a"], ["b", "a", "c"]])
@pytest.mark.parametrize("newer_first", [False, True])
def test_checkpoints_are_compared_at_the_newer_schema_in_either_order(names: list[str], newer_first: bool) -> None:
    """With the newer one as `before` values stood under other fields' names, or the comparison failed."""
    with OperatorHarness(rows(["a", "b"]), "k string", parallelism=1, changelog=True) as harness:
        harness.process_batch([("old",)])
        snapshot = harness.snapshot()
    with OperatorHarness.restore(snapshot, build=rows(names)) as harness:
        harness.process_batch([("new",)])
        store = harness._job._store
        readers = [StateReader(store, "batch:0", pin=False), StateReader(store, pin=False)]
        assert [reader.state("row", "rows").version for reader in readers] == [0, 1]
        if newer_first:
            readers.reverse()
        before, after = readers
        [columns] = states_of(before, after, "rows", None)
        found = [(one.change, shown(columns, one)) for one in diff_checkpoints(before, after)]
    value = {name: FIELDS[name] for name in names}
    change, old, new = ("removed", value, None) if newer_first else ("added", None, value)
    assert found == [(change, {"key": "new", "map_key": None, "before": old, "after": new})]
