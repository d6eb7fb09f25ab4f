"""LIST on a directory tree: names in the order of S3 (by UTF-8 bytes), each with size and time."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from varvite.storage.object_stores.contract import ObjectMeta

if TYPE_CHECKING:
    from pathlib import Path


def list_below(root: Path, prefix: str, start_after: str, *, hidden: str) -> list[ObjectMeta]:
    """The files below `root` whose relative name starts with `prefix` and is greater than `start_after`, sorted.

    `hidden` is the name of a directory directly under the root that is left out. So are files that vanish during the
    listing. Raises OSError.
    """
    directory = prefix.rpartition("/")[0]
    if directory.split("/", 1)[0] == hidden:
        return []
    metas: list[ObjectMeta] = []
    waiting = [directory]
    while waiting:
        below = waiting.pop()
        for entry in _entries(root / below):
            name = f"{below}/{entry.name}" if below else entry.name
            if name == hidden:
                continue
            if entry.is_dir():
                if _may_hold(name + "/", prefix, start_after):
                    waiting.append(name)
            elif name.startswith(prefix) and name > start_after:
                _append(metas, name, entry)
    # Code points sort like their UTF-8 bytes, which is the order of S3.
    metas.sort()
    return metas


def _entries(path: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _may_hold(directory: str, prefix: str, start_after: str) -> bool:
    """True if names that begin with `directory` (with its `/`) can match."""
    if not (directory.startswith(prefix) or prefix.startswith(directory)):
        return False
    return directory > start_after or start_after.startswith(directory)


def _append(metas: list[ObjectMeta], name: str, entry: os.DirEntry[str]) -> None:
    try:
        status = entry.stat()
    except FileNotFoundError:
        return
    metas.append(ObjectMeta(name, status.st_size, status.st_mtime))
