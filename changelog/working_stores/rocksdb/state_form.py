"""`StateForm`: the encoding of one state's keys and values as rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from varvite.changelog.segments.columns import MAP, map_key_type, namespace_type_of, type_of
from varvite.changelog.types.stamped import is_stamped
from varvite.changelog.working_stores.rocksdb.keys import header, prefix
from varvite.storage.errors import InvariantError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from varvite.changelog.types.contract import TypeInformation
    from varvite.storage.format.records import StateSchema


class Prefixes(dict[int, bytes]):
    """Key group → the bytes that begin the state's rows in it. A key group outside of the store is a bug."""

    def __missing__(self, key_group: int) -> bytes:
        raise InvariantError(f"key group {key_group} is not one of the store's; it has [{min(self)}, {max(self)}]")


@dataclass(frozen=True, slots=True)
class StateForm:
    """The encoding of one state's stored forms as rows."""

    schema: StateSchema
    prefixes: Prefixes
    key: TypeInformation
    value: TypeInformation
    map_key: TypeInformation | None
    head: bytes
    """The first byte of values that are written; the wire form of a stamped type begins with the stamp."""
    reader_of: Callable[[int], Callable[[bytes], Any]]
    """Number of an older schema version → function from its wire forms to stored forms of this version, both without
    time stamps."""
    namespace: TypeInformation | None = None

    @classmethod
    def of(
        cls,
        schema: StateSchema,
        state_id: int,
        key_type: TypeInformation,
        key_groups: Iterable[int],
        reader_of: Callable[[int], Callable[[bytes], Any]],
    ) -> StateForm:
        """The form of a state, at a version of its schema, in a store of these key groups."""
        return cls(
            schema=schema,
            prefixes=Prefixes({group: prefix(group, state_id) for group in key_groups}),
            key=key_type,
            value=type_of(schema.value_type),
            map_key=map_key_type(schema) if schema.kind == MAP else None,
            head=header(schema.version, stamped=is_stamped(schema.value_type)),
            reader_of=reader_of,
            namespace=namespace_type_of(schema),
        )
