"""Rules for processes that user code forks from a state worker, with `multiprocessing` or `os.fork`.

Such a process must not be a second state worker: what it inherits would outlive the worker in it. Its copy of a socket
keeps a pump waiting that has lost its worker, its copy of the lock keeps the next worker from beginning, and its copy
of the signal handler, which `multiprocessing` triggers where it ends a pool, would end the worker. So it closes these
at once; and if it comes back from the user's code, as after `sys.exit()`, it ends there. A pool whose worker was killed
would wait for work for ever: what the worker's main thread has forked ends with the worker.

Invariants: I3 and I4 (only the worker itself sends, folds or drops an attempt).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol
from weakref import WeakSet

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15
_libc: Final = ctypes.CDLL(None) if sys.platform.startswith("linux") else None


def die_with_parent(parent: int) -> bool:
    """Have this process killed when its parent, of that process id, ends; ends it at once if that has happened.

    Returns:
        False where the system cannot do it: the caller must ask `orphaned` now and then.
    """
    supported = _libc is not None and _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0
    if orphaned(parent):  # the parent ended between the fork and the line above
        os._exit(1)
    return supported


def orphaned(parent: int) -> bool:
    """Has the process that forked this one ended?"""
    return os.getppid() != parent


def set_process_name(name: str) -> None:
    """Name that `ps` and `top` show, 15 bytes at most; nothing happens where the system has no such thing."""
    if _libc is not None:
        _libc.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def thread_count() -> int:
    """Operating system threads of this process; 1 where the system does not count them."""
    return len(list(Path("/proc/self/task").iterdir())) if _libc is not None else 1


EXIT_FORKED: Final = 70


class Closeable(Protocol):
    """Something of the system's that a fork copies."""

    def close(self) -> object:
        """Give this process's copy up, without a word to the other side; may be called twice."""
        ...


@dataclass
class _Forks:
    kept: WeakSet[Closeable] = field(default_factory=WeakSet[Closeable])
    worker: int = 0
    """Process id of the state worker; 0: this is none."""
    by_main_thread: bool = False
    """The worker's main thread forks now: the system takes the end of the thread that has forked for the parent's."""
    is_fork: bool = False


_forks: Final = _Forks()
_mask: Final = threading.local()
"""Signals that the thread had blocked before it forked."""


def guard_forks() -> None:
    """This process is a state worker: from now on the module's rules hold for what it forks. May be called twice."""
    if not _forks.worker:
        os.register_at_fork(before=_before, after_in_parent=_restore_mask, after_in_child=_in_child)
    _forks.worker = os.getpid()


def keep_from_forks(resource: Closeable) -> None:
    """Processes that a state worker forks close it."""
    _forks.kept.add(resource)


def end_if_forked() -> None:
    """End this process if user code forked it from a state worker: nothing behind the user's code is for it."""
    if _forks.is_fork:
        os._exit(EXIT_FORKED)


def _before() -> None:
    is_worker = os.getpid() == _forks.worker  # no child of it: a daemon is forked twice, to live on
    _forks.by_main_thread = is_worker and threading.current_thread() is threading.main_thread()
    # Until the child has its own handler it would lose the signal, and who ends a pool would wait for it for ever.
    _mask.before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _restore_mask() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _mask.before)


def _in_child() -> None:
    _forks.is_fork = True
    if _forks.by_main_thread:
        die_with_parent(_forks.worker)
    for resource in list(_forks.kept):
        with suppress(OSError):
            resource.close()
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _restore_mask()
