"""LIST, arrays, MAP and pickled objects: mutable values, kept as wire bytes.

A map's entries are sorted on the wire, so equal maps have equal bytes and come back in that order. The elements of
lists and of boxed arrays and the values of maps may be None; those of primitive arrays and the keys of maps may not.
"""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Mapping, Sequence
from typing import Any, Final

from varvite.changelog.types.basic import BooleanType, ByteType, CharType, FloatingType, IntegerType, StringType
from varvite.changelog.types.wire import MutableType, WireType, encode
from varvite.storage.errors import IncompatibleError, InvalidRequestError

_SORTED_NATURALLY: Final = (int, str, bytes, bool)
_NOT_SEQUENCES: Final = (str, bytes, bytearray, memoryview)


class SequenceType(MutableType):
    """Base of LIST and the arrays; values are lists."""

    name: str
    nullable = True

    def __init__(self, element: WireType) -> None:
        self.element = element
        self.loads_itself = element.loads_itself
        super().__init__()

    def notation(self) -> str:
        return f"{self.name}<{self.element.notation()}>"

    def arguments(self) -> tuple[Any, ...]:
        return (self.element,)

    @property
    def wire_schema(self) -> Any:
        element = self.element.wire_schema
        return list[element | None] if self.nullable else list[element]

    def dump(self, value: Any) -> Any:
        listed: Any = value
        elements = listed if isinstance(value, (list, tuple)) else self._elements(value)
        dump = self.element.dump
        try:
            return [None if element is None and self.nullable else dump(element) for element in elements]
        except InvalidRequestError as error:
            raise InvalidRequestError(f"element of {self.notation()}: {error.message}") from None

    def _elements(self, value: Any) -> Sequence[Any]:
        """The elements of numpy arrays, of `array.array` and of other sequences."""
        to_list = getattr(value, "tolist", None)
        elements: Any = to_list() if to_list is not None else value
        if isinstance(elements, _NOT_SEQUENCES) or not isinstance(elements, Sequence):
            raise self.reject(value, "a list is needed")
        return elements  # pyright: ignore[reportUnknownVariableType]

    def load(self, plain: Any) -> Any:
        if self.loads_itself:
            return plain
        load = self.element.load
        return [None if element is None else load(element) for element in plain]


class ListType(SequenceType):
    """Lists."""

    name = "list"


class ObjectArrayType(SequenceType):
    """Arrays of any type; lists as values."""

    name = "object_array"


class BasicArrayType(SequenceType):
    """Arrays of boxed basic types; lists as values."""

    name = "basic_array"

    def __init__(self, element: WireType) -> None:
        if not isinstance(element, (IntegerType, FloatingType, BooleanType, StringType)):
            raise TypeError(f"Invalid element type for a boxed primitive array: {element}")
        super().__init__(element)


class PrimitiveArrayType(SequenceType):
    """Arrays of numbers, booleans or characters without None; lists as values. That of bytes is BINARY."""

    name = "primitive_array"
    nullable = False

    def __init__(self, element: WireType) -> None:
        if isinstance(element, ByteType) or not isinstance(element, (IntegerType, FloatingType, BooleanType, CharType)):
            raise TypeError(f"Invalid element type for a primitive array: {element}")
        super().__init__(element)


class MapType(MutableType):
    """Dicts."""

    def __init__(self, key: WireType, value: WireType) -> None:
        if not key.hashable:
            raise InvalidRequestError(f"{key} cannot be the key type of a MAP: its values have no canonical bytes")
        self.key = key
        self.value = value
        self.loads_itself = key.loads_itself and value.loads_itself
        self._natural = key.wire_schema in _SORTED_NATURALLY
        super().__init__()

    def notation(self) -> str:
        return f"map<{self.key.notation()},{self.value.notation()}>"

    def arguments(self) -> tuple[Any, ...]:
        return self.key, self.value

    @property
    def wire_schema(self) -> Any:
        key, value = self.key.wire_schema, self.value.wire_schema
        return dict[key, value | None]

    def dump(self, value: Any) -> Any:
        entries: Any = value
        if not isinstance(value, Mapping):
            raise self.reject(value, "a dict is needed")
        dump_key, dump = self.key.dump, self.value.dump
        try:
            plain = {dump_key(key): None if held is None else dump(held) for key, held in entries.items()}
        except InvalidRequestError as error:
            raise InvalidRequestError(f"entry of {self.notation()}: {error.message}") from None
        return {key: plain[key] for key in (sorted(plain) if self._natural else sorted(plain, key=encode))}

    def load(self, plain: Any) -> Any:
        if self.loads_itself:
            return plain
        load_key, load = self.key.load, self.value.load
        return {load_key(key): None if held is None else load(held) for key, held in plain.items()}


class PickledType(MutableType):
    """Any object that pickle or cloudpickle can write; write access to the storage is then access to the job."""

    def notation(self) -> str:
        return "pickled"

    @property
    def wire_schema(self) -> Any:
        return bytes

    def dump(self, value: Any) -> bytes:
        if value is None:
            raise self.reject(value, "None stands for no value")
        try:
            data = pickle.dumps(value, protocol=5)
            if b"__main__" not in data:
                return data
        except (pickle.PicklingError, AttributeError, TypeError):
            pass
        # Classes of a job's main script exist only there: cloudpickle writes such a class itself, as PyFlink does.
        try:
            return importlib.import_module("pyspark.cloudpickle").dumps(value, protocol=5)
        except Exception as error:
            raise self.reject(value, f"it cannot be pickled ({error})") from error

    def load(self, plain: bytes) -> Any:
        try:
            return pickle.loads(plain)  # noqa: S301 - the purpose of PICKLED_BYTE_ARRAY
        except Exception as error:
            raise IncompatibleError(
                f"a pickled value cannot be loaded ({error!r}): its class must be importable, and as it was"
            ) from error
