"""What becomes of processes that user code forks from a state worker, with `multiprocessing` or `os.fork`.

Such a process must not be a second state worker: what it inherits would outlive the worker in it. Its copy of a socket
keeps a pump waiting that has lost its worker, its copy of the lock keeps the next worker from beginning, and its copy
of the signal handler, which `multiprocessing` triggers where it ends a pool, would end the worker. So it closes these
at once; and if it comes back from the user's code, as after `sys.exit()`, it ends there.

Invariants: I3 and I4 (only the worker itself sends, folds or drops an attempt).
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol
from weakref import WeakSet

EXIT_FORKED: Final = 70


class Closeable(Protocol):
    """Something of the system's that a fork copies."""

    def close(self) -> object:
        """Give this process's copy up, without a word to the other side; may be called twice."""
        ...


@dataclass
class _Forks:
    kept: WeakSet[Closeable] = field(default_factory=WeakSet[Closeable])
    is_guarded: bool = False
    is_fork: bool = False


_forks: Final = _Forks()


def guard_forks() -> None:
    """This process is a state worker: from now on the module's rules hold for what it forks. May be called twice."""
    if not _forks.is_guarded:
        _forks.is_guarded = True
        os.register_at_fork(after_in_child=_in_child)


def keep_from_forks(resource: Closeable) -> None:
    """Processes that a state worker forks close it."""
    _forks.kept.add(resource)


def end_if_forked() -> None:
    """End this process if user code forked it from a state worker: nothing behind the user's code is for it."""
    if _forks.is_fork:
        os._exit(EXIT_FORKED)


def _in_child() -> None:
    _forks.is_fork = True
    for resource in list(_forks.kept):
        with suppress(OSError):
            resource.close()
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
