"""Two grammars for types: the type strings on disk, and Spark's DDL.

```
on disk   version ":" (type | "stamped<" type ">")
type      = name | "decimal(" p "," s ")" | name "<" type {"," type} ">" | "row<" field ":" type {...} ">"
Spark     bigint, decimal(10,2), array<double>, map<string,int>, struct<a:int,b:string>, "a int, b string"
```
Neither needs a JVM. In DDL, NOT NULL and COMMENT are ignored: every field of a row may be None.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from varvite.changelog.types import basic, decimals, times
from varvite.changelog.types import collections as collection
from varvite.changelog.types.composites import RowType, TupleType
from varvite.changelog.types.dynamic_key import DynamicKeyType
from varvite.changelog.types.stamped import NAME as STAMPED
from varvite.changelog.types.stamped import StampedType
from varvite.changelog.types.wire import TYPE_STRING_VERSION, WireType
from varvite.storage.errors import CorruptDataError, IncompatibleError, InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    from varvite.changelog.types.contract import TypeInformation

_TOKEN: Final = re.compile(r"\s*(?:(?P<word>\w+)|(?P<quoted>`(?:[^`]|``)*`)|(?P<text>'[^']*'|\"[^\"]*\")|(?P<mark>.))")
_DEPTH_MAX: Final = 64

_SIMPLE: Final[dict[str, Callable[[], WireType]]] = {
    "boolean": basic.BooleanType,
    "byte": basic.ByteType,
    "short": basic.ShortType,
    "int": basic.IntType,
    "long": basic.LongType,
    "float": basic.FloatType,
    "double": basic.DoubleType,
    "string": basic.StringType,
    "char": basic.CharType,
    "binary": basic.BinaryType,
    "big_int": decimals.BigIntType,
    "big_dec": decimals.BigDecimalType,
    "instant": times.InstantType,
    "sql_date": times.SqlDateType,
    "sql_time": times.SqlTimeType,
    "sql_timestamp": times.SqlTimestampType,
    "pickled": collection.PickledType,
    "dynamic_key": DynamicKeyType,
}
_OF_TYPES: Final[dict[str, Callable[..., WireType]]] = {
    "list": collection.ListType,
    "object_array": collection.ObjectArrayType,
    "basic_array": collection.BasicArrayType,
    "primitive_array": collection.PrimitiveArrayType,
    "map": collection.MapType,
}
_SPARK: Final[dict[str, Callable[[], WireType]]] = {
    "boolean": basic.BooleanType,
    "tinyint": basic.ByteType,
    "byte": basic.ByteType,
    "smallint": basic.ShortType,
    "short": basic.ShortType,
    "int": basic.IntType,
    "integer": basic.IntType,
    "bigint": basic.LongType,
    "long": basic.LongType,
    "float": basic.FloatType,
    "real": basic.FloatType,
    "double": basic.DoubleType,
    "string": basic.StringType,
    "char": basic.StringType,
    "varchar": basic.StringType,
    "binary": basic.BinaryType,
    "date": times.SqlDateType,
    "time": times.SqlTimeType,
    "timestamp": times.InstantType,
    "timestamp_ltz": times.InstantType,
    "timestamp_ntz": times.SqlTimestampType,
}
_SPARK_DECIMALS: Final = ("decimal", "dec", "numeric")
_WITH_LENGTH: Final = ("char", "varchar", "time")


class _SyntaxError(Exception):
    """The text does not fit the grammar."""


class _Reader:
    """Tokens of a type string, one ahead."""

    def __init__(self, text: str) -> None:
        self._tokens = [(match.lastgroup or "", match.group(match.lastgroup or 0)) for match in _TOKEN.finditer(text)
                        if match.group().strip()]  # fmt: skip
        self._next = 0
        self._depth = 0

    def peek(self, ahead: int = 0) -> str:
        """The token's text, lower case; empty at the end."""
        place = self._next + ahead
        return self._tokens[place][1].lower() if place < len(self._tokens) else ""

    def take(self, mark: str) -> bool:
        """Consume this mark or word if it comes next."""
        if self.peek() != mark:
            return False
        self._next += 1
        return True

    def need(self, mark: str) -> None:
        if not self.take(mark):
            raise _SyntaxError(f"{mark!r} is needed before {self.peek() or 'the end'!r}")

    def word(self) -> str:
        """A name, unquoted and in its own case."""
        kind, text = self._tokens[self._next] if self._next < len(self._tokens) else ("", "the end")
        if kind not in ("word", "quoted"):
            raise _SyntaxError(f"a name is needed before {text!r}")
        self._next += 1
        return text if kind == "word" else text[1:-1].replace("``", "`")

    def number(self) -> int:
        word = self.word()
        if not word.isdecimal():
            raise _SyntaxError(f"a number is needed instead of {word!r}")
        return int(word)

    def text(self) -> None:
        """Consume a quoted text."""
        if self._next >= len(self._tokens) or self._tokens[self._next][0] != "text":
            raise _SyntaxError("a quoted text is needed after COMMENT")
        self._next += 1

    def several(self, item: Callable[[], Any], end: str) -> list[Any]:
        """Items between commas, up to the end mark (which may be the end of the text)."""
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise _SyntaxError(f"it is nested more than {_DEPTH_MAX} deep")
        items = [item()]
        while self.take(","):
            items.append(item())
        self.need(end) if end else self.end()
        self._depth -= 1
        return items

    def end(self) -> None:
        if self.peek():
            raise _SyntaxError(f"{self.peek()!r} is left over")


class _DiskParser(_Reader):
    """Type strings on disk."""

    def stored_type(self) -> TypeInformation:
        """A type; only the outermost one may carry a stamp."""
        if not self.take(STAMPED):
            return self.type()
        self.need("<")
        inner = self.type()
        self.need(">")
        return StampedType(inner)

    def type(self) -> WireType:
        name = self.word()
        if name in _SIMPLE:
            return _SIMPLE[name]()
        if name == "decimal":
            return _decimal(self)
        if name == "row":
            return _row(self, lambda: (self.word(), self.need(":"), self.type()), "<", ">")
        if name != "tuple" and name not in _OF_TYPES:
            raise IncompatibleError(f"unknown type {name!r}: a newer varvite wrote it")
        self.need("<")
        types = self.several(self.type, ">")
        return TupleType(types) if name == "tuple" else _OF_TYPES[name](*types)


class _SparkParser(_Reader):
    """Spark's DDL."""

    def top(self) -> WireType:
        """A type, or the fields of a struct without the `struct<>`."""
        if self.peek(1) in ("", "<", "("):
            kind = self.type()
            self.end()
            return kind
        return _row(self, self.field, "", "")

    def type(self) -> WireType:
        name = self.word().lower()
        if name in _SPARK_DECIMALS:
            return _decimal(self) if self.peek() == "(" else decimals.DecimalType(10, 0)
        if name in _SPARK:
            if name in _WITH_LENGTH and self.take("("):
                self.number()
                self.need(")")
            return _SPARK[name]()
        if name == "struct":
            return _row(self, self.field, "<", ">")
        if name not in ("array", "map"):
            raise _SyntaxError(f"{name!r} is not a type that state can hold")
        self.need("<")
        types = self.several(self.type, ">")
        if len(types) != (1 if name == "array" else 2):
            raise _SyntaxError(f"{name} has {len(types)} types")
        return collection.ListType(types[0]) if name == "array" else collection.MapType(*types)

    def field(self) -> tuple[str, None, WireType]:
        if self.peek().isdecimal():
            raise _SyntaxError(f"{self.peek()!r} is a number, not a name; put it between backticks")
        name = self.word()
        self.take(":")
        kind = self.type()
        if self.take("not"):
            self.need("null")
        if self.take("comment"):
            self.text()
        return name, None, kind


def _decimal(reader: _Reader) -> WireType:
    reader.need("(")
    precision = reader.number()
    scale = reader.number() if reader.take(",") else 0
    reader.need(")")
    return decimals.DecimalType(precision, scale)


def _row(reader: _Reader, field: Callable[[], Any], start: str, end: str) -> WireType:
    if start:
        reader.need(start)
    fields = reader.several(field, end)
    return RowType([name for name, _, _ in fields], [kind for _, _, kind in fields])


def parse_type_string(text: str) -> TypeInformation:
    """The type of a type string from disk.

    Raises:
        IncompatibleError: A newer version, or a type that this version does not know.
        CorruptDataError: Not a type string.
    """
    version, colon, notation = text.partition(":")
    if not colon or not version.isdecimal():
        raise CorruptDataError(f"{text!r} is not a type string")
    if int(version) > TYPE_STRING_VERSION:
        raise IncompatibleError(f"type string {text!r} has version {version}; this varvite knows {TYPE_STRING_VERSION}")
    try:
        parser = _DiskParser(notation)
        kind = parser.stored_type()
        parser.end()
    except (_SyntaxError, InvalidRequestError, TypeError) as error:
        raise CorruptDataError(f"{text!r} is not a type string: {error}") from error
    return kind


def parse_ddl(text: str) -> WireType:
    """The type of a Spark DDL string. Raises `InvalidRequestError`."""
    try:
        return _SparkParser(text).top()
    except (_SyntaxError, InvalidRequestError) as error:
        raise InvalidRequestError(f"{text!r} is not a type: {error}") from error


def from_spark_json(value: Any) -> WireType:
    """The type of the JSON form of a PySpark `DataType`. Raises `InvalidRequestError`."""
    if isinstance(value, str):
        name = value.lower()
        return parse_ddl(name)
    kind = value.get("type")
    if kind == "struct":
        fields = value["fields"]
        return RowType([field["name"] for field in fields], [from_spark_json(field["type"]) for field in fields])
    if kind == "array":
        return collection.ListType(from_spark_json(value["elementType"]))
    if kind == "map":
        return collection.MapType(from_spark_json(value["keyType"]), from_spark_json(value["valueType"]))
    raise InvalidRequestError(f"Spark type {kind!r} is not a type that state can hold")
