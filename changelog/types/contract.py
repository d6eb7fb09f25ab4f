"""`TypeInformation`: a type is four forms of one value, and the conversions between them.

* *value*: what the user passes and receives.
* *stored*: what working stores and overlays keep. For an immutable type it is the canonical Python object; for a
  mutable one it is its wire form, so that mutating an object without `update()` never changes state behind the log.
* *wire*: canonical MessagePack bytes. Equal values have equal bytes, and no wire form is a prefix of another, so wire
  forms may be put one after the other to make a key.
* *arrow*: a column, for segments.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

_ARROW: Final[Any] = pa


class TypeInformation(ABC):
    """A type of values in keyed state, in PyFlink's sense (`varvite.changelog.types.factory.Types` makes them).

    Instances are immutable, hashable, equal if they mean the same type, and picklable.
    """

    immutable: bool
    """True: stored form is the object itself and `thaw` is the identity."""
    hashable: bool
    """True: may be the type of a key or a map key."""

    @property
    @abstractmethod
    def arrow_type(self) -> pa.DataType:
        """Arrow type of a column of such values."""

    @abstractmethod
    def type_string(self) -> str:
        """Canonical, versioned string from which `types.parse_type_string` makes an equal type; goes to disk."""

    @abstractmethod
    def freeze(self, value: Any) -> Any:
        """Stored form of a user's value (never None). Raises `InvalidRequestError` naming type and value."""

    @abstractmethod
    def thaw(self, stored: Any) -> Any:
        """The user's value of a stored form; for mutable types a fresh object at each call."""

    @abstractmethod
    def to_wire(self, stored: Any) -> bytes:
        """Wire form of a stored form."""

    @abstractmethod
    def from_wire(self, data: bytes) -> Any:
        """Stored form of a wire form. Raises `CorruptDataError`."""

    @abstractmethod
    def to_arrow(self, stored: Sequence[Any]) -> pa.Array[Any]:
        """A column of stored forms; None becomes null."""

    @abstractmethod
    def from_arrow(self, column: pa.Array[Any]) -> list[Any]:
        """The stored forms of a column; null becomes None."""

    def wire_ready(self, column: pa.Array[Any]) -> list[Any]:
        """Input of `to_wire` for the wire forms of a column, null becomes None; for nothing else.

        It need not be stored forms: parts that cost time and do not show in the wire form are left out.
        """
        return self.from_arrow(column)

    def wire_column(self, column: pa.Array[Any]) -> pa.Array[Any]:
        """The wire forms of a column of `arrow_type` as a binary column; null stays null.

        One by one here; overridden by types that can do it at once (`varvite.changelog.types.wire_columns`).
        """
        wires = [None if value is None else self.to_wire(value) for value in self.wire_ready(column)]
        return _ARROW.array(wires, _ARROW.binary())

    def wire_parts(self, column: pa.Array[Any]) -> list[Any]:
        """Binary columns and scalars whose concatenation is the wire forms of a column without nulls.

        So a large value is copied only once, when the parts are joined.
        """
        return [self.wire_column(column)]
