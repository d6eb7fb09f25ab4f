"""`OutputTag`: names a side output of a function, as in PyFlink.

A function yields `(tag, value)` for a side output. Tags are the same if their ids are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable


class OutputTag:
    """The name of a side output, and the type of its elements."""

    def __init__(self, tag_id: str, type_info: Any = None) -> None:
        """Name it.

        Args:
            tag_id: The name; not empty.
            type_info: Type of the elements, as any `output_type`. None: any objects, pickled.

        Raises:
            InvalidRequestError: The name is not a string, or empty.
        """
        if not isinstance(tag_id, str) or not tag_id:
            raise InvalidRequestError(f"an OutputTag needs an id, a text that is not empty, not {tag_id!r}")
        self.tag_id = tag_id
        self.type_info = type_info

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OutputTag) and self.tag_id == other.tag_id

    def __hash__(self) -> int:
        return hash(self.tag_id)

    def __repr__(self) -> str:
        return f"OutputTag({self.tag_id!r})"


def is_tagged(yielded: Any) -> bool:
    """True if a function yielded that for a side output."""
    return type(yielded) is tuple and len(yielded) == 2 and type(yielded[0]) is OutputTag  # noqa: PLR2004  a pair


def untagged(yielded: Iterable[Any]) -> list[Any]:
    """The elements of the main output, in order."""
    return [element for element in yielded if not is_tagged(element)]
