"""The rule for clients of remote storages in processes that fork: each process has a client, made at its first request.

A client owns threads and connections, which a forked child must not share with its parent. A client whose threads do
not survive a fork at all is refused in a child whose parent has used it: there every request would hang for ever. A
warm parent of state workers makes no request, so its children have clients of their own.
"""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable


class ProcessClients:
    """The clients of one store, by process."""

    def __init__(self, make: Callable[[], Any], *, url: str, library: str, survives_fork: bool) -> None:
        """Nothing is made before the first `client()`.

        Args:
            make: Makes a client; connects to nothing.
            url: The store, for the error.
            library: The package of the client.
            survives_fork: False if the package works in no child of a process that has made a request with it.
        """
        self._make = make
        self._url = url
        self._library = library
        self._survives_fork = survives_fork
        self._by_process: dict[int, Any] = {}
        _living.add(self)

    def client(self) -> Any:
        """This process's client, for a request that follows at once.

        Raises `InvalidRequestError` in a child process in which it would hang.
        """
        if not self._survives_fork:
            if self._library in _lost:
                raise InvalidRequestError(
                    f"{self._url} cannot be used in process {os.getpid()}: it was forked from a process that had used "
                    f"{self._library}, whose requests hang in such a child; start it with multiprocessing's 'spawn', "
                    "fork before the first request, or, for S3, set the storage option engine=s3fs"
                )
            _used.add(self._library)
        process = os.getpid()
        client = self._by_process.get(process)
        if client is None:
            # Two threads may both come here; setdefault keeps one, and the other never opened a connection.
            client = self._by_process.setdefault(process, self._make())
        return client

    def keep_parents(self) -> None:
        """Keep the parent's clients from being destroyed in a forked child, even at exit.

        Their destructors close connections through the parent's event loop, whose epoll descriptor the child shares:
        the parent would never notice its next answer (seen as a 20 s stall that ended in the read timeout).
        """
        for client in self._by_process.values():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))


_living: Final[WeakSet[ProcessClients]] = WeakSet()
_used: Final[set[str]] = set()
"""Packages that do not survive a fork and have been used by this process."""
_lost: Final[set[str]] = set()
"""Packages that an ancestor had used before it forked."""


def _after_fork_in_child() -> None:
    _lost.update(_used)
    for clients in _living:
        clients.keep_parents()


os.register_at_fork(after_in_child=_after_fork_in_child)
