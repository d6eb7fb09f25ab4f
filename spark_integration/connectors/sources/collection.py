"""A collection of the program as a bounded stream: its elements in a file that Spark streams, in one micro-batch.

The file is in the query's checkpoint location, and its name has a hash of the content. A run that ends before the
collection is processed leaves the file, and the next run of the program continues with it, exactly once. A run that has
processed it removes it; so a program that is started again reads its collection again, on top of its stored state.

The file has one row group, so one task reads all elements in their order.
"""

from __future__ import annotations

import hashlib
import io
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from varvite.spark_integration.connectors.hadoop_files import HadoopDirectory
from varvite.spark_integration.plan.transformations import CollectionSource
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

    from varvite.spark_integration.elements.types import ElementType
    from varvite.storage.clock import TokenSource

_DIRECTORY: Final = "collection"
BYTES_MAX: Final = 64 << 20
"""Size of a collection's file: it passes through the driver's memory."""


def collection_source(elements: ElementType, collection: Iterable[Any]) -> CollectionSource:
    """The source of a collection; its elements are copied now.

    Raises:
        InvalidRequestError: An element is not of the type, or they are too many.
    """
    columns = elements.writer("").columns(list(collection))
    table = pa.table(columns, names=elements.schema.names)
    if table.nbytes > BYTES_MAX:
        raise InvalidRequestError(
            f"the collection has {table.nbytes:,} bytes, more than {BYTES_MAX:,}; write it to files and use "
            "from_dataframe(spark.readStream...)"
        )
    return CollectionSource(elements=elements, table=table)


def empty_frame(spark: SparkSession, source: CollectionSource) -> DataFrame:
    """A DataFrame with the collection's columns, for plans that do not run."""
    return spark.createDataFrame([], source.elements.schema)


class CollectionInput:
    """The file of a collection, in a query's checkpoint location."""

    def __init__(self, spark: SparkSession, source: CollectionSource, checkpoint_location: str, number: int) -> None:
        """Prepare the input; nothing is written yet.

        Args:
            spark: The session.
            source: The elements.
            checkpoint_location: The query's.
            number: Number of the source in the job, from 0.
        """
        self._directory = _DIRECTORY if number == 0 else f"{_DIRECTORY}-{number}"
        self._spark = spark
        self._source = source
        self._files = HadoopDirectory(spark, checkpoint_location)

    def open(self, tokens: TokenSource) -> DataFrame:
        """The stream; the file is written unless an earlier run has left it. Raises `MayHaveHappenedError`."""
        data = _file(self._source.table)
        digest = hashlib.sha256(data).hexdigest()[:32]
        if not any(name.startswith(digest) for name in self._files.list_names(self._directory)):
            # Spark identifies the files that it has read by their names.
            self._files.create(f"{self._directory}/{digest}-{tokens.token()}.parquet", data)
        reader = self._spark.readStream.schema(self._source.elements.schema)
        return reader.parquet(self._files.url(self._directory))

    def end(self, complete: bool) -> None:
        """End the query; if everything was processed, remove the files."""
        if complete:
            for name in list(self._files.list_names(self._directory)):
                self._files.delete(f"{self._directory}/{name}")


def _file(table: pa.Table) -> bytes:
    with io.BytesIO() as written:
        pq.write_table(table, written, row_group_size=max(table.num_rows, 1), compression="zstd")
        return written.getvalue()
