"""Base of stores that read and write whole objects only: ranges and files are made from them, in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from varvite.storage.object_stores.contract import check_range, range_of
from varvite.storage.object_stores.local.errors import did_not_happen
from varvite.storage.object_stores.local.files import check_source, complete_or_absent

if TYPE_CHECKING:
    from pathlib import Path


class WholeObjects(ABC):
    """The part of `ObjectStore` that follows from `get` and `put`."""

    @abstractmethod
    def get(self, name: str) -> bytes: ...

    @abstractmethod
    def put(self, name: str, data: bytes) -> None: ...

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        check_range(name, offset, length)
        return range_of(self.get(name), name, offset, length)

    def put_file(self, name: str, path: Path) -> None:
        try:
            data = check_source(path).read_bytes()
        except OSError as error:
            raise did_not_happen(error, f"reading {path}", name) from error
        self.put(name, data)

    def get_file(self, name: str, path: Path) -> None:
        data = self.get(name)
        with complete_or_absent(path) as part:
            try:
                part.write_bytes(data)
            except OSError as error:
                raise did_not_happen(error, f"writing {path}", name) from error

    def link_file(self, name: str, path: Path) -> bool:
        del name, path
        return False
