"""Every type has a readable column, whatever it is nested in, and nothing is unpickled."""

from __future__ import annotations

import datetime as dt
import pickle
from decimal import Decimal
from typing import Any

import pytest

from varvite.changelog.reading.readable_columns import readable_column
from varvite.changelog.row import Row
from varvite.changelog.types.dynamic_key import DynamicKeyType
from varvite.changelog.types.factory import Types, as_type
from varvite.storage.errors import CorruptDataError


class Bomb:
    """Goes off when it is unpickled."""

    def __reduce__(self) -> Any:
        return exec, ("raise AssertionError('unpickled')",)


NOON = dt.time(12, 30, 0, 5)
BIG = 1 << 90
CASES: list[tuple[Any, Any, Any]] = [
    (Types.LONG(), 5, 5),
    (Types.DOUBLE(), 0.5, 0.5),
    (Types.STRING(), "é", "é"),
    (Types.BINARY(), b"\xff", b"\xff"),
    (Types.BIG_INT(), BIG, str(BIG)),
    (Types.BIG_DEC(), Decimal("1.50"), "1.50"),
    (Types.DECIMAL(5, 2), Decimal("1.50"), Decimal("1.50")),
    (Types.SQL_TIME(), NOON, NOON),
    (Types.SQL_DATE(), dt.date(2026, 1, 2), dt.date(2026, 1, 2)),
    (Types.INSTANT(), dt.datetime(2026, 1, 2, tzinfo=dt.UTC), dt.datetime(2026, 1, 2, tzinfo=dt.UTC)),
    (Types.TUPLE(["long", "string"]), (1, None), {"f0": 1, "f1": None}),
    (Types.ROW_NAMED(["a", "b"], ["long", Types.BIG_INT()]), Row(1, BIG), {"a": 1, "b": str(BIG)}),
    (Types.LIST("long"), [1, None, 2], [1, None, 2]),
    (Types.PRIMITIVE_ARRAY("double"), [1.0], [1.0]),
    (Types.MAP("string", Types.LIST("long")), {"a": [1], "b": None}, [("a", [1]), ("b", None)]),
    (Types.LIST(Types.ROW_NAMED(["t"], [Types.SQL_TIME()])), [Row(NOON), None], [{"t": NOON}, None]),
    (Types.TUPLE([Types.LIST("date"), "int"]), ([dt.date(2026, 1, 2)], 1), {"f0": [dt.date(2026, 1, 2)], "f1": 1}),
    (DynamicKeyType(), "a", "a"),
    (DynamicKeyType(), ("a", 1), "('a', 1)"),
]


@pytest.mark.parametrize(("kind", "value", "shown"), CASES, ids=lambda case: str(case)[:40])
def test_a_value_is_shown_as_it_is(kind: Any, value: Any, shown: Any) -> None:
    column = readable_column(kind)
    array = column.to_arrow([kind.freeze(value), None])
    assert array.type == column.arrow_type
    assert array.to_pylist() == [shown, None]
    assert len(column.to_arrow([])) == 0


def test_a_pickled_object_stays_pickled_wherever_it_is() -> None:
    data = pickle.dumps(Bomb(), protocol=5)
    for kind, shown in (
        (Types.PICKLED_BYTE_ARRAY(), data),
        (Types.LIST(Types.PICKLED_BYTE_ARRAY()), [data]),
        (Types.TUPLE(["long", Types.PICKLED_BYTE_ARRAY()]), {"f0": 1, "f1": data}),
    ):
        value = Bomb() if shown == data else [Bomb()] if isinstance(shown, list) else (1, Bomb())
        assert readable_column(kind).to_arrow([as_type(kind).freeze(value)]).to_pylist() == [shown]


def test_damaged_bytes_are_an_error() -> None:
    with pytest.raises(CorruptDataError, match="list<long>"):
        readable_column(Types.LIST("long")).to_arrow([b"\x91"])
