"""The TCP connection between Spark's JVM and its Python worker, without pauses of 40 ms.

Spark leaves Nagle's algorithm on: of what one side writes in several pieces, the last waits until the other side's
kernel has acknowledged those before, and that puts its acknowledgement off by 40 ms if it has nothing to send. One task
in seven waited like that for the end of its input. While a function of varve runs in a Python worker, that sends
without waiting (`TCP_NODELAY`), and acknowledges what it has read at once (`TCP_QUICKACK`, which only Linux has, and
which lasts only for a while).

With `spark.python.unix.domain.socket.enabled` there is no such connection, and nothing to do.
"""

from __future__ import annotations

import gc
import os
import socket
import stat
from contextlib import ExitStack, suppress
from functools import cache
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


_Received = TypeVar("_Received")

DESCRIPTORS_MAX: Final = 64
"""Where the connection is looked for: it is one of the first files that the process opens."""
_QUICKACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)


def promptly(received: Iterable[_Received]) -> Iterator[_Received]:
    """What comes from the JVM, piece by piece, and its kernel is told of each.

    A user's own connections in the same process are treated in the same way, which they do not notice.
    """
    with ExitStack() as open_until_the_end:
        found = [c for d in range(DESCRIPTORS_MAX) if (c := connection_over_tcp(d)) is not None]
        for connection in found:
            open_until_the_end.enter_context(connection)
            _set(connection, socket.TCP_NODELAY)
        _acknowledge(found)
        for piece in received:
            _acknowledge(found)
            yield piece
        _acknowledge(found)


def connection_over_tcp(descriptor: int) -> socket.socket | None:
    """A descriptor of its own for a connection over TCP; None if that one is anything else."""
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return None
        found = socket.socket(fileno=os.dup(descriptor))
    except OSError:
        return None
    if found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM:
        return found
    found.close()
    return None


def _acknowledge(connections: Iterable[socket.socket]) -> None:
    if _QUICKACK is not None:
        for connection in connections:
            _set(connection, _QUICKACK)


def _set(connection: socket.socket, option: int) -> None:
    with suppress(OSError):  # the connection has ended, which its reader will find
        connection.setsockopt(socket.IPPROTO_TCP, option, 1)


@cache
def freeze_modules() -> None:
    """Take what this Python worker of Spark has loaded out of garbage collection; once.

    Spark lets its workers collect garbage after every task: 30 ms of CPU, which find nothing among the objects of
    modules, beside the commit and the sink of the batch. What is garbage by now is collected before.
    """
    gc.collect()
    gc.freeze()
