"""Changes of a value type that keep the stored values readable, and the conversions of those values; pure.

| change | conversion |
|---|---|
| ROW: field added, dropped, moved | by name, and one field must stay; an added one is null, or the change's default |
| number widened | to any type that holds every value of the old one exactly (docs/operate/schema-evolution.md) |
| CHAR to STRING | the same text |
| TUPLE, LIST, arrays, values of MAP | their parts change as above; a TUPLE by position, and keeps its length |

Everything else is incompatible, the keys of a MAP included. Conversions work on plain forms
(`varvite.changelog.types.wire`) and are total: every value of the old type has one in the new type.

A rule of `RULES` covers one family of types. Its inputs besides the two types are fields of `Step`. Rules know no time
stamps: `varvite.changelog.schema.history` handles stamped values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from varvite.changelog.types.basic import CharType, DoubleType, FloatingType, FloatType, IntegerType, StringType
from varvite.changelog.types.collections import MapType, SequenceType
from varvite.changelog.types.composites import CompositeType, RowType, TupleType, quote_name
from varvite.changelog.types.decimals import BigDecimalType, BigIntType, DecimalType
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from varvite.changelog.types.wire import WireType

PlainConversion: TypeAlias = Callable[[Any], Any]
"""The plain form of a value (never None) of the old type → that of the new one."""


def keep(plain: Any) -> Any:
    """The conversion of values whose plain form stays; compared by identity."""
    return plain


@dataclass(frozen=True, slots=True)
class Step:
    """The inputs of a conversion besides the two types."""

    defaults: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """Path of an added field (see `frozen_defaults`) → wire form of its value in older values."""


@dataclass(frozen=True, slots=True)
class Same:
    """The types are equal."""


@dataclass(frozen=True, slots=True)
class Converter:
    """Values of the old type are read as the new one."""

    convert: PlainConversion
    added: tuple[str, ...]
    """Paths of the fields that only the new type has."""


@dataclass(frozen=True, slots=True)
class Incompatible:
    """Values of the old type have no certain meaning in the new one."""

    reason: str


class _MismatchError(Exception):
    """Ends the search; the reason is its text."""


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a rule within the type, and the fields that only the new type has."""

    step: Step
    path: str
    added: list[str]

    def inside(self, name: str) -> _Place:
        """The place of a field."""
        return _Place(self.step, _joined(self.path, name), self.added)

    def mismatch(self, problem: str) -> _MismatchError:
        return _MismatchError(f"field {self.path}: {problem}" if self.path else problem)


def evolve(old: WireType, new: WireType, step: Step | None = None) -> Same | Converter | Incompatible:
    """The conversion of values of type `old` for a state that is declared with type `new`."""
    if old == new:
        return Same()
    place = _Place(step or Step(), "", [])
    try:
        convert = _conversion(old, new, place)
    except _MismatchError as mismatch:
        return Incompatible(str(mismatch))
    return Converter(convert, tuple(place.added))


def frozen_defaults(kind: WireType, defaults: Mapping[str, Any]) -> dict[str, bytes]:
    """The wire forms of default values, by path.

    A path names fields from the outside in, with points between: `address.zip`. Elements of lists and arrays and values
    of maps have no name of their own; a field of a TUPLE is its position. Names with other characters than letters,
    digits and `_` stand between backticks.

    Raises `InvalidRequestError` for a path that the type does not have, or a value that the field does not take.
    """
    fields = dict(_fields(kind, ""))
    frozen: dict[str, bytes] = {}
    for path, value in defaults.items():
        if path not in fields:
            raise InvalidRequestError(f"{kind.notation()} has no field {path!r}; it has {sorted(fields)}")
        if value is not None:  # a field without a default is null anyway
            try:
                frozen[path] = fields[path].to_wire(fields[path].freeze(value))
            except InvalidRequestError as error:
                raise InvalidRequestError(f"the default of field {path}: {error.message}") from None
    return frozen


def _fields(kind: WireType, path: str) -> list[tuple[str, WireType]]:
    """(path, type) of every named field inside a type."""
    if isinstance(kind, CompositeType):
        names = (
            [quote_name(n) for n in kind.names] if isinstance(kind, RowType) else [str(i) for i in range(kind.arity)]
        )
        fields = [(_joined(path, name), part) for name, part in zip(names, kind.types, strict=True)]
        return [nested for field in fields for nested in (field, *_fields(field[1], field[0]))]
    if isinstance(kind, SequenceType):
        return _fields(kind.element, path)
    return _fields(kind.value, path) if isinstance(kind, MapType) else []


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _conversion(old: WireType, new: WireType, place: _Place) -> PlainConversion:
    for rule in RULES:
        conversion = rule(old, new, place)
        if conversion is not None:
            return conversion
    raise place.mismatch(f"{old.notation()} cannot become {new.notation()}")


def _equal(old: WireType, new: WireType, place: _Place) -> PlainConversion | None:  # noqa: ARG001 - a rule
    return keep if old == new else None


_DIGITS_OF_BITS: Final = {8: 3, 16: 5, 32: 10, 64: 19}


def _integer(old: WireType, new: WireType, place: _Place) -> PlainConversion | None:  # noqa: ARG001 - a rule
    """BYTE, SHORT, INT and LONG: to more bits, and to every type that holds all of them exactly."""
    if not isinstance(old, IntegerType):
        return None
    if isinstance(new, IntegerType):
        return keep if new.bits > old.bits else None
    if isinstance(new, FloatingType):
        return float if old.bits <= (32 if isinstance(new, DoubleType) else 16) else None
    if isinstance(new, DecimalType):
        return new.dump if new.precision - new.scale >= _DIGITS_OF_BITS[old.bits] else None
    return new.dump if isinstance(new, (BigIntType, BigDecimalType)) else None


def _fraction(old: WireType, new: WireType, place: _Place) -> PlainConversion | None:  # noqa: ARG001 - a rule
    """FLOAT, DECIMAL and BIG_INT."""
    if isinstance(old, FloatType):
        return keep if isinstance(new, DoubleType) else None
    if isinstance(old, BigIntType):
        return (lambda plain: new.dump(old.load(plain))) if isinstance(new, BigDecimalType) else None
    if not isinstance(old, DecimalType):
        return None
    wider = (
        isinstance(new, DecimalType)
        and new.scale >= old.scale
        and new.precision - new.scale >= old.precision - old.scale
    )
    return (lambda plain: new.dump(Decimal(plain))) if wider or isinstance(new, BigDecimalType) else None


def _text(old: WireType, new: WireType, place: _Place) -> PlainConversion | None:  # noqa: ARG001 - a rule
    return keep if isinstance(old, CharType) and type(new) is StringType else None


def _row(old: WireType, new: WireType, place: _Place) -> PlainConversion | None:
    """Fields by name."""
    if not isinstance(old, RowType) or not isinstance(new, RowType):
        return None
    if not set(old.names) & set(new.names):
        raise place.mismatch(f"{new.notation()} has no field of {old.notation()}")
    sources: list[_Source] = []
    for name, part in zip(new.names, new.types, strict=True):
        inside = place.inside(quote_name(name))
        if name in old.names:
            position = old.names.index(name)
            sources.append((position, _conversion(old.types[position], part, inside), None))
        else:
            place.added.append(inside.path)
            sources.append((None, keep, _default(part, place.step.defaults.get(inside.path))))
    return _of_fields(sources, old.arity)


def _tuple(old: WireType, new: WireType, place: _Place) -> PlainConversion | None:
    """Fields by position."""
    if not isinstance(old, TupleType) or not isinstance(new, TupleType):
        return None
    if old.arity != new.arity:
        raise place.mismatch(f"a tuple of {old.arity} fields cannot become one of {new.arity}")
    pairs = zip(old.types, new.types, strict=True)
    sources: list[_Source] = [
        (i, _conversion(before, after, place.inside(str(i))), None) for i, (before, after) in enumerate(pairs)
    ]
    return _of_fields(sources, old.arity)


def _sequence(old: WireType, new: WireType, place: _Place) -> PlainConversion | None:
    """Lists and arrays: the same kind, with other elements."""
    if not isinstance(old, SequenceType) or type(old) is not type(new) or not isinstance(new, SequenceType):
        return None
    convert = _conversion(old.element, new.element, place)
    if convert is keep:
        return keep
    return lambda plain: [None if element is None else convert(element) for element in plain]


def _map(old: WireType, new: WireType, place: _Place) -> PlainConversion | None:
    """Maps: the same keys, with other values."""
    if not isinstance(old, MapType) or not isinstance(new, MapType):
        return None
    if old.key != new.key:
        raise place.mismatch(f"the keys of a map cannot change from {old.key.notation()} to {new.key.notation()}")
    convert = _conversion(old.value, new.value, place)
    if convert is keep:
        return keep
    return lambda plain: {key: None if value is None else convert(value) for key, value in plain.items()}


Rule: TypeAlias = Callable[["WireType", "WireType", _Place], PlainConversion | None]
"""The conversion; None if the rule does not apply; raises `_MismatchError` if there is none."""
RULES: Final[tuple[Rule, ...]] = (_equal, _integer, _fraction, _text, _row, _tuple, _sequence, _map)
"""Tried in this order."""

_Source: TypeAlias = tuple[int | None, PlainConversion, Any]
"""Of a field: its position in the old value, its conversion, and its plain form if it has no position."""


def _default(kind: WireType, wire: bytes | None) -> Any:
    """Plain form of a default."""
    return None if wire is None else msgspec.msgpack.decode(wire, type=kind.wire_schema)


def _of_fields(sources: Sequence[_Source], arity: int) -> PlainConversion:
    positions = [position for position, _, _ in sources]
    if positions == list(range(arity)) and all(convert is keep for _, convert, _ in sources):
        return keep

    def convert_fields(plain: Any) -> Any:
        fields: list[Any] = []
        for position, convert, default in sources:
            value = default if position is None else plain[position]
            fields.append(value if value is None or convert is keep else convert(value))
        return tuple(fields)

    return convert_fields
