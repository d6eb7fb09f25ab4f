"""Sinks that bring a stream's elements to the driver, to print or to iterate over them."""

from __future__ import annotations

import queue
import sys
import threading
from typing import TYPE_CHECKING, Any, Final, Self

from pyspark.sql import functions as F  # noqa: N812  the name that every PySpark program uses

from varvite.changelog.types.collections import PickledType
from varvite.changelog.types.composites import RowType
from varvite.spark_integration.connectors.output.table import row_partitions
from varvite.spark_integration.connectors.sink import Sink
from varvite.spark_integration.elements.formats.java_text import java_text
from varvite.spark_integration.elements.types import TypedElements
from varvite.spark_integration.messages.protocol import PARTITION_COLUMN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from varvite.changelog.commit.base_decision import SinkCommit
    from varvite.spark_integration.elements.types import ElementType

BATCHES_MAX: Final = 4
"""Batches by which a collecting query may be ahead of its reader."""


def elements_by_partition(df: DataFrame, elements: ElementType) -> list[tuple[int, Any]]:
    """(partition, element) of every row, partition by partition, in their order there."""
    columns = [F.col(f"`{name}`") for name in elements.schema.names]
    table = df.select(*columns, F.spark_partition_id().alias(PARTITION_COLUMN)).toArrow()
    partitions: Any = table.column(PARTITION_COLUMN).to_pylist()
    return list(zip(partitions, _elements(table, elements), strict=True))


def table_elements_by_partition(table: pa.Table, elements: ElementType) -> list[tuple[int, Any]]:
    """The same of the output of a small batch."""
    return list(zip(row_partitions(table), _elements(table, elements), strict=True))


def _elements(table: pa.Table, elements: ElementType) -> list[Any]:
    return [element for batch in table.to_batches() for element in elements.reader(batch.schema).rows(batch)]


def printed_text(elements: ElementType) -> Callable[[Any], str]:
    """A function from an element to its text as PyFlink prints it.

    Values of a declared type are as Java has them, but the fields of rows as Python has them; so is all else.
    """
    kind = elements.state_type if isinstance(elements, TypedElements) else None
    if kind is None or isinstance(kind, PickledType):
        return str
    if isinstance(kind, RowType):
        return lambda row: f"{row.get_row_kind()}[{','.join(map(str, row))}]"
    return java_text(kind)


class PrintSink(Sink):
    """Prints every element as a line to the driver's standard output."""

    brings_rows_to_driver = True

    def __init__(self, elements: ElementType, identifier: str | None) -> None:
        self._elements = elements
        self._text = printed_text(elements)
        self._identifier = identifier
        self.parallelism = 1
        """Partitions of the printed stream; above 1 each line begins with the partition."""

    def write(self, df: DataFrame, commit: SinkCommit) -> None:
        del commit
        self._print(elements_by_partition(df, self._elements))

    def write_table(self, table: pa.Table, commit: SinkCommit) -> None:
        del commit
        self._print(table_elements_by_partition(table, self._elements))

    def _print(self, pairs: list[tuple[int, Any]]) -> None:
        lines = [self._line(partition, element) for partition, element in pairs]
        sys.stdout.write("".join(lines))
        sys.stdout.flush()

    def _line(self, partition: int, element: Any) -> str:
        numbered = str(partition + 1) if self.parallelism > 1 else ""
        prefix = ":".join(filter(None, [self._identifier, numbered]))
        text = self._text(element)
        return f"{prefix}> {text}\n" if prefix else f"{text}\n"


class CollectSink(Sink):
    """Hands batches of elements to one reader; waits while the reader is `BATCHES_MAX` batches behind."""

    brings_rows_to_driver = True

    def __init__(self, elements: ElementType) -> None:
        self._elements = elements
        self._queue: queue.Queue[list[Any] | None] = queue.Queue(BATCHES_MAX)
        self._closed = threading.Event()

    def write(self, df: DataFrame, commit: SinkCommit) -> None:
        del commit
        self._put([element for _, element in elements_by_partition(df, self._elements)])

    def write_table(self, table: pa.Table, commit: SinkCommit) -> None:
        del commit
        self._put(_elements(table, self._elements))

    def end(self) -> None:
        """Tell the reader that there is no further batch."""
        self._put(None)

    def drop_further(self) -> None:
        """Drop further batches: nobody reads them."""
        self._closed.set()

    def next_batch(self) -> list[Any] | None:
        """The elements of a batch; None at the end."""
        return self._queue.get()

    def _put(self, batch: list[Any] | None) -> None:
        while not self._closed.is_set():
            try:
                self._queue.put(batch, timeout=0.2)
            except queue.Full:
                continue
            return


class CloseableIterator:
    """The elements of a running job, as they come. Close it, or use it in a `with`, to end the job earlier."""

    def __init__(self, query: StreamingQuery, sink: CollectSink) -> None:
        self._query = query
        self._sink = sink
        self._elements: Iterator[Any] = iter(())
        self._ended = False

    def __iter__(self) -> CloseableIterator:
        return self

    def __next__(self) -> Any:
        """The next element.

        Raises:
            StopIteration: The job has ended, or the iterator is closed.
            VarviteError: The error that ended the job; a `UserFunctionError` if the user's function raised.
        """
        while not self._ended:
            for element in self._elements:
                return element
            batch = self._sink.next_batch()
            if batch is None:
                self._ended = True
                self._query.awaitTermination()
                break
            self._elements = iter(batch)
        raise StopIteration

    def next(self) -> Any:
        """The next element, as `next(iterator)`."""
        return self.__next__()

    def close(self) -> None:
        """End the job if it still runs."""
        self._ended = True
        self._sink.drop_further()
        if self._query.isActive:
            self._query.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
