"""Directories of a local store that are known to survive a crash, kept open.

An object is durable only if its file, its directory, and every directory above that are (I1). Making a directory
durable costs an fsync of its parent, so durable directories are cached. They are cached as open
descriptors, and compared with the directory at the path: a path alone could by now lead to a new directory that
another process made and has not synced, a descriptor alone to a directory that was moved away.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from weakref import WeakSet, finalize

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

OPEN_MAX: Final = 64
"""Directories kept open per store, besides those in use."""


@dataclass
class _Entry:
    fd: int
    users: int = 0
    dropped: bool = False


class DurableDirectories:
    """Open directories below one root, each durable together with everything above it."""

    def __init__(self, root: Path, open_max: int = OPEN_MAX) -> None:
        self._root = root
        self._open_max = open_max
        self._begin()
        _living.add(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        self._closing = finalize(self, _close_all, self._entries)
        self._closing.atexit = False

    def _reset_in_child(self) -> None:
        self._closing.detach()  # the descriptors may belong to other files by now
        self._begin()

    @contextmanager
    def lease(self, directory: str) -> Generator[int]:
        """The descriptor of `directory` ("" is the root), made with its parents if missing; valid in the block only.

        Raises OSError.
        """
        entry = self._take(directory) or self._add(directory)
        try:
            yield entry.fd
        finally:
            self._release(entry)

    def drop(self, directory: str) -> None:
        """Remove a directory from the cache because it was deleted."""
        with self._lock:
            entry = self._entries.pop(directory, None)
            if entry:
                self._retire(entry)

    def _take(self, directory: str) -> _Entry | None:
        with self._lock:
            entry = self._entries.pop(directory, None)
            if entry and not self._is_there(directory, entry.fd):
                self._retire(entry)
                return None
            if entry:
                self._entries[directory] = entry  # now the most recently used
                entry.users += 1
            return entry

    def _is_there(self, directory: str, fd: int) -> bool:
        """True if the path still leads to the open directory; somebody may have moved or removed it."""
        try:
            return os.path.samestat((self._root / directory).stat(), os.fstat(fd))
        except OSError:
            return False

    def _add(self, directory: str) -> _Entry:
        entry = _Entry(make_durable(self._root, directory), users=1)
        with self._lock:
            earlier = self._entries.pop(directory, None)
            if earlier:
                self._retire(earlier)
            self._entries[directory] = entry
            while len(self._entries) > self._open_max:
                oldest = next(iter(self._entries))
                self._retire(self._entries.pop(oldest))
        return entry

    def _retire(self, entry: _Entry) -> None:
        entry.dropped = True
        if entry.users == 0:
            os.close(entry.fd)

    def _release(self, entry: _Entry) -> None:
        with self._lock:
            entry.users -= 1
            if entry.dropped and entry.users == 0:
                os.close(entry.fd)


def _close_all(entries: dict[str, _Entry]) -> None:
    """Close the directories of a store that is not used any more."""
    while entries:
        os.close(entries.popitem()[1].fd)


_living: Final[WeakSet[DurableDirectories]] = WeakSet()


def _reset_all_in_child() -> None:
    """Replace locks after a fork: one may be held by a thread that only the parent has."""
    for directories in _living:
        directories._reset_in_child()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


os.register_at_fork(after_in_child=_reset_all_in_child)


def make_durable(root: Path, directory: str) -> int:
    """Make `root/directory` and its parents, sync all directories on the path, and return an open descriptor.

    Of the root and the directories above it only new ones are synced: the others are the user's. Raises OSError.
    """
    _make_root(root)
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in directory.split("/") if directory else []:
            fd = _step_into(fd, part)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _step_into(fd: int, part: str) -> int:
    """Open the child `part` of `fd`, made if missing, and sync its entry in `fd`; closes `fd` on success."""
    with suppress(FileExistsError):
        os.mkdir(part, dir_fd=fd)
    child = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
    try:
        # Also if it existed: its creator may not have synced it yet.
        os.fsync(fd)
    except BaseException:
        os.close(child)
        raise
    os.close(fd)
    return child


def _make_root(root: Path) -> None:
    missing = [path for path in (root, *root.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)
