"""The directories of local recovery: working state on one host that outlives its process.

```
<root>/<job id>/<operator>/<lo>-<hi>/<n>/        a RocksDB directory of key groups [lo, hi)
<root>/<job id>/<operator>/<lo>-<hi>/<n>.lock    held (flock) by the process that uses copy n
```

The root is `varvite-local-state-<uid>` below a directory that an option names, or is in the user's cache
(`varvite.storage.private_directories`). What else is below it, whoever put it there, is neither emptied nor deleted.

A process that needs the state of a range takes a copy that no other process holds; while a process that should be dead
still holds one, it takes another. A process that holds a copy only briefly, to bring it up to date, says so in the lock
file, so that others wait. The kernel frees a lock when its process ends, however it ends. The version in a copy decides
whether it is used, never its place or age.

Invariants: I9 (a copy is a cache: it may vanish at any time, and is used only if its version is on the line), I10
(unused copies are removed by age and size).
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

from varvite.changelog.restore.options import FROM_LOCAL, LOCAL_DIRECTORIES, LOCAL_FLUSH_INTERVAL, LOCAL_UNUSED_AGE
from varvite.storage.errors import InvalidRequestError
from varvite.storage.private_directories import given_directory, user_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

COPIES_MAX: Final = 16
"""Limit of copies of one range on one host. All but one belong to processes that should be dead."""
_LOCK_SUFFIX: Final = ".lock"
_LOCK: Final = re.compile(rf"[0-9]{{1,2}}{re.escape(_LOCK_SUFFIX)}")
_RANGE: Final = re.compile("[0-9]{5}-[0-9]{5}")
_BRIEF: Final = b"brief"
"""Content of the lock file of a copy that is held only to be brought up to date."""
_SEGMENT_LETTERS_MAX: Final = 200


@dataclass(frozen=True)
class LocalRecovery:
    """The settings by which a job's state workers keep their state on their hosts."""

    directories: tuple[str, ...] = ()
    """Parents of roots, on as many disks: a partition's state is in one of them. Empty: the user's cache."""
    flush_interval_ms: int = LOCAL_FLUSH_INTERVAL.default
    """A crash of the process loses at most this much of the copy; the log has it."""
    unused_age_max_ms: int = LOCAL_UNUSED_AGE.default
    """Copies that were not used for this time are removed."""
    unused_bytes_max: int | None = None
    """Limit of unused copies, in bytes, above which the least recently used are removed; None: no limit."""

    def root(self, partition: int) -> Path:
        """The directory below which the copies of a partition are. Raises `InvalidRequestError` if it can't be used."""
        if not self.directories:
            return user_directory("local-state", LOCAL_DIRECTORIES.key)
        directory = Path(self.directories[partition % len(self.directories)])
        return given_directory(directory, "local-state", LOCAL_DIRECTORIES.key)


class CopyRange(NamedTuple):
    """The range of a copy: key groups `[low, high)` of an operator of a job."""

    job_id: str
    operator: str
    low: int
    high: int


class LocalCopy:
    """A copy that this process holds until `release`, or its end."""

    def __init__(self, directory: Path, lock: int) -> None:
        self.directory = directory
        """The RocksDB directory; it need not exist yet."""
        self._lock = lock

    def mark_brief(self, brief: bool) -> None:
        """Mark the copy in the lock file as held briefly, or not, for processes that wait for it."""
        os.ftruncate(self._lock, 0)
        if brief:
            os.pwrite(self._lock, _BRIEF, 0)

    def discard(self) -> None:
        """Remove the state, and the files beside it; the copy stays held."""
        shutil.rmtree(self.directory, ignore_errors=True)
        for path in self.directory.parent.glob(f"{self.directory.name}.*"):
            if path.suffix != _LOCK_SUFFIX:
                _remove(path)

    def remove(self) -> None:
        """Remove the copy and give it up."""
        self.discard()
        with suppress(OSError):  # the lock file last: a process that has waited for it checks that it still exists
            self.directory.with_name(f"{self.directory.name}{_LOCK_SUFFIX}").unlink()
        self.release()
        for parent in list(self.directory.parents)[:3]:  # range, operator, job
            try:
                parent.rmdir()
            except OSError:
                break  # another copy is in it

    def release(self) -> None:
        """Release the copy to other processes."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


class LocalCopies:
    """The copies below one root."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def directories(self, key: CopyRange) -> tuple[Path, ...]:
        """The directories of a range's copies, held or not; another process may be using or removing them."""
        return tuple(sorted(path for path in self._range(key).glob("*") if path.name.isdecimal() and path.is_dir()))

    def free(self, key: CopyRange) -> list[LocalCopy]:
        """The range's copies that nobody else holds; this process holds them now, and must release each."""
        return [copy for path in self.directories(key) if (copy := _hold(path, os.O_CREAT)) is not None]

    def is_in_use(self, key: CopyRange) -> bool:
        """Tell whether a process, perhaps this one, holds a copy of the range, perhaps an empty one."""
        return any(_is_held(path) for path in self._range(key).glob(f"*{_LOCK_SUFFIX}"))

    def is_held_briefly(self, key: CopyRange) -> bool:
        """Tell whether a process holds a copy of the range briefly."""
        for path in self.directories(key):
            with suppress(OSError):
                if path.with_name(f"{path.name}{_LOCK_SUFFIX}").read_bytes() == _BRIEF:
                    return True
        return False

    def new(self, key: CopyRange) -> LocalCopy:
        """Make a copy without state. Raises `InvalidRequestError` if that is not possible."""
        for number in range(COPIES_MAX):
            try:
                copy = _make(self._range(key) / str(number))
            except OSError as error:
                raise InvalidRequestError(
                    f"local state cannot be kept in {self._root}: {error}; correct "
                    f"{LOCAL_DIRECTORIES.key}, or switch {FROM_LOCAL.key} off"
                ) from error
            if copy is not None:
                return copy
        raise InvalidRequestError(
            f"{COPIES_MAX} processes hold local state of key groups {key.low} to {key.high} of operator "
            f"{key.operator!r} in {self._root}; end those that are left over"
        )

    def sweep(self, unused_age_max_ms: int, unused_bytes_max: int | None, now_ms: int) -> tuple[Path, ...]:
        """Remove copies that no process holds, by the age of their newest file and by size.

        Returns their directories.
        """
        unused = sorted(self._unused(), key=lambda use: use.used_s)
        size_bytes = sum(use.size_bytes for use in unused)
        removed: list[Path] = []
        for use in unused:
            is_old = now_ms - use.used_s * 1000 > unused_age_max_ms
            if not is_old and (unused_bytes_max is None or size_bytes <= unused_bytes_max):
                continue
            copy = _hold(use.path)
            if copy is not None:
                copy.remove()
                removed.append(use.path)
            size_bytes -= use.size_bytes
        return tuple(removed)

    def _unused(self) -> Iterator[_Use]:
        for path in self._root.glob(f"*/*/*/*{_LOCK_SUFFIX}"):
            is_ours = _LOCK.fullmatch(path.name) and _RANGE.fullmatch(path.parent.name)
            copy = _hold(path.with_suffix("")) if is_ours else None
            if copy is not None:
                copy.release()
                yield _use_of(copy.directory, path)

    def _range(self, key: CopyRange) -> Path:
        names = _segment(key.job_id), _segment(key.operator), f"{key.low:05d}-{key.high:05d}"
        return self._root.joinpath(*names)


class _Use(NamedTuple):
    path: Path
    size_bytes: int
    used_s: float
    """Time at which its newest file was written, by the filesystem's clock: a hint."""


def _use_of(directory: Path, lock: Path) -> _Use:
    size_bytes, used_s = 0, 0.0
    with suppress(OSError):  # another process removes it: nothing is left to count
        used_s = lock.stat().st_mtime
        for path in directory.iterdir():
            status = path.stat()
            size_bytes += status.st_size
            used_s = max(used_s, status.st_mtime)
    return _Use(directory, size_bytes, used_s)


def _make(directory: Path, tries: int = 3) -> LocalCopy | None:
    """Make a copy in that directory; None if there is one. Raises OSError."""
    directory.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if directory.exists():
        return None
    lock = directory.with_name(f"{directory.name}{_LOCK_SUFFIX}")
    try:
        os.close(os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except FileNotFoundError:
        if tries == 1:
            raise
        return _make(directory, tries - 1)  # another process has removed a copy of the range and the parent
    return _hold(directory)


def _hold(directory: Path, flags: int = 0) -> LocalCopy | None:
    """Take the copy in that directory; None if another process holds it, or it was removed."""
    path = directory.with_name(f"{directory.name}{_LOCK_SUFFIX}")
    while True:
        try:
            lock = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EISDIR):  # a link, or a directory
                return None
            raise
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(lock), path.stat()):  # else it was removed meanwhile
                content = os.pread(lock, len(_BRIEF) + 1, 0)
                if content not in (b"", _BRIEF):  # somebody else's file
                    os.close(lock)
                    return None
                if content:  # else its time must not change: it shows the age of the copy
                    os.ftruncate(lock, 0)
                return LocalCopy(directory, lock)
        except BlockingIOError:
            os.close(lock)
            return None
        except FileNotFoundError:
            pass
        os.close(lock)


def _is_held(lock: Path) -> bool:
    """Tell whether a process holds the copy with that lock file."""
    try:
        probe = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(probe, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(probe)


def _remove(path: Path) -> None:
    """Remove a directory or a file; what cannot be removed stays."""
    shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):
        path.unlink()


def _segment(text: str) -> str:
    """Any text as one directory name."""
    name = quote(text, safe="").replace(".", "%2E")
    return name if len(name) <= _SEGMENT_LETTERS_MAX else hashlib.sha256(text.encode()).hexdigest()
