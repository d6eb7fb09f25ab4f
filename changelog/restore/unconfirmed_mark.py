"""The mark of a local store into which an attempt was folded before it was known to have won (changelog off).

The version of such a store names the commit for which the attempt was made, and not the attempt: another attempt of the
same partition, on another executor, may have won under the same commit. Only the process that folded it knows the
attempt, so every other process must discard the files. The mark is durable before the fold, and is removed when the
attempt is confirmed.

Invariants: I4, I9 (a mark that stays too long costs a restore).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from varvite.storage.errors import MayHaveHappenedError

if TYPE_CHECKING:
    from pathlib import Path


class UnconfirmedMark:
    """A file beside a store's directory; for the one process that uses the directory."""

    def __init__(self, directory: Path) -> None:
        """`directory` is the store's; it need not exist."""
        self._path = directory.with_name(f"{directory.name}.unconfirmed")

    @property
    def is_set(self) -> bool:
        """True if the state in the directory may be of an attempt that did not win."""
        return self._path.exists()

    def set(self) -> None:
        """Set the mark, before the fold. Raises `MayHaveHappenedError` if the local disk fails."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.touch()
            directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise MayHaveHappenedError(
                f"a mark could not be written to the local disk: {error}; check its space and permissions",
                object_name=str(self._path),
            ) from error

    def clear(self) -> None:
        """Remove the mark, because the attempt has won or the files are gone.

        A mark that stays only costs a restore.
        """
        try:
            self._path.unlink(missing_ok=True)
        except OSError:
            return
