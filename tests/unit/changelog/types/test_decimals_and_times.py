"""Conversions and refusals of the decimal, date and time types."""

# ruff: noqa: DTZ001, DTZ901 - naive values are what some of the types take, and others refuse

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal, localcontext
from typing import Any
from zoneinfo import ZoneInfo

import pandas as pd
import pytest

from varvite.changelog.types.factory import Types
from varvite.storage.errors import InvalidRequestError

MONEY = Types.DECIMAL(6, 2)


@pytest.mark.parametrize(
    ("given", "stored"),
    [(Decimal("1.5"), "1.50"), (Decimal("-0.00"), "0.00"), (7, "7.00"), (Decimal("9999.99"), "9999.99"),
     (Decimal("1E+2"), "100.00"), (Decimal("1.5000"), "1.50")],
)  # fmt: skip
def test_decimals_have_the_scale_of_their_type(given: Any, stored: str) -> None:
    assert str(MONEY.freeze(given)) == stored
    assert MONEY.to_wire(MONEY.freeze(given))[1:] == stored.encode()


@pytest.mark.parametrize("wrong", [Decimal("0.001"), Decimal(10000), Decimal("NaN"), Decimal("-Infinity"), 1.5, "1"])
def test_decimals_that_do_not_fit_are_refused(wrong: Any) -> None:
    with pytest.raises(InvalidRequestError):
        MONEY.freeze(wrong)


def test_the_decimal_context_of_the_user_does_not_matter() -> None:
    wide = Types.DECIMAL(38, 2)
    number = Decimal("9" * 36 + ".99")
    with localcontext() as context:
        context.prec = 3
        assert wide.freeze(number) == number
        assert wide.from_wire(wide.to_wire(number)) == number
        assert Types.BIG_DEC().freeze(number) == number


@pytest.mark.parametrize(("precision", "scale"), [(0, 0), (39, 0), (5, 6), (5, -1)])
def test_impossible_decimals_are_refused(precision: int, scale: int) -> None:
    with pytest.raises(InvalidRequestError):
        Types.DECIMAL(precision, scale)


def test_big_decimals_keep_their_digits_and_cannot_be_keys() -> None:
    kind = Types.BIG_DEC()
    for text in ("1.50", "0.00", "1E+400", "-2"):
        assert str(kind.from_wire(kind.to_wire(kind.freeze(Decimal(text))))) == text
    assert str(kind.freeze(Decimal("-0.0"))) == "0.0"
    assert not kind.hashable
    with pytest.raises(InvalidRequestError):
        Types.MAP(kind, "string")


@pytest.mark.parametrize(("number", "size"), [(0, 1), (127, 1), (-128, 1), (128, 2), (-129, 2), (2**64, 9)])
def test_big_integers_are_as_short_as_possible(number: int, size: int) -> None:
    wire = Types.BIG_INT().to_wire(number)
    assert len(wire) == 2 + size
    assert Types.BIG_INT().from_wire(wire) == number


def test_instants_of_all_zones_are_one_instant() -> None:
    kind = Types.INSTANT()
    noon = datetime(2024, 6, 1, 12, tzinfo=UTC)
    others = [noon.astimezone(zone) for zone in (timezone(timedelta(hours=5, minutes=45)), ZoneInfo("Europe/Berlin"))]
    assert {kind.freeze(instant) for instant in [noon, *others]} == {noon}
    assert all(kind.freeze(instant).tzinfo is UTC for instant in others)
    assert kind.freeze(pd.Timestamp(noon)) == noon
    assert type(kind.freeze(pd.Timestamp(noon))) is datetime


def test_the_repeated_hour_is_two_hours() -> None:
    zone = ZoneInfo("Europe/Berlin")
    first, second = (datetime(2024, 10, 27, 2, 30, tzinfo=zone, fold=fold) for fold in (0, 1))
    assert Types.INSTANT().freeze(second) - Types.INSTANT().freeze(first) == timedelta(hours=1)


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (Types.INSTANT(), datetime(2024, 1, 1)),
        (Types.INSTANT(), date(2024, 1, 1)),
        (Types.INSTANT(), datetime.min.replace(tzinfo=timezone(timedelta(hours=1)))),
        (Types.INSTANT(), pd.Timestamp(1, unit="ns", tz="UTC")),
        (Types.INSTANT(), 0),
        (Types.SQL_TIMESTAMP(), datetime(2024, 1, 1, tzinfo=UTC)),
        (Types.SQL_DATE(), datetime(2024, 1, 1)),
        (Types.SQL_DATE(), "2024-01-01"),
        (Types.SQL_TIME(), time(1, tzinfo=UTC)),
        (Types.SQL_TIME(), timedelta(1)),
    ],
    ids=lambda case: repr(case)[:40].replace(" ", "") + str(type(case).__name__),
)
def test_other_times_are_refused(kind: Any, wrong: Any) -> None:
    with pytest.raises(InvalidRequestError):
        kind.freeze(wrong)


def test_times_before_the_epoch_and_at_the_ends() -> None:
    for kind, values in (
        (Types.INSTANT(), [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]),
        (Types.SQL_TIMESTAMP(), [datetime.min, datetime(1969, 12, 31, 23, 59, 59, 999999), datetime.max]),
        (Types.SQL_DATE(), [date.min, date(1969, 12, 31), date.max]),
        (Types.SQL_TIME(), [time.min, time.max]),
    ):
        for value in values:
            assert kind.from_wire(kind.to_wire(kind.freeze(value))) == value
        assert kind.from_arrow(kind.to_arrow([*values, None])) == [*values, None]
