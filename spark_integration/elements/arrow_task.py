"""`mapInArrow` for columns with any names, and the Python worker that runs it: its connection and its garbage.

PySpark's own `mapInArrow` reads each column's name as an expression, so dots and backticks in it fail. Its connection
to the JVM waits for delayed acknowledgements, and its workers collect garbage after each task; both cost milliseconds
of every batch (`promptly`, `freeze_modules`).
"""

from __future__ import annotations

import gc
import os
import socket
import stat
from contextlib import ExitStack, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def map_in_arrow(rows: DataFrame, function: ArrowFunction, schema: StructType) -> DataFrame:
    """Apply a function to the rows; it sees the columns under their names, dots and backticks included."""
    names = rows.columns
    if not any("." in name or "`" in name for name in names):
        return rows.mapInArrow(function, schema)
    plain: Any = rows.toDF(*[f"c{number}" for number in range(len(names))])
    return plain.mapInArrow(_UnderNames(function, names), schema)


class _UnderNames:
    """A function for batches whose columns have other names than it expects; picklable."""

    def __init__(self, function: ArrowFunction, names: list[str]) -> None:
        self._function = function
        self._names = names

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self._function(batch.rename_columns(self._names) for batch in batches)


_Received = TypeVar("_Received")

DESCRIPTORS_MAX: Final = 64
"""File descriptors among which the connection is searched: it is one of the first files that the process opens."""
_QUICKACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)


def promptly(received: Iterable[_Received]) -> Iterator[_Received]:
    """The pieces that come from the JVM, each acknowledged at once (TCP_QUICKACK).

    A user's own connections in the same process are treated in the same way, without an effect on them.
    """
    with ExitStack() as open_until_the_end:
        connections = [c for d in range(DESCRIPTORS_MAX) if (c := connection_over_tcp(d)) is not None]
        for connection in connections:
            open_until_the_end.enter_context(connection)
            _set(connection, socket.TCP_NODELAY)
        _acknowledge(connections)
        for piece in received:
            _acknowledge(connections)
            yield piece
        _acknowledge(connections)


def connection_over_tcp(descriptor: int) -> socket.socket | None:
    """A duplicate of a descriptor, if it is a connection over TCP; else None."""
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return None
        connection = socket.socket(fileno=os.dup(descriptor))
    except OSError:
        return None
    if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.type == socket.SOCK_STREAM:
        return connection
    connection.close()
    return None


def _acknowledge(connections: Iterable[socket.socket]) -> None:
    if _QUICKACK is not None:
        for connection in connections:
            _set(connection, _QUICKACK)


def _set(connection: socket.socket, option: int) -> None:
    with suppress(OSError):  # the connection has ended; its reader notices that
        connection.setsockopt(socket.IPPROTO_TCP, option, 1)


@cache
def freeze_modules() -> None:
    """Exclude the modules of this Python worker of Spark from garbage collection; once.

    Spark's workers collect garbage after every task. That takes 30 ms of CPU beside the commit and the sink of the
    batch, and finds nothing among the objects of modules. Present garbage is collected before.
    """
    gc.collect()
    gc.freeze()
