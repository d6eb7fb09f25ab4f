"""What is pending of a key group after a cut, over what was sealed then."""

from __future__ import annotations

from typing import Any


class OverSealed(dict[Any, Any]):
    """Pending cells of a key group after a cut: `get` finds the sealed ones as well; all else is about its own.

    Handles read with `get` what a plain dict is before the first cut, so that reading through costs nothing then.
    """

    __slots__ = ("_sealed",)

    def __init__(self, sealed: dict[Any, Any]) -> None:
        super().__init__()
        self._sealed = sealed

    def get(self, key: Any, default: Any = None) -> Any:
        """The pending cell, else the sealed one, else the default."""
        return self[key] if key in self else self._sealed.get(key, default)
