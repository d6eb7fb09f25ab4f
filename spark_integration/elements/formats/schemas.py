"""The contracts of schemas, and those of text, of bytes and of one field of a row; and the encoder of text files."""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from varvite.changelog.types.factory import Types
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    from varvite.changelog.types.composites import CompositeType
    from varvite.changelog.types.contract import TypeInformation


class SerializationSchema(ABC):
    """Turns elements into bytes, in the workers; picklable."""

    @abstractmethod
    def serialize(self, element: Any) -> bytes | None:
        """The bytes of an element; None: a record without a value. Raises `InvalidRequestError` if it does not fit."""


class DeserializationSchema(ABC):
    """Turns bytes into elements, in the workers; picklable."""

    @abstractmethod
    def deserialize(self, message: bytes) -> Any:
        """The element of these bytes; None: they are skipped. Raises `InvalidRequestError` if they are none."""

    @abstractmethod
    def get_produced_type(self) -> TypeInformation:
        """Type of the elements."""


def row_fields(kind: CompositeType) -> Callable[[Any], tuple[Any, ...]]:
    """A function from a row to its fields in the order of a type: by name if it has these names, else by position."""
    names, ordered = frozenset(kind.names), kind.ordered

    def fields(row: Any) -> tuple[Any, ...]:
        row_names = getattr(row, "FIELD_NAMES", None) or getattr(row, "__fields__", None)
        return ordered(row if row_names is None or names == frozenset(row_names) else tuple(row))

    return fields


def checked_charset(charset: str) -> str:
    """The name of a charset that Python knows. Raises `InvalidRequestError`."""
    try:
        return codecs.lookup(charset).name
    except LookupError:
        raise InvalidRequestError(f"{charset!r} is no charset that Python knows; take 'UTF-8', say") from None


class SimpleStringSchema(SerializationSchema, DeserializationSchema):
    """Text. What the charset does not have becomes `?`, and bytes that are not of it U+FFFD, as in Java.

    Args:
        charset: Its name.

    Raises:
        InvalidRequestError: There is no such charset.
    """

    def __init__(self, charset: str = "UTF-8") -> None:
        self._charset = checked_charset(charset)

    def serialize(self, element: Any) -> bytes:
        if not isinstance(element, str):
            raise InvalidRequestError(
                f"SimpleStringSchema takes a str, not {element!r}: map(str, Types.STRING()) before, or take a schema "
                "of rows such as JsonRowSerializationSchema"
            )
        return element.encode(self._charset, "replace")

    def deserialize(self, message: bytes) -> str:
        return message.decode(self._charset, "replace")

    def get_produced_type(self) -> TypeInformation:
        return Types.STRING()


class ByteArraySchema(SerializationSchema, DeserializationSchema):
    """Bytes as they are."""

    def serialize(self, element: Any) -> bytes:
        return _bytes(element, "ByteArraySchema takes")

    def deserialize(self, message: bytes) -> bytes:
        return message

    def get_produced_type(self) -> TypeInformation:
        return Types.BINARY()


class RowFieldExtractorSchema(SerializationSchema):
    """One field of a row, which has to be bytes; None becomes no bytes, as in Flink.

    Args:
        field_index: Its position, from 0.

    Raises:
        ValueError: It is negative.
    """

    def __init__(self, field_index: int) -> None:
        if field_index < 0:
            raise ValueError(f"Field index must be non-negative, got: {field_index}")
        self._field_index = field_index

    def serialize(self, element: Any) -> bytes:
        if element is None:
            return b""
        if len(element) <= self._field_index:
            raise InvalidRequestError(f"{element!r} has no field {self._field_index}")
        value = element[self._field_index]
        return b"" if value is None else _bytes(value, f"field {self._field_index} of the row has to be")


def _bytes(value: Any, beginning: str) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise InvalidRequestError(f"{beginning} bytes, not {value!r}: encode it in a map() before")
    return bytes(value)


@dataclass(frozen=True)
class Encoder:
    """The way in which a file sink writes elements; made by `simple_string_encoder`."""

    charset: str

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> Encoder:
        """Each element as a line of text, as Java has it. Raises `InvalidRequestError` for another charset."""
        if checked_charset(charset_name) != "utf-8":
            raise InvalidRequestError(f"files are written in UTF-8, not in {charset_name!r}; leave the charset out")
        return Encoder("utf-8")
