"""Classes of PyFlink's types that are made otherwise here than there; `Types` makes the same."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from varvite.changelog.types import basic, decimals, times
from varvite.changelog.types.composites import RowType
from varvite.changelog.types.contract import TypeInformation
from varvite.changelog.types.factory import Types
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Sequence


class BasicType(enum.Enum):
    """Names of the basic types."""

    STRING = "String"
    BYTE = "Byte"
    BOOLEAN = "Boolean"
    SHORT = "Short"
    INT = "Integer"
    LONG = "Long"
    FLOAT = "Float"
    DOUBLE = "Double"
    CHAR = "Char"
    BIG_INT = "BigInteger"
    BIG_DEC = "BigDecimal"
    INSTANT = "Instant"


class BasicTypeInfo:
    """Makes basic types: `BasicTypeInfo(BasicType.STRING)`, `BasicTypeInfo.STRING_TYPE_INFO()`."""

    def __new__(cls, basic_type: BasicType) -> Any:
        """The type. Raises `InvalidRequestError` for no `BasicType`."""
        if not isinstance(basic_type, BasicType):
            raise InvalidRequestError(f"BasicTypeInfo takes a BasicType, not {basic_type!r}")
        return getattr(Types, basic_type.name)()

    STRING_TYPE_INFO = basic.StringType
    BOOLEAN_TYPE_INFO = basic.BooleanType
    BYTE_TYPE_INFO = basic.ByteType
    SHORT_TYPE_INFO = basic.ShortType
    INT_TYPE_INFO = basic.IntType
    LONG_TYPE_INFO = basic.LongType
    FLOAT_TYPE_INFO = basic.FloatType
    DOUBLE_TYPE_INFO = basic.DoubleType
    CHAR_TYPE_INFO = basic.CharType
    BIG_INT_TYPE_INFO = decimals.BigIntType
    BIG_DEC_TYPE_INFO = decimals.BigDecimalType
    INSTANT_TYPE_INFO = times.InstantType


class SqlTimeTypeInfo:
    """Makes types of times."""

    DATE = times.SqlDateType
    TIME = times.SqlTimeType
    TIMESTAMP = times.SqlTimestampType


class RowTypeInfo(TypeInformation):
    """Types of rows, in `isinstance` too; called, it makes one."""

    def __new__(cls, field_types: Sequence[Any], field_names: Sequence[str] | None = None) -> Any:
        """The type of rows with these fields; without names they are f0, f1 and so on."""
        return Types.ROW(field_types) if field_names is None else Types.ROW_NAMED(field_names, field_types)

    get_field_names = RowType.get_field_names
    get_field_types = RowType.get_field_types
    get_field_index = RowType.get_field_index


RowTypeInfo.register(RowType)
