"""Whether an object may be named once more, or has to be written anew.

A file that is the same in the next snapshot is named again, for ever if it never changes. If it were encrypted with an
earlier key, that key could never be retired.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from varve.storage.object_stores.contract import ObjectStore


class ReusingStore(Protocol):
    """A store that writes objects otherwise than it has, or stands above one that may."""

    def is_reusable(self, name: str) -> bool:
        """Whether the object is stored as a new one would be; False also if it cannot be read. Errors as `get`."""
        ...


def is_reusable(store: ObjectStore, name: str) -> bool:
    """Whether the object is stored as a new one would be; in a store without `is_reusable` all are.

    A store that stands above others must pass it on.
    """
    return not hasattr(store, "is_reusable") or cast("ReusingStore", store).is_reusable(name)
