"""Arrow columns of state values, made canonical.

A value must be the same whether it was written row by row or by column (I5): -0.0 becomes 0.0 and every NaN one NaN,
and values that the row methods refuse are refused here.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute

from varvite.changelog.types.basic import CharType, FloatingType, FloatType
from varvite.changelog.types.composites import CompositeType
from varvite.changelog.types.decimals import BigDecimalType, BigIntType
from varvite.changelog.types.times import InstantType, SqlDateType, SqlTimestampType
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from varvite.changelog.types.contract import TypeInformation

arrow: Final[Any] = pa
pc: Final[Any] = pyarrow.compute
_TAKES: Final = {"floating-point numbers": ("integers",), "decimals": ("integers",)}
"""Family of a state's values → other families that the row methods take for them; `_check_family`."""
_YEARS: Final = (datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999))  # noqa: DTZ001 - bounds, in any zone


def check_columnar(value_type: TypeInformation, what: str) -> None:
    """Raise `InvalidRequestError`, naming `what`, for a type whose Arrow column does not hold the values."""
    parts = value_type.types if isinstance(value_type, CompositeType) else ()
    if not value_type.immutable or isinstance(value_type, (BigIntType, BigDecimalType)):
        raise InvalidRequestError(
            f"{what} has type {value_type}, whose values are opaque bytes in Arrow; the methods for many keys take "
            "numbers, strings, binary, decimals, dates, timestamps, and tuples and rows of these"
        )
    for part in parts:
        check_columnar(part, what)


def canonical_column(value_type: TypeInformation, values: Any, what: str) -> Any:
    """The column that state keeps for these values: of the type's Arrow type, one chunk, canonical.

    Raises `InvalidRequestError`, naming `what`, for anything but an Arrow array, and for values that do not fit.
    """
    column: Any = values
    if isinstance(values, arrow.ChunkedArray):
        column = column.combine_chunks()
    if not isinstance(column, arrow.Array):
        raise InvalidRequestError(f"{what} takes an Arrow array, not {type(values).__name__}; make one with pa.array")
    try:
        return _canonical(value_type, column, what)
    except InvalidRequestError:
        raise
    except (pa.ArrowException, ValueError) as error:
        raise InvalidRequestError(f"{what} takes values of type {value_type}: {error}") from error


def _canonical(value_type: TypeInformation, column: Any, what: str) -> Any:
    arrow_type: Any = value_type.arrow_type
    if isinstance(value_type, CompositeType):
        return _canonical_struct(value_type, column, what)
    if column.type != arrow_type:
        _check_family(value_type, column.type, what)
        column = _cast(value_type, column, what)
    if isinstance(value_type, FloatingType):
        return _canonical_floats(column)
    if isinstance(value_type, CharType) and pc.any(pc.not_equal(pc.utf8_length(column), 1)).as_py():
        raise InvalidRequestError(f"{what} takes strings of one character")
    if isinstance(value_type, (InstantType, SqlTimestampType, SqlDateType)):
        _check_years(column, what)
    return column


def _check_family(value_type: TypeInformation, column_type: Any, what: str) -> None:
    """Refuse a cast between families, which would change values silently; one within a family keeps them or fails."""
    expected, actual = _family(value_type.arrow_type), _family(column_type)
    if actual in (expected, "nulls", *_TAKES.get(expected, ())):
        return
    advice = f"convert them first, with column.cast to {value_type.arrow_type} or otherwise"
    if (expected, actual) == ("timestamps without a zone", "timestamps with a zone"):
        advice = "make wall times of them, with pyarrow.compute.local_timestamp"
    elif (expected, actual) == ("timestamps with a zone", "timestamps without a zone"):
        advice = "give them their zone, with pyarrow.compute.assume_timezone"
    raise InvalidRequestError(
        f"{what} takes values of type {value_type}, which are {expected}, not {actual} ({column_type}): {advice}"
    )


def _family(kind: Any) -> str:
    """The kind of values of an Arrow type, whatever their width, unit and layout."""
    while True:
        if isinstance(kind, (arrow.DictionaryType, arrow.RunEndEncodedType)):
            kind = kind.value_type
        elif isinstance(kind, arrow.BaseExtensionType):
            kind = kind.storage_type
        else:
            break
    if pa.types.is_timestamp(kind):
        return "timestamps without a zone" if kind.tz is None else "timestamps with a zone"
    return next((name for is_member, name in _FAMILIES if is_member(kind)), str(kind))


def _is_text(kind: Any) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _is_bytes(kind: Any) -> bool:
    plain = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    return plain or pa.types.is_fixed_size_binary(kind) or pa.types.is_binary_view(kind)


_FAMILIES: Final[tuple[tuple[Any, str], ...]] = (
    (pa.types.is_null, "nulls"),
    (pa.types.is_boolean, "booleans"),
    (pa.types.is_integer, "integers"),
    (pa.types.is_floating, "floating-point numbers"),
    (pa.types.is_decimal, "decimals"),
    (_is_text, "strings"),
    (_is_bytes, "bytes"),
    (pa.types.is_date, "dates"),
    (pa.types.is_time, "times of day"),
)


def _cast(value_type: TypeInformation, column: Any, what: str) -> Any:
    cast = column.cast(value_type.arrow_type)
    if isinstance(value_type, FloatType) and pc.any(pc.is_inf(cast)).as_py():
        wide = column.cast(pa.float64())
        lost = pc.and_(pc.is_inf(cast), pc.is_finite(wide))
        if pc.any(lost).as_py():
            value = pc.filter(wide, lost)[0].as_py()
            raise InvalidRequestError(
                f"{what} takes values of type {value_type}: {value!r} is too large for 32 bits; "
                "declare the state as DOUBLE"
            )
    return cast


def _canonical_struct(value_type: CompositeType, column: Any, what: str) -> Any:
    arrow_type: Any = value_type.arrow_type
    if not pa.types.is_struct(column.type) or column.type.num_fields != arrow_type.num_fields:
        raise InvalidRequestError(f"{what} takes a struct array with the fields {value_type.names}, not {column.type}")
    if column.type.names != arrow_type.names:
        raise InvalidRequestError(f"{what} takes the fields {value_type.names}, not {column.type.names}")
    parts = [_canonical(part, child, what) for part, child in zip(value_type.types, column.flatten(), strict=True)]
    mask = pc.is_null(column) if column.null_count else None
    return arrow.StructArray.from_arrays(parts, fields=list(arrow_type), mask=mask)


def _canonical_floats(column: Any) -> Any:
    values = column.fill_null(0).to_numpy(zero_copy_only=False) + column.type.to_pandas_dtype()(0)
    values[np.isnan(values)] = np.nan
    mask = pc.is_null(column).to_numpy(zero_copy_only=False) if column.null_count else None
    return arrow.array(values, column.type, mask=mask, from_pandas=False)


def _check_years(column: Any, what: str) -> None:
    """Refuse dates after the year 9999, with which Python's dates end, and before the year 1."""
    unit = "us" if pa.types.is_timestamp(column.type) else "D"
    ends = pc.min_max(column.cast(pa.int64()) if unit == "us" else column.cast(pa.int32()))
    low, high = ends["min"].as_py(), ends["max"].as_py()
    first, last = (int(np.datetime64(year, unit).astype(np.int64)) for year in _YEARS)
    if low is not None and not first <= low <= high <= last:
        raise InvalidRequestError(f"{what} takes dates and timestamps of the years 1 to 9999")
