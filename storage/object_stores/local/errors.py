"""The meaning of an OSError of a local filesystem: the error to raise instead, with advice."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from varvite.storage.errors import DidNotHappenError, InvalidRequestError, MayHaveHappenedError

if TYPE_CHECKING:
    from varvite.storage.errors import VarviteError

_ADVICE: Final[dict[int, str]] = {
    errno.EACCES: "permission denied: give this process read and write permission on the directory",
    errno.EPERM: "operation not permitted: the filesystem must allow hard links, and this process writing",
    errno.EROFS: "the filesystem is read-only: mount it writable or choose another location",
    errno.ENOTDIR: "a part of the path is a file, not a directory: choose another location or name",
    errno.EISDIR: "the name is a directory here: a local store cannot hold both 'a' and 'a/b'; choose another name",
    errno.ENOTEMPTY: "the name is a directory here: a local store cannot hold both 'a' and 'a/b'; choose another name",
    errno.EEXIST: "a part of the path is a file, not a directory: choose another location or name",
    errno.ENAMETOOLONG: "the path is too long for this filesystem: choose a shorter location or name",
    errno.EXDEV: "a directory under the root is another filesystem: the whole store must lie on one filesystem",
    errno.ENOTSUP: "the filesystem has no hard links, which put-if-absent needs: choose another filesystem",
    errno.ENOSYS: "the filesystem has no hard links, which put-if-absent needs: choose another filesystem",
    errno.ELOOP: "too many symbolic links in the path: correct the location",
}

_TRANSIENT: Final[dict[int, str]] = {
    errno.ENOSPC: "the disk is full: free space, then try again",
    errno.EDQUOT: "the disk quota is used up: free space, then try again",
    errno.EFBIG: "the file is larger than this filesystem or this process may write: raise the limit, then try again",
    errno.EMFILE: "this process has too many open files: raise its limit, then try again",
    errno.ENFILE: "the machine has too many open files: raise the limit, then try again",
    errno.EIO: "the disk reports an input/output error: check the disk, then try again",
    errno.ESTALE: "the network filesystem dropped the file handle: try again",
}


def did_not_happen(error: OSError, doing: str, name: str | None = None) -> VarviteError:
    """The error for a failure that certainly had no effect.

    `InvalidRequestError` where a retry cannot help, otherwise `DidNotHappenError`.
    """
    code = error.errno or 0
    if code in _ADVICE:
        return InvalidRequestError(f"{doing}: {_ADVICE[code]} ({error})", object_name=name)
    advice = _TRANSIENT.get(code, "try again")
    return DidNotHappenError(f"{doing}: nothing was changed; {advice} ({error})", object_name=name)


def may_have_happened(error: OSError, doing: str, name: str | None = None) -> VarviteError:
    """The error for a failure that may have had its effect, which is not known to be durable."""
    advice = _TRANSIENT.get(error.errno or 0, "read back, then try again")
    return MayHaveHappenedError(f"{doing}: it is not known to be durable; {advice} ({error})", object_name=name)
