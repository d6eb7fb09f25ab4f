"""Generic types, whose values or parts of them are pickled, and their refusal where a job allows none.

Reading such a value runs code of its writer. With `pipeline.generic-types` off a state is refused by its type, as
declared or as stored, before a value of it is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from varvite.changelog.segments.columns import type_of
from varvite.changelog.types.collections import MapType, PickledType, SequenceType
from varvite.changelog.types.composites import CompositeType
from varvite.changelog.types.stamped import StampedType
from varvite.storage.errors import IncompatibleError, InvalidRequestError
from varvite.storage.options.declaration import ConfigOption
from varvite.storage.options.kinds import BOOLEAN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from varvite.changelog.api.descriptors import StateDescriptor
    from varvite.changelog.types.contract import TypeInformation
    from varvite.storage.format.records import StateSchema

GENERIC_TYPES: Final = ConfigOption(
    key="pipeline.generic-types",
    type=BOOLEAN,
    default=True,
    description="Let state hold pickled objects, which run code of whoever wrote them when they are read. Off: a job "
    "with such a state, declared, stored or by default, is refused (docs/operate/security.md).",
)


def is_generic(kind: TypeInformation) -> bool:
    """Are values of this type, or parts of them, pickled?"""
    if isinstance(kind, StampedType):
        return is_generic(kind.inner)
    if isinstance(kind, CompositeType):
        return any(map(is_generic, kind.types))
    if isinstance(kind, SequenceType):
        return is_generic(kind.element)
    if isinstance(kind, MapType):
        return is_generic(kind.value)  # its keys have canonical bytes, which no pickle has
    return isinstance(kind, PickledType)


def refuse_declared(descriptor: StateDescriptor, operator: str) -> None:
    """Raise `InvalidRequestError` if the state would be of a generic type."""
    if is_generic(descriptor.stored_type):
        raise InvalidRequestError(
            f"state {descriptor.name!r} is declared as {descriptor.type_info}, whose values are pickled, but "
            f"{GENERIC_TYPES.key} is false; declare it with another type",
            operator=operator,
        )


def refuse_stored(schemas: Iterable[StateSchema], operator: str) -> None:
    """Raise `IncompatibleError` if a state is stored in a generic type, or values of an older version may be."""
    for schema in schemas:
        for value_type in (schema.value_type, *(version.value_type for version in schema.earlier)):
            refuse_stored_type(schema.name, value_type, operator)


def refuse_stored_type(name: str, value_type: str, operator: str) -> None:
    """Raise `IncompatibleError` if the type in which a state is stored is a generic one."""
    if is_generic(type_of(value_type)):
        raise IncompatibleError(
            f"state {name!r} is stored as {value_type}, whose values are pickled, but {GENERIC_TYPES.key} is "
            "false; nothing of it was read. Give the operator a new uid, which starts without it; or, if "
            "nobody else can have written the storage, set the option to true, and give the state's "
            "descriptor another type and migrate=",
            operator=operator,
        )
