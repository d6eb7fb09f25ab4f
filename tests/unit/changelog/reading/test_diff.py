"""The schema in which differences of two checkpoints are shown."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from varvite import Types, ValueStateDescriptor
from varvite.changelog.operator_state.section import section_of
from varvite.changelog.reading.diff import diff_checkpoints, shown, states_of
from varvite.changelog.reading.operator_state_diff import _differences
from varvite.changelog.reading.operator_state_table import OperatorStateTable, Part
from varvite.changelog.reading.reader import StateReader
from varvite.datastream import DataStream, KeyedProcessFunction, RuntimeContext
from varvite.storage.errors import IncompatibleError
from varvite.testing import OperatorHarness

NAN = float("nan")
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


class Amounts(KeyedProcessFunction):
    """Keeps the value of each element as its key's amount, as a value of this type."""

    def __init__(self, kind: Any, migrate: Any = None) -> None:
        self.kind, self.migrate = kind, migrate

    def open(self, runtime_context: RuntimeContext) -> None:
        self.amount = runtime_context.get_state(ValueStateDescriptor("amount", self.kind, migrate=self.migrate))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        self.amount.update(value[1])


def amounts(kind: Any, migrate: Any = None) -> Any:
    def build(stream: DataStream) -> DataStream:
        keyed = stream.key_by(lambda element: element[0], key_type=Types.STRING())
        return keyed.process(Amounts(kind, migrate), uid="amounts")

    return build


@pytest.mark.parametrize("in_tuple", [False, True])
def test_decimals_that_differ_in_trailing_zeros_alone_have_changed(in_tuple: bool) -> None:
    kind = Types.TUPLE([Types.BIG_DEC(), Types.DOUBLE()]) if in_tuple else Types.BIG_DEC()
    short, long = ((number, NAN) if in_tuple else number for number in (Decimal("1.0"), Decimal("1.00")))
    with OperatorHarness(amounts(kind), parallelism=1, changelog=True) as harness:
        harness.process_batch([("a", short), ("b", short)])
        harness.process_batch([("a", long), ("b", short)])
        before, after = (StateReader(harness._job._store, name, pin=False) for name in ("batch:0", "batch:1"))
        assert [(one.change, one.name) for one in diff_checkpoints(before, after)] == [("changed", ("a",))]


@pytest.mark.parametrize("newer_first", [False, True])
def test_a_state_that_was_migrated_in_between_is_told(newer_first: bool) -> None:
    """It was an error of damaged state, which told to repair it."""
    with OperatorHarness(amounts(Types.LONG()), parallelism=1, changelog=True) as harness:
        harness.process_batch([("a", 1)])
        snapshot = harness.snapshot()
    with OperatorHarness.restore(snapshot, build=amounts(Types.STRING(), str)) as harness:
        harness.process_batch([("a", "2")])
        readers = [StateReader(harness._job._store, name, pin=False) for name in ("batch:0", None)]
        before, after = reversed(readers) if newer_first else readers
        with pytest.raises(IncompatibleError, match="'amount' was migrated between the two checkpoints"):
            list(diff_checkpoints(before, after))


def test_nan_in_non_keyed_state_has_not_changed() -> None:
    def section(name: str, kind: Any, *rows: Any, **types: Any) -> OperatorStateTable:
        found = section_of(name, kind, rows, Types.DOUBLE().type_string(), **types)
        assert found is not None
        return OperatorStateTable(name, kind, (Part(0, found),))

    nan, one = (Types.DOUBLE().to_wire(value) for value in (NAN, 1.0))
    key = Types.STRING().to_wire("k")
    tables = [
        section("rates", "broadcast", (key, nan), map_key_type=Types.STRING().type_string()),
        section("seen", "list", nan, one),
    ]
    for table in tables:
        assert list(_differences("op", table.name, table, table)) == []
    other = section("seen", "list", one, nan)
    assert [one.change for one in _differences("op", "seen", tables[1], other)] == ["changed"]
