"""Local files that are complete or absent: the target of `get_file` and the source of `put_file`."""

from __future__ import annotations

import itertools
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from varvite.storage.errors import InvalidRequestError
from varvite.storage.object_stores.local.errors import did_not_happen

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


_numbers: Final = itertools.count(1)


def check_source(path: Path) -> Path:
    """Return `path` if it is a readable regular file. Raises `InvalidRequestError`."""
    if not path.is_file():
        raise InvalidRequestError(f"{path} is not a file that can be uploaded; give the path of an existing file")
    return path


@contextmanager
def complete_or_absent(path: Path) -> Generator[Path]:
    """Yield a temporary path beside `path`, which is renamed to `path` if the block succeeds and removed otherwise.

    Nothing is synced: a fetched file is a cache (I9) and is verified by its reader (I8). Raises `InvalidRequestError`
    if the directory does not exist, and that or `DidNotHappenError` if the rename fails.
    """
    if not path.parent.is_dir():
        raise InvalidRequestError(f"{path.parent} is not a directory; make it before fetching a file into it")
    part = path.with_name(f".{path.name[:100]}.{os.getpid()}-{next(_numbers)}.part")
    try:
        yield part
        try:
            part.replace(path)
        except OSError as error:
            raise did_not_happen(error, f"renaming the fetched file to {path}") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
