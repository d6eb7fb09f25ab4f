"""Values that pass the generated check are exactly their stored form; all others take the slow way."""

from __future__ import annotations

import math
from typing import Any

import pytest

from varvite.changelog.types.composites import TupleType
from varvite.changelog.types.composites_fast import FIELDS_MAX, canonical_freezer
from varvite.changelog.types.factory import Types, as_type
from varvite.storage.errors import InvalidRequestError

PAIR = as_type(Types.TUPLE([Types.LONG(), Types.DOUBLE()]))


class Pair(tuple[Any, ...]):
    """A tuple, but not exactly."""

    __slots__ = ()


@pytest.mark.parametrize("value", [(1, 2.5), (None, 2.5), (1, None), (-(1 << 63), math.inf), ((1 << 63) - 1, -1e300)])
def test_canonical_tuples_are_answered_themselves(value: tuple[Any, ...]) -> None:
    assert PAIR.freeze(value) is value


@pytest.mark.parametrize(
    ("value", "stored"),
    [((1, 2), (1, 2.0)), ([1, 2.5], (1, 2.5)), (Pair((1, 2.5)), (1, 2.5)), ((1, -0.0), (1, 0.0)), ((1, 0.0), (1, 0.0))],
)
def test_other_values_are_made_canonical(value: Any, stored: tuple[Any, ...]) -> None:
    frozen = PAIR.freeze(value)
    assert type(frozen) is tuple
    assert repr(frozen) == repr(stored)


def test_every_nan_becomes_the_one_nan() -> None:
    one, other = PAIR.freeze((1, float("nan"))), PAIR.freeze((1, -math.nan))
    assert one[1] is other[1]


@pytest.mark.parametrize("value", [(1 << 63, 1.0), (True, 1.0), (1, "x"), (1,), (1, 2.5, 3), 7])
def test_wrong_values_are_refused(value: Any) -> None:
    with pytest.raises(InvalidRequestError):
        PAIR.freeze(value)


def test_composites_without_a_test_for_each_field_have_no_short_way() -> None:
    assert canonical_freezer(tuple, ["True", None], repr) is None
    assert canonical_freezer(tuple, ["True"] * (FIELDS_MAX + 1), repr) is None
    nested = TupleType([as_type(Types.LONG()), as_type(Types.TUPLE([Types.LONG()]))])
    assert nested.freeze((1, (2,))) == (1, (2,))
