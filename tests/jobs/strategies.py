"""Hypothesis strategies for the types of keyed state and their values."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import cache
from typing import Any

from hypothesis import strategies as st

from varvite.changelog.row import make_row, row_class
from varvite.changelog.types import basic, decimals, times
from varvite.changelog.types import collections as collection
from varvite.changelog.types.composites import RowType, TupleType
from varvite.changelog.types.factory import Types, as_type
from varvite.changelog.types.wire import WireType

ZONES = (UTC, timezone(timedelta(hours=2)), timezone(timedelta(hours=-9, minutes=-30)))

SIMPLE_TYPES: tuple[WireType, ...] = tuple(
    as_type(kind)
    for kind in (
        Types.BOOLEAN(), Types.BYTE(), Types.SHORT(), Types.INT(), Types.LONG(), Types.FLOAT(), Types.DOUBLE(),
        Types.STRING(), Types.CHAR(), Types.BINARY(), Types.BIG_INT(), Types.DECIMAL(10, 2), Types.DECIMAL(38, 0),
        Types.INSTANT(), Types.SQL_DATE(), Types.SQL_TIME(), Types.SQL_TIMESTAMP(),
    )
)  # fmt: skip
"""Hashable types without parts."""
ARRAYS_OF = {
    collection.PrimitiveArrayType: [Types.BOOLEAN(), Types.INT(), Types.LONG(), Types.DOUBLE(), Types.CHAR()],
    collection.BasicArrayType: [Types.STRING(), Types.LONG(), Types.FLOAT()],
}

_names = st.text(min_size=1, max_size=4) | st.sampled_from(["a", "b", "count", "index", "as_dict", "a b", "`", "_x"])


def _composites(parts: st.SearchStrategy[WireType]) -> st.SearchStrategy[WireType]:
    several = st.lists(parts, min_size=1, max_size=5)
    return several.map(TupleType) | several.flatmap(
        lambda types: st.lists(_names, min_size=len(types), max_size=len(types), unique=True).map(
            lambda names: RowType(names, types)
        )
    )


def hashable_types(depth: int = 2) -> st.SearchStrategy[WireType]:
    """Types that may be those of keys, composites nested up to `depth`."""
    simple = st.sampled_from(SIMPLE_TYPES)
    return simple if not depth else _one_kind_of([simple, simple, _composites(hashable_types(depth - 1))])


def _one_kind_of(kinds: list[st.SearchStrategy[WireType]]) -> st.SearchStrategy[WireType]:
    """One of these; unlike `one_of` it does not count the parts of a nested choice as choices of its own."""
    return st.sampled_from(range(len(kinds))).flatmap(kinds.__getitem__)


def any_types(depth: int = 2) -> st.SearchStrategy[WireType]:
    """All types, nested up to `depth`; each kind about as often as any other."""
    arrays = [
        st.sampled_from(elements).map(lambda element, array=array: array(as_type(element)))  # type: ignore[misc]
        for array, elements in ARRAYS_OF.items()
    ]
    others = st.sampled_from([as_type(Types.BIG_DEC()), as_type(Types.PICKLED_BYTE_ARRAY())])
    flat = [st.sampled_from(SIMPLE_TYPES), others, *arrays]
    if not depth:
        return _one_kind_of(flat)
    parts = any_types(depth - 1)
    nested = [
        _composites(hashable_types(depth - 1)),
        _composites(parts),
        parts.map(collection.ListType),
        parts.map(collection.ObjectArrayType),
        st.builds(collection.MapType, hashable_types(depth - 1), parts),
    ]
    return _one_kind_of([*flat, *nested])


@cache
def values_of(kind: WireType) -> st.SearchStrategy[Any]:  # noqa: PLR0911 - one case each
    """Values that a user may pass for this type (never None by itself)."""
    if isinstance(kind, TupleType):
        return st.tuples(*[st.none() | values_of(field) for field in kind.types])
    if isinstance(kind, RowType):
        cls = row_class(kind.names)
        return st.tuples(*[st.none() | values_of(field) for field in kind.types]).map(lambda v: make_row(cls, v))
    if isinstance(kind, collection.PrimitiveArrayType):
        return st.lists(values_of(kind.element), max_size=4)
    if isinstance(kind, collection.SequenceType):
        return st.lists(st.none() | values_of(kind.element), max_size=4)
    if isinstance(kind, collection.MapType):
        return st.dictionaries(values_of(kind.key), st.none() | values_of(kind.value), max_size=4)
    if isinstance(kind, basic.IntegerType):
        return st.integers(-(1 << (kind.bits - 1)), (1 << (kind.bits - 1)) - 1)
    if isinstance(kind, decimals.DecimalType):
        digits = 10**kind.precision - 1
        return st.integers(-digits, digits).map(lambda n: Decimal(f"{n}E-{kind.scale}"))
    return _SIMPLE_VALUES[type(kind)]


_SIMPLE_VALUES: dict[type[WireType], st.SearchStrategy[Any]] = {
    basic.BooleanType: st.booleans(),
    basic.FloatType: st.floats(width=32),
    basic.DoubleType: st.floats(),
    basic.StringType: st.text(max_size=12) | st.text("ab", max_size=3),
    basic.CharType: st.characters(exclude_categories=["Cs"]),
    basic.BinaryType: st.binary(max_size=12),
    decimals.BigIntType: st.integers() | st.integers(-(2**70), 2**70),
    decimals.BigDecimalType: st.decimals(allow_nan=False, allow_infinity=False),
    times.InstantType: st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.sampled_from(ZONES)),  # noqa: DTZ001 - made aware
    times.SqlTimestampType: st.datetimes(),
    times.SqlDateType: st.dates(date.min, date.max),
    times.SqlTimeType: st.times(time.min, time.max),
    collection.PickledType: st.frozensets(st.integers(), max_size=3) | st.complex_numbers(allow_nan=False),
}


@st.composite
def typed_values(draw: st.DrawFn, kinds: st.SearchStrategy[WireType]) -> tuple[WireType, Any]:
    """(type, a value of it)."""
    kind = draw(kinds)
    return kind, draw(values_of(kind))


@st.composite
def typed_columns(draw: st.DrawFn, kinds: st.SearchStrategy[WireType]) -> tuple[WireType, list[Any]]:
    """(type, values of it and None)."""
    kind = draw(kinds)
    return kind, draw(st.lists(st.none() | values_of(kind), max_size=6))
