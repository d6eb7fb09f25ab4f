"""The local directory of a materializer: RocksDB copies of ranges, kept between runs, and scratch space.

```
<root>/<n>/lock                                  held by the process that uses slot n
<root>/<n>/ranges/<job id>/<operator>/<lo>-<hi>  a range's RocksDB directory
<root>/<n>/scratch/                              emptied at the start
```

Two materializers with the same directory take different slots. Invariant: I9 (everything here is a cache).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

from varvite.storage.errors import InvalidRequestError
from varvite.storage.object_stores.local.errors import did_not_happen
from varvite.storage.private_directories import given_directory, user_directory

if TYPE_CHECKING:
    from collections.abc import Collection
    from types import TracebackType
    from typing import Self

    from varvite.materializer.ranges import RangeKey

SLOTS_MAX: Final = 64
"""Processes that can use one working directory at the same time."""


def working_directory(directory: Path | None, storage_url: str, option: str) -> Path:
    """The root of a materializer's slots: below the directory that an option names, or in the user's cache.

    Only this user can enter it. `option` is for errors. Raises `InvalidRequestError` if there is no such place.
    """
    if directory is not None:
        return given_directory(directory, "materializer", option)
    digest = hashlib.sha256(storage_url.encode()).hexdigest()[:16]
    return user_directory("materializer", option) / digest


class Workspace:
    """One slot of a working directory, held until `close` or the end of the process."""

    def __init__(self, root: Path) -> None:
        """Take the first free slot below `root`. Raises `InvalidRequestError` if that is not possible."""
        try:
            self._directory, self._lock = _take_slot(root)
            self._scratch = self._directory / "scratch"
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch.mkdir()
        except OSError as error:
            raise InvalidRequestError(f"the working directory {root} cannot be used: {error}; give another") from error

    @property
    def directory(self) -> Path:
        """The slot's directory."""
        return self._directory

    def range_directory(self, key: RangeKey) -> Path:
        """The directory of a range's database; the parent exists. Raises the errors of `scratch`."""
        directory = self._range_path(key)
        _make(directory.parent)
        return directory

    def discard(self, key: RangeKey) -> None:
        """Remove a range's database."""
        shutil.rmtree(self._range_path(key), ignore_errors=True)

    def discard_others(self, job_id: str, keys: Collection[RangeKey]) -> None:
        """Remove the databases of a job's ranges that are not among `keys`."""
        kept = {self._range_path(key) for key in keys}
        for directory in (self._directory / "ranges" / quote(job_id, safe="")).glob("*/*"):
            if directory not in kept:
                shutil.rmtree(directory, ignore_errors=True)

    def scratch(self, purpose: str, key: RangeKey) -> Path:
        """A directory of a range below the scratch space that does not exist yet; its parent does.

        Raises `DidNotHappenError` or `InvalidRequestError` if the disk is full or read-only.
        """
        directory = self._scratch / purpose / _relative(key)
        shutil.rmtree(directory, ignore_errors=True)
        _make(directory.parent)
        return directory

    def trim(self, limit_bytes: int, in_use: Collection[RangeKey]) -> tuple[Path, ...]:
        """Evict the least recently used copies until all together have at most `limit_bytes` (I10).

        Copies in `in_use` stay, even if the limit is then exceeded. Returns the evicted directories.
        """
        kept = {self._range_path(key) for key in in_use}
        copies = [_Copy(path, *_use_of(path)) for path in (self._directory / "ranges").glob("*/*/*")]
        total = sum(copy.size_bytes for copy in copies)
        removed: list[Path] = []
        for copy in sorted((c for c in copies if c.path not in kept), key=lambda c: c.used_s):
            if total <= limit_bytes:
                break
            shutil.rmtree(copy.path, ignore_errors=True)
            removed.append(copy.path)
            total -= copy.size_bytes
        return tuple(removed)

    def _range_path(self, key: RangeKey) -> Path:
        return self._directory / "ranges" / _relative(key)

    def close(self) -> None:
        """Free the slot; its databases stay for the next run."""
        shutil.rmtree(self._scratch, ignore_errors=True)
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Copy(NamedTuple):
    path: Path
    size_bytes: int
    used_s: float
    """Time at which its newest file was written, by the filesystem's clock."""


def _use_of(directory: Path) -> tuple[int, float]:
    """Bytes of a directory's files, and the time at which the newest was written."""
    size_bytes, used_s = 0, 0.0
    with suppress(FileNotFoundError):  # a file was compacted away, or the copy discarded: an estimate is enough
        for path in directory.iterdir():
            status = path.stat()
            size_bytes += status.st_size
            used_s = max(used_s, status.st_mtime)
    return size_bytes, used_s


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise did_not_happen(error, f"making {directory} in the working directory") from error


def _relative(key: RangeKey) -> Path:
    return Path(quote(key.job_id, safe=""), quote(key.operator, safe=""), f"{key.low:05d}-{key.high:05d}")


def _take_slot(root: Path) -> tuple[Path, int]:
    for slot in range(SLOTS_MAX):
        directory = root / str(slot)
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        return directory, lock
    raise InvalidRequestError(f"{SLOTS_MAX} processes use the working directory {root} already; give another")
