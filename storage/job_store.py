"""The objects of one job, `<root>/<job>`, as a store; and, to be read only, what it shares with the jobs beside it.

Objects that a clone shares with its source have names that lead out of the job (`layout.shared`). They can be read, but
neither listed nor written nor deleted, so a clone cannot harm its source (I7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.storage import layout
from varve.storage.object_name import check_name
from varve.storage.prefixed_store import PrefixedStore

if TYPE_CHECKING:
    from pathlib import Path

    from varve.storage.object_store import ObjectStore


class JobStore(PrefixedStore):
    """The objects of `root` below `job/`; see `ObjectStore` for each method."""

    def __init__(self, root: ObjectStore, job: str) -> None:
        """`job` is the job's directory. Raises `InvalidRequestError` if it could not be a name."""
        super().__init__(root, job)
        self._root = root

    def get(self, name: str) -> bytes:
        return self._root.get(_beside(name)) if layout.is_shared(name) else super().get(name)

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        if layout.is_shared(name):
            return self._root.get_range(_beside(name), offset, length)
        return super().get_range(name, offset, length)

    def get_file(self, name: str, path: Path) -> None:
        if layout.is_shared(name):
            self._root.get_file(_beside(name), path)
        else:
            super().get_file(name, path)


def _beside(name: str) -> str:
    """The name from the storage's root on, which must not lead out of that."""
    return check_name(layout.name_in_storage(name))
