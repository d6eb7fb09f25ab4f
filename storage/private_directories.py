"""The directories on local disks in which this process works; the only module that makes them.

State in the open, sockets and locks are in them. So each is a directory that only this user may enter, and that no
link leads to: who could enter it could read the state, or put another in its place. A directory that outlives its
process carries a marker, and only below it does varvite delete or empty files that an earlier process left.

Invariant: I9 (everything in them is a cache).
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from types import TracebackType

MARKER: Final = "CACHEDIR.TAG"
"""A name that backup programs know; they leave out such a directory."""
_MARK: Final = """Signature: 8a477f597d28d172789f06886806bc55
# This directory belongs to varvite, which may delete everything in it.
# See https://bford.info/cachedir/ for the meaning of this file.
"""
_OTHERS: Final = 0o077


def user_directory(purpose: str, option: str) -> Path:
    """A private directory in this user's cache, or in `XDG_RUNTIME_DIR` if the user has none.

    Never one under a name that others can guess, in a directory where others can write.

    Args:
        purpose: Its name there.
        option: The option that would name another directory, for the error.

    Raises `InvalidRequestError` if there is no such place.
    """
    reasons: list[str] = []
    for base in _user_bases():
        try:
            return _private(_private(base / "varvite") / purpose)
        except (OSError, InvalidRequestError) as error:
            reasons.append(str(error))
    raise InvalidRequestError(
        f"this user has no cache directory ({'; '.join(reasons) or 'neither HOME nor XDG_CACHE_HOME is set'}); set "
        f"{option}, or XDG_CACHE_HOME"
    )


def given_directory(directory: Path, purpose: str, option: str) -> Path:
    """A private directory below one that the user has chosen, which may hold files of others.

    Raises `InvalidRequestError` if there is no such place, or others can enter it.
    """
    try:
        return _private(directory / f"varvite-{purpose}-{os.geteuid()}")
    except OSError as error:
        problem = f"{directory} cannot be used: {error}; correct {option}"
        raise InvalidRequestError(problem) from error
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{error.message}, or correct {option}") from error


def make_private(directory: Path) -> None:
    """Make a directory if it is missing; its parent exists.

    Raises OSError; `InvalidRequestError` if somebody else made it, or can enter it.
    """
    with suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    _check(directory)


class TemporaryDirectory:
    """A directory of this process, under a random name.

    It is removed by `cleanup`, at the end of a `with` block, with the last reference to it, or at the end of the
    process that made it; never by a process that was forked from that one.
    """

    def __init__(self, purpose: str, within: str | Path | None = None) -> None:
        """Make it below `within`; None: below the system's temporary directory. Raises OSError."""
        self.path = Path(tempfile.mkdtemp(prefix=f"varvite-{purpose}-", dir=within))
        self._remove = weakref.finalize(self, _remove_own, self.path, os.getpid())

    def cleanup(self) -> None:
        """Remove it; what cannot be removed stays. May be called twice."""
        self._remove()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cleanup()


def _remove_own(directory: Path, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(directory, ignore_errors=True)


def _user_bases() -> list[Path]:
    bases = [os.environ.get("XDG_CACHE_HOME", "")]
    with suppress(RuntimeError):  # the user has no home
        bases.append(str(Path.home() / ".cache"))
    bases.append(os.environ.get("XDG_RUNTIME_DIR", ""))
    return [Path(base) for base in bases if os.path.isabs(base)]  # noqa: PTH117  as the specification says


def _private(directory: Path) -> Path:
    """Make a directory with a marker, or check one that is there. Raises OSError, `InvalidRequestError`."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    if not os.path.lexists(directory):
        _make_marked(directory)
    _check(directory)
    if not (directory / MARKER).is_file():
        raise InvalidRequestError(
            f"{directory} was not made by varvite, which deletes files in such a directory: move it away"
        )
    return directory


def _make_marked(directory: Path) -> None:
    """Make the directory as a whole: another process sees it with its marker, or not at all."""
    made = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        (made / MARKER).write_text(_MARK)
        made.rename(directory)
    except OSError:
        shutil.rmtree(made, ignore_errors=True)
        if not os.path.lexists(directory):  # else another process was first
            raise


def _check(directory: Path) -> None:
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise InvalidRequestError(f"{directory} is a link or a file, and must be a directory: move it away")
    if status.st_uid != os.geteuid():
        raise InvalidRequestError(
            f"{directory} belongs to another user (uid {status.st_uid}), who could read or change the state in it: "
            "have it removed"
        )
    if status.st_mode & _OTHERS:
        mode = stat.S_IMODE(status.st_mode)
        raise InvalidRequestError(f"others can enter {directory} (mode {mode:03o}): remove it, or `chmod 700` it")
