"""`Types`: the types of keyed state, under PyFlink's names; and `as_type`, which also takes Spark's.

| type | value | stored as | may be a key |
|---|---|---|---|
| BOOLEAN, BYTE, SHORT, INT, LONG | bool, int | itself | yes |
| FLOAT, DOUBLE | float; -0.0 becomes 0.0 | itself | yes |
| STRING, CHAR, BINARY | str, str of one character, bytes | itself | yes |
| BIG_INT, DECIMAL | int of any size, Decimal | itself | yes |
| BIG_DEC | Decimal that keeps its trailing zeros | itself | no |
| INSTANT | aware datetime, in UTC | itself | yes |
| SQL_DATE, SQL_TIME, SQL_TIMESTAMP | date, naive time, naive datetime | itself | yes |
| TUPLE, ROW, ROW_NAMED | tuple, `Row`; fields may be None | itself if all fields are, else bytes | if all fields may |
| LIST and arrays, MAP | list, dict | bytes | no |
| PICKLED_BYTE_ARRAY | any object | bytes | no |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from varvite.changelog.types import basic, decimals, times
from varvite.changelog.types import collections as collection
from varvite.changelog.types.composites import RowType, TupleType
from varvite.changelog.types.text import from_spark_json, parse_ddl, parse_type_string
from varvite.changelog.types.wire import WireType
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varvite.changelog.types.contract import TypeInformation

__all__ = ["TypeLike", "Types", "as_type", "parse_type_string"]

TypeLike = Any
"""A `TypeInformation`, a Spark DDL string such as "bigint" or "a int, b string", or a PySpark `DataType`."""


class Types:
    """The types of keyed state. Wherever one takes a type, it takes what `as_type` takes."""

    STRING = basic.StringType
    BYTE = basic.ByteType
    BOOLEAN = basic.BooleanType
    SHORT = basic.ShortType
    INT = basic.IntType
    LONG = basic.LongType
    FLOAT = basic.FloatType
    DOUBLE = basic.DoubleType
    CHAR = basic.CharType
    BINARY = basic.BinaryType
    BIG_INT = decimals.BigIntType
    BIG_DEC = decimals.BigDecimalType
    INSTANT = times.InstantType
    SQL_DATE = times.SqlDateType
    SQL_TIME = times.SqlTimeType
    SQL_TIMESTAMP = times.SqlTimestampType
    PICKLED_BYTE_ARRAY = collection.PickledType

    @staticmethod
    def DECIMAL(precision: int, scale: int) -> TypeInformation:  # noqa: N802
        """Spark's decimal: exactly `scale` digits after the point, at most `precision` (up to 38) in all."""
        return decimals.DecimalType(precision, scale)

    @staticmethod
    def ROW(field_types: Sequence[TypeLike]) -> TypeInformation:  # noqa: N802
        """Rows whose fields are named f0, f1, and so on."""
        return RowType([f"f{i}" for i in range(len(field_types))], _all(field_types))

    @staticmethod
    def ROW_NAMED(field_names: Sequence[str], field_types: Sequence[TypeLike]) -> TypeInformation:  # noqa: N802
        """Rows with these field names, which must be unique."""
        return RowType(list(field_names), _all(field_types))

    @staticmethod
    def TUPLE(field_types: Sequence[TypeLike]) -> TypeInformation:  # noqa: N802
        """Tuples of these types."""
        return TupleType(_all(field_types))

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: TypeLike) -> TypeInformation:  # noqa: N802
        """Arrays of BOOLEAN, SHORT, INT, LONG, FLOAT, DOUBLE or CHAR without None; that of BYTE is BINARY."""
        element = as_type(element_type)
        if isinstance(element, basic.ByteType):
            return basic.BinaryType()
        return collection.PrimitiveArrayType(element)

    @staticmethod
    def BASIC_ARRAY(element_type: TypeLike) -> TypeInformation:  # noqa: N802
        """Arrays of a primitive type or STRING; elements may be None."""
        return collection.BasicArrayType(as_type(element_type))

    @staticmethod
    def OBJECT_ARRAY(element_type: TypeLike) -> TypeInformation:  # noqa: N802
        """Arrays of any type; elements may be None."""
        return collection.ObjectArrayType(as_type(element_type))

    @staticmethod
    def MAP(key_type_info: TypeLike, value_type_info: TypeLike) -> TypeInformation:  # noqa: N802
        """Dicts; values may be None. A state of many entries is better a `MapState`."""
        return collection.MapType(as_type(key_type_info), as_type(value_type_info))

    @staticmethod
    def LIST(element_type_info: TypeLike) -> TypeInformation:  # noqa: N802
        """Lists; elements may be None. A state that only grows is better a `ListState`."""
        return collection.ListType(as_type(element_type_info))


def as_type(kind: TypeLike) -> WireType:
    """The type that the user means.

    Args:
        kind: A `TypeInformation`, a class such as `Types.LONG` itself, a Spark DDL string, or a PySpark `DataType`.

    Raises:
        InvalidRequestError: It is none of these, or a Spark type that state cannot hold.
    """
    if isinstance(kind, WireType):
        return kind
    if isinstance(kind, str):
        return parse_ddl(kind)
    of_spark = hasattr(kind, "jsonValue")  # without importing PySpark
    spark_type: Any = kind
    if isinstance(kind, type) and (of_spark or issubclass(kind, WireType)):
        try:
            return as_type(kind())
        except TypeError:
            raise InvalidRequestError(f"{kind.__name__} is not a type yet: it needs arguments") from None
    if of_spark:
        return from_spark_json(spark_type.jsonValue())
    raise InvalidRequestError(
        f"{kind!r} is not a type: give a TypeInformation such as Types.LONG(), a Spark type string such as 'bigint', "
        "or a PySpark DataType"
    )


def _all(types: Sequence[TypeLike]) -> list[WireType]:
    return [as_type(kind) for kind in types]
