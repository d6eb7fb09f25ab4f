"""`mapInArrow` for rows whatever their columns are called: PySpark's own asks for each by its name as an expression."""

from __future__ import annotations

import gc
import os
import socket
import stat
from contextlib import ExitStack, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    from collections.abc import Iterable, Iterator


def map_in_arrow(rows: DataFrame, function: ArrowFunction, schema: StructType) -> DataFrame:
    """What the function makes of the rows; it sees the columns under their names, dots and backticks included."""
    names = rows.columns
    if not any("." in name or "`" in name for name in names):
        return rows.mapInArrow(function, schema)
    plain: Any = rows.toDF(*[f"c{number}" for number in range(len(names))])
    return plain.mapInArrow(_UnderNames(function, names), schema)


class _UnderNames:
    """The function for batches whose columns are called otherwise than it expects; picklable."""

    def __init__(self, function: ArrowFunction, names: list[str]) -> None:
        self._function = function
        self._names = names

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self._function(batch.rename_columns(self._names) for batch in batches)


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
