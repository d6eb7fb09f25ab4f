"""`StateSection`: one non-keyed state of one partition as frozen bytes, in checkpoints and restores.

Rows are kept encoded, so that sections are compared, copied and carried along without decoding values. Equal states
have equal bytes, but the order of a broadcast state's entries counts (I5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from varvite.storage.errors import CorruptDataError
from varvite.storage.format.frame import UNPARSABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

SectionKind: TypeAlias = Literal["broadcast", "list", "union-list", "raw-operator", "raw-keyed"]

BROADCAST: Final = "broadcast"
LIST: Final = "list"
UNION_LIST: Final = "union-list"
RAW_OPERATOR: Final = "raw-operator"
RAW_KEYED: Final = "raw-keyed"
RAW_NAME: Final = ""
"""The name of both raw sections; no descriptor has it."""

_encode: Final = msgspec.msgpack.Encoder().encode
_ELEMENTS: Final = msgspec.msgpack.Decoder(list[bytes])
_ENTRIES: Final = msgspec.msgpack.Decoder(list[tuple[bytes, bytes | None]])
_STREAMS: Final = msgspec.msgpack.Decoder(list[tuple[int, bytes]])
_DECODERS: Final[dict[SectionKind, msgspec.msgpack.Decoder[Any]]] = {
    BROADCAST: _ENTRIES,
    LIST: _ELEMENTS,
    UNION_LIST: _ELEMENTS,
    RAW_OPERATOR: _ELEMENTS,
    RAW_KEYED: _STREAMS,
}


class StateSection(msgspec.Struct, frozen=True, kw_only=True):
    """A state, or the rows of it that have one type. An image may have several of one name, which follow each other.

    A row is: of a list an element's wire form; of a broadcast state the wire forms of key and value, None for a null
    value; of raw operator state the bytes of one stream; of raw keyed state a key group and its bytes.
    """

    name: str
    kind: SectionKind
    value_type: str = ""
    """Type string of the element or map value; "" of raw state."""
    map_key_type: str | None = None
    rows: int
    """Never 0: a state without rows has no section."""
    data: bytes
    """The rows as one MessagePack array."""

    def decoded(self) -> list[Any]:
        """The rows. Raises `CorruptDataError`."""
        try:
            rows = _DECODERS[self.kind].decode(self.data)
        except UNPARSABLE as error:
            raise CorruptDataError(f"rows of state {self.name!r} do not parse: {error}") from error
        if len(rows) != self.rows:
            raise CorruptDataError(f"state {self.name!r} has {len(rows)} rows, its header says {self.rows}")
        return rows

    def with_rows(self, rows: Sequence[Any]) -> StateSection | None:
        """The same state with other rows; None if there are none."""
        return msgspec.structs.replace(self, rows=len(rows), data=_encode(rows)) if rows else None


def section_of(
    name: str, kind: SectionKind, rows: Sequence[Any], value_type: str = "", map_key_type: str | None = None
) -> StateSection | None:
    """A section of these rows; None if there are none."""
    if not rows:
        return None
    return StateSection(
        name=name, kind=kind, value_type=value_type, map_key_type=map_key_type, rows=len(rows), data=_encode(rows)
    )
